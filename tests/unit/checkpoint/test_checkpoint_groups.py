"""Collected groups come back from disk bit for bit."""

import dataclasses
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strop.checkpoint import GroupsPart, load_groups, save_groups
from strop.checkpoint.encoding import decode, encode
from strop.records import FinishState, Group, Prompt, RewardPart, Row, Sample

RNG = np.random.default_rng(0)


def a_row(num_tokens: int, *, weighed: bool) -> Row:
    mask = RNG.random(num_tokens) < 0.5
    mask[:1] = False
    return Row(
        token_ids=RNG.integers(0, 50_000, num_tokens),
        loss_mask=mask,
        rollout_logprobs=RNG.standard_normal(num_tokens).astype(np.float32),
        policy_versions=np.where(mask, 3, -1),
        advantages=RNG.standard_normal(num_tokens).astype(np.float32) if weighed else None,
    )


def a_group(prompt_id: str, *, weighed: bool) -> Group:
    prompt = Prompt(
        prompt_id=prompt_id,
        visit=2,
        token_ids=RNG.integers(0, 50_000, 5),
        messages=({"role": "user", "content": "2 + 2 = ? é\u2028"},),
        task="sums",
        columns={"answer": 4, "terms": (2, 2), "image": b"\x00\xff", "table": np.arange(3, dtype=np.int16)},
        source="here",
    )
    samples = (
        Sample(0, (a_row(7, weighed=weighed), a_row(3, weighed=weighed)), FinishState.STOPPED, 0.1 + 0.2),
        Sample(1, (a_row(1, weighed=weighed),), FinishState.LENGTH, None, {"f": RewardPart(None, 0.5, "boom")}),
        Sample(2, (), FinishState.FAILED, -0.0, {"f": RewardPart(1 / 3)}, error="out of memory"),
    )
    return Group(prompt, samples)


def exact(value: Any) -> Any:
    """A form in which equality means equality of every bit and type."""
    if dataclasses.is_dataclass(value):
        return (type(value).__name__, [exact(getattr(value, field.name)) for field in dataclasses.fields(value)])
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return (value.dtype.str, value.shape, exact(value.tolist()))
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return [(exact(key), exact(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [exact(item) for item in value])
    return (type(value).__name__, repr(value))


def test_groups_of_every_kind_come_back_bit_equal(tmp_path: Path) -> None:
    groups = [a_group("a", weighed=True), a_group("b", weighed=False)]
    save_groups(tmp_path, groups)
    assert exact(load_groups(tmp_path)) == exact(groups)


def test_nan_payloads_and_negative_zero_survive(tmp_path: Path) -> None:
    odd = np.array([0x7FC00123, 0x80000000, 0x7F800000], dtype=np.uint32).view(np.float32)
    row = Row(np.arange(3), np.array([False, True, True]), odd, np.array([-1, 0, 0]))
    group = dataclasses.replace(a_group("a", weighed=False), samples=(Sample(0, (row,), FinishState.STOPPED),))
    save_groups(tmp_path, [group])
    assert load_groups(tmp_path)[0].samples[0].rows[0].rollout_logprobs.tobytes() == odd.tobytes()


def test_no_groups_come_back_as_no_groups(tmp_path: Path) -> None:
    save_groups(tmp_path, [])
    assert load_groups(tmp_path) == []


def test_loaded_arrays_may_be_written_to(tmp_path: Path) -> None:
    save_groups(tmp_path, [a_group("a", weighed=True)])
    load_groups(tmp_path)[0].samples[0].rows[0].advantages[0] = 1.0


def test_a_groups_part_hands_the_groups_back_to_their_owner(tmp_path: Path) -> None:
    groups, received = [a_group("a", weighed=True)], []
    part = GroupsPart(lambda: groups, received.extend)
    part.save(tmp_path)
    part.load(tmp_path)
    assert exact(received) == exact(groups)


def test_an_array_of_another_type_is_refused_by_the_field_s_name(tmp_path: Path) -> None:
    row = Row(np.arange(2), np.array([False, True]), np.zeros(2, np.float64), np.zeros(2, np.int64))  # type: ignore[arg-type]
    group = dataclasses.replace(a_group("a", weighed=False), samples=(Sample(0, (row,), FinishState.STOPPED),))
    with pytest.raises(TypeError, match="rollout_logprobs must be a flat float32 array, got float64"):
        save_groups(tmp_path, [group])


@pytest.mark.parametrize(
    "value",
    [
        {1: "int key", "two": (3, [None, True])},
        {"__strop__": "a column that looks like a tag"},
        np.float32(0.1),
        np.array(["é", "b"]),
        np.array([{"a": 1}, None], dtype=object),
        np.zeros((2, 0, 3)),
        dt.datetime(2026, 11, 30, 12, 5, tzinfo=dt.UTC),
        dt.date(2026, 11, 30),
        Decimal("0.10"),
        float("inf"),
        2**80,
    ],
    ids=repr,
)
def test_a_column_comes_back_as_it_was(value: Any) -> None:
    assert exact(decode(json.loads(json.dumps(encode(value, "column"))))) == exact(value)


def test_a_column_without_an_exact_form_is_named() -> None:
    with pytest.raises(TypeError, match=r"columns.image must be made of .* got object: convert it"):
        encode({"image": object()}, "columns")


def test_every_field_of_the_records_is_kept() -> None:
    """A new field must be added to the format, not forgotten; `Row.fields` is worked out anew."""
    names = {cls.__name__: {field.name for field in dataclasses.fields(cls)} for cls in (Group, Prompt, Sample, Row)}
    assert names == {
        "Group": {"prompt", "samples", "baseline"},
        "Prompt": {"prompt_id", "visit", "token_ids", "messages", "task", "columns", "source"},
        "Sample": {"index", "rows", "finish", "reward", "reward_parts", "error"},
        "Row": {"token_ids", "loss_mask", "rollout_logprobs", "policy_versions", "advantages", "fields"},
    }
