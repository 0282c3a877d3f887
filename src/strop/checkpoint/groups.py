"""Collected but untrained groups on disk: arrays in one npz file, everything else in one JSON file.

Tokens, log-probs, versions, rewards and advantages come back bit-equal, so that a resumed run trains on exactly
what was sampled before it stopped. What a step works out itself (`Row.fields`) is not kept.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.checkpoint.encoding import decode, encode
from strop.records import FinishState, Group, Prompt, RewardPart, Row, Sample

_ARRAYS_NAME, _JSON_NAME = "arrays.npz", "groups.json"

_DTYPES: dict[str, type[np.generic]] = {
    "prompt_token_ids": np.int64,
    "token_ids": np.int64,
    "loss_mask": np.bool_,
    "rollout_logprobs": np.float32,
    "policy_versions": np.int64,
    "advantages": np.float32,
}
"""Each field is one long array: the arrays of all rows behind one another."""


def save_groups(folder: Path, groups: Sequence[Group]) -> None:
    """Writes groups into an existing folder.

    Raises TypeError naming the field where an array or a prompt's column has no exact form.
    """
    writer = _ArrayWriter()
    content = [_group_to_json(group, writer) for group in groups]
    np.savez(folder / _ARRAYS_NAME, **writer.columns())
    (folder / _JSON_NAME).write_text(json.dumps(content), encoding="utf-8")


def load_groups(folder: Path) -> list[Group]:
    """Reads what `save_groups` wrote."""
    content = json.loads((folder / _JSON_NAME).read_text(encoding="utf-8"))
    with np.load(folder / _ARRAYS_NAME, allow_pickle=False) as columns:
        reader = _ArrayReader({name: columns[name] for name in columns.files})
    return [_group_from_json(group, reader) for group in content]


@dataclass(frozen=True, slots=True)
class GroupsPart:
    """The checkpoint part of a list of groups that its owner hands out and takes back."""

    groups: Callable[[], Sequence[Group]]
    restore: Callable[[list[Group]], None]

    def save(self, folder: Path) -> None:
        """Writes the groups that the owner holds now."""
        save_groups(folder, self.groups())

    def load(self, folder: Path) -> None:
        """Gives the groups back to the owner."""
        self.restore(load_groups(folder))


@dataclass
class _ArrayWriter:
    """Puts arrays behind one another, field by field."""

    _arrays: dict[str, list[NDArray[Any]]] = field(default_factory=lambda: defaultdict(list))

    def put(self, name: str, array: NDArray[Any]) -> int:
        if array.ndim != 1 or not np.can_cast(array.dtype, _DTYPES[name], "safe"):
            raise TypeError(f"{name} must be a flat {_DTYPES[name].__name__} array, got {array.dtype} {array.shape}")
        self._arrays[name].append(array)
        return len(array)

    def columns(self) -> dict[str, Any]:
        empty = {name: np.zeros(0, dtype) for name, dtype in _DTYPES.items()}
        return {name: np.concatenate([empty[name], *self._arrays[name]], dtype=_DTYPES[name]) for name in _DTYPES}


@dataclass
class _ArrayReader:
    """Takes arrays off in the order in which they were put."""

    _columns: dict[str, NDArray[Any]]
    _offsets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_DTYPES, 0))

    def take(self, name: str, length: int) -> NDArray[Any]:
        start = self._offsets[name]
        self._offsets[name] = start + length
        return self._columns[name][start : start + length].copy()


def _group_to_json(group: Group, writer: _ArrayWriter) -> dict[str, Any]:
    prompt = group.prompt
    return {
        "prompt": {
            "prompt_id": prompt.prompt_id,
            "visit": prompt.visit,
            "num_tokens": writer.put("prompt_token_ids", prompt.token_ids),
            "messages": encode(list(prompt.messages), f"messages of prompt {prompt.prompt_id}"),
            "task": prompt.task,
            "columns": encode(dict(prompt.columns), f"columns of prompt {prompt.prompt_id}"),
            "source": prompt.source,
        },
        "samples": [_sample_to_json(sample, writer) for sample in group.samples],
        "baseline": None if group.baseline is None else _sample_to_json(group.baseline, writer),
    }


def _group_from_json(content: dict[str, Any], reader: _ArrayReader) -> Group:
    prompt = content["prompt"]
    token_ids = reader.take("prompt_token_ids", prompt["num_tokens"])
    return Group(
        prompt=Prompt(
            prompt_id=prompt["prompt_id"],
            visit=prompt["visit"],
            token_ids=token_ids,
            messages=tuple(decode(prompt["messages"])),
            task=prompt["task"],
            columns=decode(prompt["columns"]),
            source=prompt["source"],
        ),
        samples=tuple(_sample_from_json(sample, reader) for sample in content["samples"]),
        baseline=_sample_from_json(baseline, reader) if (baseline := content.get("baseline")) else None,
    )


def _sample_to_json(sample: Sample, writer: _ArrayWriter) -> dict[str, Any]:
    return {
        "index": sample.index,
        "rows": [_row_to_json(row, writer) for row in sample.rows],
        "finish": sample.finish.value,
        "reward": _number(sample.reward),
        "reward_parts": {
            name: [_number(part.value), float(part.weight), part.error] for name, part in sample.reward_parts.items()
        },
        "error": sample.error,
    }


def _sample_from_json(content: dict[str, Any], reader: _ArrayReader) -> Sample:
    return Sample(
        index=content["index"],
        rows=tuple(_row_from_json(row, reader) for row in content["rows"]),
        finish=FinishState(content["finish"]),
        reward=content["reward"],
        reward_parts={name: RewardPart(*part) for name, part in content["reward_parts"].items()},
        error=content["error"],
    )


def _row_to_json(row: Row, writer: _ArrayWriter) -> list[Any]:
    num_tokens = writer.put("token_ids", row.token_ids)
    writer.put("loss_mask", row.loss_mask)
    writer.put("rollout_logprobs", row.rollout_logprobs)
    writer.put("policy_versions", row.policy_versions)
    if row.advantages is not None:
        writer.put("advantages", row.advantages)
    return [num_tokens, row.advantages is not None]


def _row_from_json(content: list[Any], reader: _ArrayReader) -> Row:
    num_tokens, has_advantages = content
    return Row(
        token_ids=reader.take("token_ids", num_tokens),
        loss_mask=reader.take("loss_mask", num_tokens),
        rollout_logprobs=reader.take("rollout_logprobs", num_tokens),
        policy_versions=reader.take("policy_versions", num_tokens),
        advantages=reader.take("advantages", num_tokens) if has_advantages else None,
    )


def _number(value: float | None) -> float | None:
    return None if value is None else float(value)
