"""A tree of plain values, as TOML gives it, is laid beside the config models before pydantic sees it.

    run file + overrides -> tree -> `fit` -> fitted tree + problems -> pydantic -> Config

`fit` finds what pydantic would report badly or let pass: unknown keys with the nearest known name, also
inside alternatives and lists; tables where values belong and values where tables belong. It gives bare
words their meaning and paths their type, so that pydantic can be strict.
"""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from strop.config.base import Section
from strop.config.overrides import Override
from strop.config.schema import expectation, fields, item_sections, members, sections, tag

ELSEWHERE = {
    "lr": "training.learning_rate",
    "max_grad_norm": "training.max_gradient_norm",
    "warmup_steps": "training.warmup_updates",
    "num_iterations": "training.epochs_per_batch",
    "ppo_epochs": "training.epochs_per_batch",
    "num_train_epochs": "data.epochs",
    "max_steps": "run.steps",
    "total_training_steps": "run.steps",
    "num_generations": "rollout.group_size",
    "max_completion_length": "rollout.max_new_tokens",
    "max_response_length": "rollout.max_new_tokens",
    "max_prompt_length": "data.max_prompt_tokens",
    "beta": "algorithm.kl_coefficient",
    "kl_coef": "algorithm.kl_coefficient",
    "epsilon_high": "algorithm.clip_high",
    "clip_ratio": "algorithm.clip_low",
    "loss_type": "algorithm.aggregation",
    "reward_funcs": "rewards[0].function",
    "model_name_or_path": "model.path",
    "save_steps": "checkpoint.every",
    "eval_steps": "evaluation.every",
    "report_to": "metrics.sinks",
}
"""What TRL and verl call keys of ours."""

OFFLINE_ELSEWHERE = {
    "num_train_epochs": "data.epochs",
    "max_steps": "run.steps",
    "per_device_train_batch_size": "training.batch_size",
    "gradient_accumulation_steps": "training.micro_batch_tokens",
    "max_length": "model.max_length",
    "max_seq_length": "model.max_length",
    "assistant_only_loss": "offline.train_on",
    "completion_only_loss": "offline.train_on",
    "loss_type": "offline.type",
    "dataset_name": "data.source.path",
    "dataset_text_field": "data.columns",
}
"""What TRL calls keys of ours in offline training."""

LEFT_OUT = object()
"""Stands for a value that already has a problem and is kept from pydantic."""


