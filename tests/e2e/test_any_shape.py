"""Numbers of rows, prompts, samples and updates need not divide each other, and nothing is left out in silence."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from strop.api import train
from strop.metrics.samples import SampleStore
from strop.trainers.launch import RunResult
from support.runs import assert_same_run, stored_metrics, tiny_run, write_rows
from support.tiny import tiny_folder


def trained(folder: Path, **settings: Any) -> tuple[RunResult, list[Counter[str]]]:
    """A run, and how many samples of each prompt it trained on, step by step."""
    result = train(tiny_run(folder, **settings))
    store = SampleStore(result.folder / "samples")
    steps = []
    for step in store.steps():
        groups = [group for group in store.read(step) if group.trained]
        steps.append(Counter({group.prompt_id: len(group.samples) for group in groups}))
    return result, steps


@pytest.mark.parametrize(
    ("rows", "prompts", "samples", "updates", "sizes"),
    [(7, 4, 3, 1, [4, 3]), (3, 8, 2, 1, [3]), (5, 5, 3, 2, [5]), (5, 2, 3, 2, [2, 2, 1]), (1, 4, 5, 3, [1])],
)
def test_one_pass_trains_every_row_once(
    tmp_path: Path, rows: int, prompts: int, samples: int, updates: int, sizes: list[int]
) -> None:
    source = {"type": "jsonl", "path": write_rows(tmp_path / f"{rows}.jsonl", rows)}
    result, steps = trained(
        tmp_path,
        run={"steps": 50},
        data={"source": source, "epochs": 1},
        rollout={"prompts_per_step": prompts, "group_size": samples},
        training={"updates_per_batch": updates, "micro_batch_tokens": 50},
    )
    assert result.steps == len(sizes)
    assert [len(step) for step in steps] == sizes
    assert sum(steps, Counter()) == {f"{rows}.jsonl:{index}": samples for index in range(rows)}
    lines = [line for line in stored_metrics(result.folder) if line["step"]]
    assert [line["groups/kept"] for line in lines] == sizes
    assert [line["update/applied"] for line in lines] == [min(updates, size) for size in sizes]


def test_a_batch_larger_than_the_data_goes_on_into_the_next_pass(tmp_path: Path) -> None:
    source = {"type": "jsonl", "path": write_rows(tmp_path / "3.jsonl", 3)}
    result, _ = trained(tmp_path, run={"steps": 1}, data={"source": source}, rollout={"prompts_per_step": 8})
    groups = list(SampleStore(result.folder / "samples").read(1))
    assert sorted(Counter(group.prompt_id for group in groups).values()) == [2, 3, 3]
    assert len({(group.prompt_id, group.visit) for group in groups}) == 8
    # A second visit draws anew.
    first, second = ([group for group in groups if group.visit == visit] for visit in (0, 1))
    same = [(a, b) for a in first for b in second if a.prompt_id == b.prompt_id]
    assert same
    assert all(a.samples[0].rows[0].token_ids.tolist() != b.samples[0].rows[0].token_ids.tolist() for a, b in same)


# ------------------------------------------------------------------------------------------ mixtures


def mixture(folder: Path, **settings: Any) -> dict[str, Any]:
    """Two data sets, one of them twice as heavy; the second part asks another column."""
    small, large = folder / "small.jsonl", write_rows(folder / "large.jsonl", 6)
    rows = [{"problem": f"Say {index}", "gold": str(index)} for index in range(3)]
    small.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    parts = [
        {"source": {"type": "jsonl", "path": large}, "weight": 1.0},
        {"source": {"type": "jsonl", "path": small}, "weight": 2.0, "prompt_column": "problem", "name": "small"},
    ]
    return {"source": {"type": "mixture", "parts": parts}, **settings}


def test_a_mixture_trains_at_its_ratio_and_reports_by_source(tmp_path: Path) -> None:
    result, steps = trained(tmp_path, data=mixture(tmp_path), rollout={"prompts_per_step": 3})
    for step in steps:
        assert Counter(name.partition(":")[0] for name in step) == {"small": 2, "large.jsonl": 1}
    line = stored_metrics(result.folder)[-1]
    for source, groups in (("small", 2), ("large.jsonl", 1)):
        assert line[f"groups_by_source/{source}/generated"] == groups
        assert 0 <= line[f"reward_by_source/{source}/mean"] <= 1
        assert 0 <= line[f"reward_by_source/{source}/solved_share"] <= 1
        assert 0 <= line[f"samples_by_source/{source}/truncated_share"] <= 1
    means = [2 * line["reward_by_source/small/mean"], line["reward_by_source/large.jsonl/mean"]]
    assert sum(means) / 3 == pytest.approx(line["reward/mean"])


@pytest.mark.parametrize("ramp", [{}, {"ramp_prompts": 7}])
def test_a_mixture_resumed_half_way_is_as_if_it_had_never_stopped(tmp_path: Path, ramp: dict[str, int]) -> None:
    data = mixture(tmp_path)
    if ramp:
        data["source"] |= ramp
        data["source"]["parts"][0]["final_weight"] = 5.0
    whole = tiny_run(tmp_path, data=data, rollout={"prompts_per_step": 5})
    parts = [
        whole.model_copy(update={"run": whole.run.model_copy(update={"name": "parts", "steps": steps})})
        for steps in (2, whole.run.steps)
    ]
    train(parts[0])
    assert_same_run(train(parts[1], resume=True).folder, train(whole).folder)


# ------------------------------------------------------------------------------------------ pad and eos


def test_a_pad_token_that_is_the_end_of_turn_is_trained_where_it_was_sampled(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    stops = list(range(40, 200))
    settings: dict[str, Any] = {"model": {"path": str(folder)}, "rollout": {"stop_token_ids": stops}}
    apart = tiny_run(tmp_path, **settings, run={"steps": 2})
    first = train(apart).folder
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["pad_token"] = config["eos_token"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    same = train(apart.model_copy(update={"run": apart.run.model_copy(update={"name": "same"})})).folder
    assert_same_run(same, first)
    samples = [sample for group in SampleStore(first / "samples").read(1) for sample in group.samples]
    stopped = [sample for sample in samples if sample.finish == "stopped"]
    assert stopped
    for sample in stopped:
        [row] = sample.rows
        assert bool(row.loss_mask[-1])
        assert int(row.token_ids[-1]) in stops
        assert np.count_nonzero(row.loss_mask) <= 8
