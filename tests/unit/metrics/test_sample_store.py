"""The store of samples gives back what it was given, small, whole, and always as the same bytes."""

import gzip
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strop.errors import DataError
from strop.metrics.samples import (
    GroupRecord,
    PartRecord,
    RowRecord,
    SampleQuery,
    SampleRecord,
    SampleStore,
    find_samples,
)
from strop.metrics.samples.codec import decode_group, encode_group

WORDS = ("the", "sum", "of", "both", "numbers", "is", "therefore", "we", "add", "them", "step", "find")


def make_row(prompt_ids: list[int], num_sampled: int, seed: int = 0) -> RowRecord:
    random = np.random.default_rng(seed)
    num_prompt = len(prompt_ids)
    mask = np.arange(num_prompt + num_sampled) >= num_prompt
    logprobs = np.where(mask, -random.exponential(0.7, size=len(mask)), 0).astype(np.float32)
    return RowRecord(
        token_ids=np.concatenate([prompt_ids, random.zipf(1.3, num_sampled) % 49152]).astype(np.int64),
        loss_mask=mask,
        logprobs=logprobs,
        versions=np.where(mask, 3, -1).astype(np.int64),
        advantages=np.where(mask, np.float32(-0.57735026), 0).astype(np.float32),
    )


def make_group(prompt_id: str = "row-1", num_samples: int = 3, num_sampled: int = 5) -> GroupRecord:
    random = np.random.default_rng(list(prompt_id.encode()))
    prompt_ids = [1, 520, 77, 9]
    samples = tuple(
        SampleRecord(
            index=index,
            finish="length" if index == 0 else "stopped",
            reward=None if index == 2 else index / 2,
            text=" ".join(random.choice(WORDS, num_sampled)),
            rows=(make_row(prompt_ids, num_sampled, seed=int(random.integers(1000))),),
            parts={"exact": PartRecord(None if index == 2 else index / 2, 1.0, "KeyError" if index == 2 else None)},
        )
        for index in range(num_samples)
    )
    return GroupRecord(prompt_id, 2, "What is 3 + 4?", np.array(prompt_ids), samples, task="sums", trained=False)


def assert_rows_equal(stored: RowRecord, given_row: RowRecord) -> None:
    for name in ("token_ids", "loss_mask", "versions"):
        np.testing.assert_array_equal(getattr(stored, name), getattr(given_row, name))
        assert getattr(stored, name).dtype == getattr(given_row, name).dtype
    np.testing.assert_allclose(stored.logprobs, given_row.logprobs, rtol=0, atol=5.1e-5)
    if given_row.advantages is None:
        assert stored.advantages is None
    else:
        assert stored.advantages is not None
        np.testing.assert_allclose(stored.advantages, given_row.advantages, rtol=0, atol=5.1e-7)


def test_a_group_comes_back_with_everything_that_was_kept(tmp_path: Path) -> None:
    group = make_group()
    store = SampleStore(tmp_path / "samples")
    store.write(12, [group, make_group("row-2")])
    first, second = store.read(12)
    assert second.prompt_id == "row-2"
    assert (first.prompt_id, first.visit, first.prompt_text, first.task, first.trained) == (
        "row-1", 2, "What is 3 + 4?", "sums", False,
    )  # fmt: skip
    np.testing.assert_array_equal(first.prompt_ids, group.prompt_ids)
    for stored, original in zip(first.samples, group.samples, strict=True):
        assert replace(stored, rows=()) == replace(original, rows=())
        assert_rows_equal(stored.rows[0], original.rows[0])


