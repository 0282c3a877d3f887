"""How a stored sample is written for a person and for a program."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from strop.metrics.samples import FoundSample, GroupRecord, RowRecord, SampleRecord

Pieces = Callable[[int], str]
"""The text of a token id."""


def describe_samples(found: Sequence[FoundSample], pieces: Pieces | None) -> Iterator[str]:
    """Yields the lines of a listing: each prompt once, its samples below; with `pieces` every token too."""
    shown: tuple[int, str, int] | None = None
    for item in found:
        group = item.group
        if (item.step, group.prompt_id, group.visit) != shown:
            shown = (item.step, group.prompt_id, group.visit)
            yield from _describe_prompt(item.step, group)
        yield from _describe_sample(item.sample)
        if pieces is not None:
            for row in item.sample.rows:
                yield from _describe_tokens(row, pieces)


def _describe_prompt(step: int, group: GroupRecord) -> Iterator[str]:
    left_out = "" if group.trained else ", left out of training"
    yield f"\nstep {step}, prompt {group.prompt_id}, visit {group.visit}, task {group.task or 'none'}{left_out}"
    yield from (f"  | {line}" for line in group.prompt_text.splitlines())


def _describe_sample(sample: SampleRecord) -> Iterator[str]:
    parts = "".join(f", {name} {_number(part.value)}" for name, part in sample.parts.items() if len(sample.parts) > 1)
    yield (
        f"  [{sample.index}] reward {_number(sample.reward)}{parts}, {sample.finish}, "
        f"{sample.num_sampled_tokens} tokens"
    )
    yield from (f"      {line}" for line in sample.text.splitlines())
    errors = [sample.error, *(part.error for part in sample.parts.values())]
    yield from (f"      ! {line}" for error in errors if error for line in error.splitlines())


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"


def _describe_tokens(row: RowRecord, pieces: Pieces) -> Iterator[str]:
    yield "        token   log-prob  version  text"
    for token in _tokens(row, pieces):
        yield f"      {token['id']:>7}  {token['logprob']:>9.4f}  {token['version']:>7}  {token['text']!r}"


def _tokens(row: RowRecord, pieces: Pieces) -> list[dict[str, Any]]:
    """The sampled tokens of a row, in order."""
    return [
        {
            "id": int(row.token_ids[place]),
            "text": pieces(int(row.token_ids[place])),
            "logprob": round(float(row.logprobs[place]), 4),
            "version": int(row.versions[place]),
            "advantage": None if row.advantages is None else round(float(row.advantages[place]), 6),
        }
        for place in np.flatnonzero(row.loss_mask)
    ]


def as_object(found: FoundSample, pieces: Pieces | None) -> dict[str, Any]:
    """Returns a sample as JSON-able values; with `pieces` its sampled tokens too, one list a row."""
    group, sample = found.group, found.sample
    described: dict[str, Any] = {
        "step": found.step,
        "prompt_id": group.prompt_id,
        "visit": group.visit,
        "task": group.task,
        "trained": group.trained,
        "prompt": group.prompt_text,
        "index": sample.index,
        "finish": sample.finish,
        "reward": sample.reward,
        "parts": {name: part.value for name, part in sample.parts.items()},
        "num_tokens": sample.num_sampled_tokens,
        "text": sample.text,
        "error": sample.error,
    }
    if pieces is not None:
        described["tokens"] = [_tokens(row, pieces) for row in sample.rows]
    return described
