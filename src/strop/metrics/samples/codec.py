"""Turns a group into a JSON object and back.

The prompt's ids stand once in the group; a row says how many of them it begins with. Log-probs, versions and
advantages stand only where the policy sampled; masks, versions and advantages are runs, `[value, length]`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.metrics.samples.records import GroupRecord, PartRecord, RowRecord, SampleRecord

LOGPROB_DECIMALS, ADVANTAGE_DECIMALS = 4, 6

Json = dict[str, Any]
Runs = list[list[Any]]


def encode_group(group: GroupRecord) -> Json:
    """Returns the JSON-able form of a group."""
    return {
        "prompt_id": group.prompt_id,
        "visit": group.visit,
        "task": group.task,
        "trained": group.trained,
        "prompt": group.prompt_text,
        "prompt_ids": [int(token) for token in group.prompt_ids],
        "samples": [_encode_sample(sample, group.prompt_ids) for sample in group.samples],
    }


def decode_group(encoded: Json) -> GroupRecord:
    """Returns the group that `encode_group` wrote, log-probs and advantages rounded."""
    prompt_ids = np.array(encoded["prompt_ids"], dtype=np.int64)
    return GroupRecord(
        prompt_id=encoded["prompt_id"],
        visit=encoded["visit"],
        prompt_text=encoded["prompt"],
        prompt_ids=prompt_ids,
        samples=tuple(_decode_sample(sample, prompt_ids) for sample in encoded["samples"]),
        task=encoded["task"],
        trained=encoded["trained"],
    )


def _encode_sample(sample: SampleRecord, prompt_ids: NDArray[np.int64]) -> Json:
    return {
        "index": sample.index,
        "finish": sample.finish,
        "reward": sample.reward,
        "parts": {name: [part.value, part.weight, part.error] for name, part in sample.parts.items()},
        "error": sample.error,
        "text": sample.text,
        "rows": [_encode_row(row, prompt_ids) for row in sample.rows],
    }


def _decode_sample(encoded: Json, prompt_ids: NDArray[np.int64]) -> SampleRecord:
    return SampleRecord(
        index=encoded["index"],
        finish=encoded["finish"],
        reward=encoded["reward"],
        text=encoded["text"],
        rows=tuple(_decode_row(row, prompt_ids) for row in encoded["rows"]),
        parts={name: PartRecord(*part) for name, part in encoded["parts"].items()},
        error=encoded["error"],
    )


def _encode_row(row: RowRecord, prompt_ids: NDArray[np.int64]) -> Json:
    shared = _shared_length(row.token_ids, prompt_ids)
    advantages = None if row.advantages is None else row.advantages[row.loss_mask]
    return {
        "shared": shared,
        "ids": row.token_ids[shared:].tolist(),
        "sampled": [[int(value), length] for value, length in _runs(row.loss_mask)],
        "logprobs": [_rounded(value, LOGPROB_DECIMALS) for value in row.logprobs[row.loss_mask].tolist()],
        "versions": _runs(row.versions[row.loss_mask]),
        "advantages": None
        if advantages is None
        else [[_rounded(value, ADVANTAGE_DECIMALS), length] for value, length in _runs(advantages)],
    }


def _decode_row(encoded: Json, prompt_ids: NDArray[np.int64]) -> RowRecord:
    token_ids = np.concatenate([prompt_ids[: encoded["shared"]], np.array(encoded["ids"], dtype=np.int64)])
    mask = _expanded(encoded["sampled"], np.bool_)
    advantages = encoded["advantages"]
    return RowRecord(
        token_ids=token_ids,
        loss_mask=mask,
        logprobs=_scattered(np.array(encoded["logprobs"], dtype=np.float32), mask, np.float32(0)),
        versions=_scattered(_expanded(encoded["versions"], np.int64), mask, np.int64(-1)),
        advantages=None if advantages is None else _scattered(_expanded(advantages, np.float32), mask, np.float32(0)),
    )


def _shared_length(token_ids: NDArray[np.int64], prompt_ids: NDArray[np.int64]) -> int:
    length = min(len(token_ids), len(prompt_ids))
    different = np.flatnonzero(token_ids[:length] != prompt_ids[:length])
    return int(different[0]) if len(different) else length


def _runs(values: NDArray[Any]) -> Runs:
    if len(values) == 0:
        return []
    starts = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
    lengths = np.diff(np.append(starts, len(values)))
    return [[value, length] for value, length in zip(values[starts].tolist(), lengths.tolist(), strict=True)]


def _expanded(runs: Runs, dtype: type[np.generic]) -> NDArray[Any]:
    values = np.array([value for value, _ in runs], dtype=dtype)
    return np.repeat(values, [length for _, length in runs])


def _scattered(values: NDArray[Any], mask: NDArray[np.bool_], elsewhere: np.generic) -> NDArray[Any]:
    full = np.full(len(mask), elsewhere)
    full[mask] = values
    return full


def _rounded(value: float, decimals: int) -> float:
    """Rounds, and writes both zeros as 0."""
    return round(value, decimals) or 0.0