@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans(), st.integers(0, 2)), min_size=1, max_size=12),
    st.lists(st.integers(0, 9), max_size=6),
)
def test_any_row_survives_whatever_it_shares_with_the_prompt(
    tokens: list[tuple[int, bool, int]], prompt: list[int]
) -> None:
    ids, mask, versions = (np.array(column) for column in zip(*tokens, strict=True))
    row = RowRecord(
        token_ids=ids.astype(np.int64),
        loss_mask=mask.astype(np.bool_),
        logprobs=np.where(mask, -0.125 * ids, 0).astype(np.float32),
        versions=np.where(mask, versions, -1).astype(np.int64),
    )
    sample = SampleRecord(0, "stopped", 1.0, "", (row, make_row(prompt or [0], 2)))
    group = GroupRecord("p", 0, "", np.array(prompt, dtype=np.int64), (sample,))
    decoded = decode_group(json.loads(json.dumps(encode_group(group))))
    for stored, original in zip(decoded.samples[0].rows, sample.rows, strict=True):
        assert_rows_equal(stored, original)


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    one = SampleStore(tmp_path / "one").write(1, [make_group()])
    other = SampleStore(tmp_path / "other").write(1, [make_group()])
    assert one.read_bytes() == other.read_bytes()
    assert one.read_bytes()[4:8] == bytes(4), "the time of writing must not be in the file"


def test_a_sampled_token_takes_less_than_8_bytes_with_its_logprob_and_text(tmp_path: Path) -> None:
    groups = [make_group(f"row-{number}", num_samples=8, num_sampled=128) for number in range(4)]
    path = SampleStore(tmp_path).write(1, groups)
    num_tokens = sum(sample.num_sampled_tokens for group in groups for sample in group.samples)
    bytes_a_token = path.stat().st_size / num_tokens
    print(f"{bytes_a_token:.2f} bytes a sampled token")
    assert bytes_a_token < 8


def test_the_file_is_readable_without_strop(tmp_path: Path) -> None:
    path = SampleStore(tmp_path).write(1, [make_group()])
    text = subprocess.run(["gzip", "-dc", str(path)], capture_output=True, text=True, check=True).stdout
    assert json.loads(text.splitlines()[0])["prompt"] == "What is 3 + 4?"


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    path = store.write(1, [make_group()])
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"step_000001\.jsonl\.gz"):
        list(store.read(1))
    path.write_bytes(gzip.compress(b"[]\n"))
    with pytest.raises(DataError, match=r"step_000001\.jsonl\.gz"):
        list(store.read(1))


def test_an_unknown_step_names_the_steps_there_are(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    with pytest.raises(DataError, match="save_samples"):
        list(store.read(1))
    for step in (3, 5):
        store.write(step, [])
    with pytest.raises(DataError, match="step 4, got steps 3 to 5"):
        list(store.read(4))


def test_a_resumed_run_loses_the_steps_after_the_one_it_goes_on_from(tmp_path: Path) -> None:
    store = SampleStore(tmp_path)
    for step in (1, 2, 3):
        store.write(step, [make_group()])
    store.cut_after(2)
    assert store.steps() == [1, 2]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        (SampleQuery(), [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)]),
        (SampleQuery(step=2), [(2, 0), (2, 1), (2, 2)]),
        (SampleQuery(prompt_id="row-9"), [(2, 0), (2, 1), (2, 2)]),
        (SampleQuery(minimum_reward=0.5), [(1, 1), (2, 1)]),
        (SampleQuery(maximum_reward=0.4), [(1, 0), (2, 0)]),
        (SampleQuery(invalid=True), [(1, 2), (2, 2)]),
        (SampleQuery(finish="stopped", maximum_reward=1), [(1, 1), (2, 1)]),
        (SampleQuery(finish="stopped", limit=3), [(1, 1), (1, 2), (2, 1)]),
    ],
)
def test_samples_are_found_by_step_prompt_reward_and_finish(
    tmp_path: Path, query: SampleQuery, found: list[tuple[int, int]]
) -> None:
    store = SampleStore(tmp_path)
    store.write(1, [make_group()])
    store.write(2, [make_group("row-9")])
    assert [(hit.step, hit.sample.index) for hit in find_samples(store, query)] == found
