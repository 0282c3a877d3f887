"""`strop samples`: browses what a run sampled, by step, prompt, reward and finish state."""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from strop.cli.samples_text import Pieces
    from strop.metrics.samples import FoundSample, SampleQuery, SampleStore

_STATES = ("stopped", "length", "aborted", "failed")


def samples(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, such as runs/my-run.")],
    step: Annotated[str, typer.Option(help="last, all, one step, or a range such as 10:20, 10: and :20.")] = "last",
    prompt: Annotated[str | None, typer.Option(help="Only of the prompt with this id.")] = None,
    reward: Annotated[str | None, typer.Option(help="A reward, a range such as 0.5: and :0.5, or none.")] = None,
    finish: Annotated[str | None, typer.Option(help=f"One of {', '.join(_STATES)}.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Show at most so many.")] = 20,
    tokens: Annotated[bool, typer.Option("--tokens", help="Show each token with its log-prob and version.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a sample.")] = False,
) -> None:
    """Browse what a run sampled."""
    from strop.cli.samples_text import as_object, describe_samples
    from strop.metrics.samples import open_samples

    store = open_samples(run_folder)
    found = _find(store, _steps(store, step), _query(prompt, reward, finish))
    shown = list(islice(found, limit))
    pieces = _pieces(run_folder) if tokens else None
    if as_json:
        lines: Iterable[str] = (json.dumps(as_object(item, pieces), ensure_ascii=False) for item in shown)
    else:
        lines = describe_samples(shown, pieces)
    for line in lines:
        typer.echo(line)
    if not shown:
        typer.echo(f"no sample fits; steps {store.steps()[0]} to {store.steps()[-1]} are kept", err=True)
    elif next(found, None) is not None:
        typer.echo(f"there are more than {limit}: raise --limit, or ask for less", err=True)


def _find(store: "SampleStore", steps: Iterable[int], query: "SampleQuery") -> "Iterator[FoundSample]":
    from dataclasses import replace

    from strop.metrics.samples import find_samples

    return (found for step in steps for found in find_samples(store, replace(query, step=step)))


def _steps(store: "SampleStore", wanted: str) -> list[int]:
    kept = store.steps()
    if wanted == "last":
        return kept[-1:]
    if wanted == "all":
        return kept
    low, high = parse_span(wanted, "--step must be last, all, a step, or a range such as 10:20")
    if low == high and low is not None:
        return [int(low)]
    return [step for step in kept if (low is None or step >= low) and (high is None or step <= high)]


def _query(prompt: str | None, reward: str | None, finish: str | None) -> "SampleQuery":
    from strop.errors import ConfigError
    from strop.metrics.samples import SampleQuery

    if finish not in (None, *_STATES):
        raise ConfigError(f"--finish must be one of {', '.join(_STATES)}, got {finish!r}")
    if reward is None or reward == "none":
        return SampleQuery(prompt_id=prompt, finish=finish, invalid=reward == "none")
    low, high = parse_span(reward, "--reward must be a number, a range such as 0.5:1, or none")
    return SampleQuery(prompt_id=prompt, finish=finish, minimum_reward=low, maximum_reward=high)


def parse_span(text: str, rule: str) -> tuple[float | None, float | None]:
    """Reads `3`, `3:7`, `3:` or `:7` as its two bounds; raises ConfigError beginning with `rule`."""
    from strop.errors import ConfigError

    first, colon, last = text.partition(":")
    try:
        low = float(first) if first else None
        high = (float(last) if last else None) if colon else low
    except ValueError as error:
        raise ConfigError(f"{rule}, got {text!r}") from error
    return low, high


def _pieces(run_folder: Path) -> "Pieces":
    """How token ids are written: by the run's tokenizer, or as bare ids where it cannot be had any more."""
    from strop.config.load import load_config
    from strop.errors import StropError

    try:
        from strop.models.load import load_tokenizer

        model = load_config(run_folder / "config.toml").model
        tokenizer = load_tokenizer(model.model_copy(update={"chat_template": None}))
    except StropError as error:
        typer.echo(f"tokens are shown without their text: {error.message}", err=True)
        return lambda token_id: ""
    return lambda token_id: str(tokenizer.decode([token_id]))