class Fitter:
    """Lays one tree beside the models and collects every problem by its dotted key."""

    def __init__(self, root: type[Section]) -> None:
        self._root = root
        self.problems: dict[str, str] = {}

    def fit(self, tree: dict[str, Any]) -> dict[str, Any]:
        """Returns the tree without what is wrong with it; `problems` says what that was."""
        return self._table(tree, (self._root,), "")

    def _table(self, table: dict[str, Any], options: tuple[type[Section], ...], prefix: str) -> dict[str, Any]:
        known = fields(options)
        fitted: dict[str, Any] = {}
        for name, value in table.items():
            key = f"{prefix}{name}"
            if name not in known:
                self.problems[key] = f"{key} is not a key{self._suggestion(name, prefix, list(known))}"
                continue
            result = self._value(value, known[name], key)
            if result is not LEFT_OUT:
                fitted[name] = result
        return fitted

    def _value(self, value: Any, field: FieldInfo, key: str) -> Any:
        if isinstance(value, Override):
            value = value.resolve(field.annotation)
        if value is None:
            return None
        if options := sections(field.annotation):
            return self._section(value, options, key)
        if options := item_sections(field.annotation):
            return self._items(value, options, field, key)
        return _plain(value, field.annotation)

    def _section(self, value: Any, options: tuple[type[Section], ...], key: str) -> Any:
        if not isinstance(value, dict):
            return self._refuse(key, f"{key} must be a table, got {shown(value)}")
        chosen = options if len(options) == 1 else self._choose(value, options, key)
        fitted = self._table(value, chosen, f"{key}.")
        return fitted if len(chosen) == 1 else LEFT_OUT

    def _choose(self, table: dict[str, Any], options: tuple[type[Section], ...], key: str) -> tuple[type[Section], ...]:
        """The one alternative that `type` names, or all of them with a problem noted."""
        given = table.get("type", LEFT_OUT)
        name = given.resolve(str) if isinstance(given, Override) else given
        tags = [tag(option) for option in options]
        if name in tags:
            return (options[tags.index(name)],)
        got = "nothing" if given is LEFT_OUT else shown(given)
        self._refuse(f"{key}.type", f"{key}.type must be one of {', '.join(tags)}, got {got}")
        return options

    def _items(self, value: Any, options: tuple[type[Section], ...], field: FieldInfo, key: str) -> Any:
        if not isinstance(value, list):
            return self._refuse(key, f"{key} must be {expectation(field)} ([[{key}]]), got {shown(value)}")
        entries = [item.value if isinstance(item, Override) else item for item in value]
        items = [self._section(entry, options, f"{key}[{place}]") for place, entry in enumerate(entries)]
        return LEFT_OUT if any(item is LEFT_OUT for item in items) else items

    def _refuse(self, key: str, message: str) -> Any:
        self.problems[key] = message
        return LEFT_OUT

    def _suggestion(self, name: str, prefix: str, siblings: list[str]) -> str:
        """The nearest known key: by another library's name, a near sibling, the same or a near name elsewhere."""
        everywhere = list(_all_keys(self._root, ""))
        near = [table[name] for table in (ELSEWHERE, OFFLINE_ELSEWHERE) if table.get(name) in everywhere]
        near += [f"{prefix}{match}" for match in difflib.get_close_matches(name, siblings, n=1, cutoff=0.75)]
        if f"{prefix}{name}" in everywhere:
            return f" with this `type`; the keys here are {', '.join(siblings)}"
        near += [key for key in everywhere if key.split(".")[-1] == name]
        near += [f"{prefix}{match}" for match in difflib.get_close_matches(name, siblings, n=1)]
        leaves = {key.split(".")[-1]: key for key in reversed(everywhere)}
        near += [leaves[match] for match in difflib.get_close_matches(name, leaves, n=1)]
        return f"; did you mean {near[0]}?" if near else f"; the keys here are {', '.join(siblings)}"


def _all_keys(section: type[Section], prefix: str) -> Iterator[str]:
    """Every dotted key under a section, lists as their first entry."""
    for name, field in section.model_fields.items():
        key = f"{prefix}{name}"
        yield key
        for inner in sections(field.annotation):
            yield from _all_keys(inner, f"{key}.")
        for inner in item_sections(field.annotation):
            yield from _all_keys(inner, f"{key}[0].")


def _plain(value: Any, annotation: Any) -> Any:
    """A value of a key that holds no section: words inside it resolved, texts made paths where paths belong."""
    if isinstance(value, str) and Path in members(annotation):
        return Path(value)
    if isinstance(value, list):
        inner = [get_args(member)[0] for member in members(annotation) if get_origin(member) is list]
        item = inner[0] if inner else Any
        return [entry.resolve(item) if isinstance(entry, Override) else plain(entry) for entry in value]
    return plain(value)


def plain(value: Any) -> Any:
    """A value with every word of the command line inside it read as TOML reads it."""
    match value:
        case Override():
            return plain(value.value)
        case dict():
            return {name: plain(inner) for name, inner in value.items()}
        case list():
            return [plain(inner) for inner in value]
        case _:
            return value


def shown(value: Any) -> str:
    """A value as its owner would write it."""
    match value:
        case Override():
            return value.text
        case bool():
            return str(value).lower()
        case dict():
            return "a table"
        case Path():
            return repr(str(value))
        case _:
            return repr(value)
