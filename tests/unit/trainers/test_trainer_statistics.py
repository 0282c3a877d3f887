"""Metrics over groups and evaluations, with numbers worked out by hand."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from strop.metrics import values
from strop.metrics.score import standard_error
from strop.records import FinishState, Group, Prompt, RewardPart, Row, Sample, SamplingParams
from strop.trainers.evaluate import EvaluationSettings, with_greedy
from strop.trainers.scores import Scoring, evaluation_metrics, evaluation_scores, pass_at_k
from strop.trainers.statistics import first_error, group_metrics, kept_metrics


def sample(index: int, reward: float | None, length: int = 2, finish: FinishState = FinishState.STOPPED) -> Sample:
    mask = np.arange(1 + length) >= 1
    row = Row(np.arange(1 + length), mask, np.zeros(1 + length, np.float32), np.zeros(1 + length, np.int64))
    return Sample(index, (row,), finish, reward)


def group(*samples: Sample, source: str = "s", prompt_id: str = "p") -> Group:
    return Group(Prompt(prompt_id, 0, np.array([0]), (), "task", source=source), samples)


def test_shares_count_all_samples_and_reward_means_only_valid_ones() -> None:
    groups = [
        group(sample(0, 1.0, 4), sample(1, 0.0, 8, FinishState.LENGTH)),
        group(sample(0, None, 1, FinishState.FAILED), sample(1, 1.0, 3)),
    ]
    found = values(group_metrics(groups, num_kept=1, num_rounds=2, solved_at=1.0))
    assert found["reward/mean"] == pytest.approx(2 / 3)
    assert found["reward/solved_share"] == pytest.approx(2 / 3)
    assert found["reward/std"] == pytest.approx(math.sqrt(2) / 3)
    assert found["samples/truncated_share"] == 0.25
    assert found["samples/error_share"] == 0.25
    assert found["samples/failed_share"] == 0.25
    assert found["groups/zero_signal_share"] == 0.5
    assert found["length/mean"] == 4
    assert found["length/max"] == 8
    assert found["tokens/sampled"] == 16
    assert (found["groups/generated"], found["groups/kept"], found["groups/sampling_rounds"]) == (2, 1, 2)


def test_what_is_kept_is_measured_apart_where_it_is_not_all() -> None:
    first, second = group(sample(0, 1.0, 4), sample(1, 0.0, 8)), group(sample(0, 0.0, 2), sample(1, 0.0, 2))
    assert kept_metrics([first, second], [first, second], 1.0) == {}
    found = values(kept_metrics([first, second], [first], 1.0))
    assert found == {
        "kept/reward/mean": 0.5,
        "kept/reward/solved_share": 0.5,
        "kept/reward/std": 0.5,
        "kept/samples": 2,
        "kept/length/mean": 6,
        "kept/samples/truncated_share": 0,
    }


def test_greedy_baselines_are_measured_apart_from_what_is_trained_on() -> None:
    groups = [replace(group(sample(0, 1.0)), baseline=sample(0, reward)) for reward in (0.5, None)]
    found = values(group_metrics(groups, num_kept=2, num_rounds=1, solved_at=1.0))
    assert (found["baseline/reward"], found["baseline/error_share"], found["reward/mean"]) == (0.5, 0.5, 1.0)


def test_no_groups_measure_nothing_rather_than_zero() -> None:
    found = values(group_metrics([], num_kept=0, num_rounds=1, solved_at=1.0))
    assert found["reward/mean"] is None
    assert found["samples/truncated_share"] is None


def test_sources_are_reported_one_by_one_where_there_are_several() -> None:
    cut = sample(1, 0.0, 6, FinishState.LENGTH)
    groups = [group(sample(0, 1.0), cut, source="a"), group(sample(0, 0.0), source="b"), group(cut, source="b")]
    found = values(group_metrics(groups, num_kept=3, num_rounds=1, solved_at=1.0))
    assert found["reward_by_source/a/mean"] == found["reward_by_source/a/solved_share"] == 0.5
    assert found["reward_by_source/b/mean"] == 0.0
    assert found["samples_by_source/a/truncated_share"] == found["samples_by_source/b/truncated_share"] == 0.5
    assert found["length_by_source/a/mean"] == 4
    assert (found["groups_by_source/a/generated"], found["groups_by_source/b/generated"]) == (1, 2)
    assert (found["groups_by_source/a/zero_signal_share"], found["groups_by_source/b/zero_signal_share"]) == (0, 1)
    assert not any("by_source" in name for name in group_metrics(groups[:1], num_kept=1, num_rounds=1, solved_at=1.0))


def test_a_sample_is_solved_by_what_it_was_judged_and_not_by_its_length() -> None:
    long = replace(sample(0, 0.7), reward_parts={"mine": RewardPart(1.0), "truncation": RewardPart(-0.3)})
    found = values(group_metrics([group(long)], num_kept=1, num_rounds=1, solved_at=1.0))
    assert found["reward/mean"] == pytest.approx(0.7)
    assert found["reward/solved_share"] == 1.0
    assert found["reward/part/truncation"] == pytest.approx(-0.3)


def test_lengths_count_samples_that_were_cut_whatever_becomes_of_them() -> None:
    cut = sample(1, None, 8, FinishState.LENGTH)
    found = values(group_metrics([group(sample(0, 1.0, 2), cut)], num_kept=0, num_rounds=1, solved_at=1.0))
    assert (found["length/mean"], found["length/max"], found["tokens/sampled"]) == (5, 8, 10)
    assert found["samples/truncated_share"] == 0.5


def test_the_first_error_is_found_in_samples_and_in_reward_parts() -> None:
    assert first_error([group(sample(0, 1.0))]) is None
    broken = Sample(0, (), FinishState.STOPPED, None, {"mine": RewardPart(None, error="row p: ValueError")})
    assert first_error([group(sample(0, 1.0), broken)]) == "row p: ValueError"


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (6, 0, 2), (4, 4, 4), (7, 1, 7)])
def test_pass_at_k_equals_the_share_of_all_subsets_with_a_solution(n: int, c: int, k: int) -> None:
    flags = [True] * c + [False] * (n - c)
    subsets = list(combinations(flags, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(any(s) for s in subsets) / len(subsets))


def test_pass_at_k_refuses_k_over_the_samples() -> None:
    with pytest.raises(ValueError, match="between 1 and the number of samples"):
        pass_at_k(2, 1, 3)


def test_the_standard_error_is_over_prompts_not_samples() -> None:
    groups = [group(sample(0, 1.0), sample(1, 1.0)), group(sample(0, 0.0), sample(1, None))]
    found = values(evaluation_metrics(groups, Scoring("sampled", 1.0, (1, 2))))
    assert found["eval/sampled/accuracy"] == 0.5
    assert found["eval/sampled/accuracy_standard_error"] == pytest.approx(standard_error([1.0, 0.0])) == 0.5
    assert found["eval/sampled/pass_at_2"] == 0.5
    assert found["eval/sampled/error_share"] == 0.25


def test_the_scores_that_a_person_sees_hold_pass_at_k_with_its_standard_error() -> None:
    groups = [group(sample(0, 1.0), sample(1, 0.0)), group(sample(0, 0.0), sample(1, None))]
    scores = evaluation_scores(groups, Scoring("sampled", 1.0, (1, 2)))
    assert list(scores) == ["sampled", "sampled, pass@1", "sampled, pass@2"]
    assert [(score.mean, score.num_prompts) for score in scores.values()] == [(0.25, 2), (0.25, 2), (0.5, 2)]
    assert scores["sampled, pass@2"].standard_error == pytest.approx(standard_error([1.0, 0.0]))


def test_an_evaluation_of_several_data_sets_reports_each_beside_all() -> None:
    solved, failed = sample(0, 1.0, 2), sample(0, 0.0, 6, FinishState.LENGTH)
    groups = [
        group(solved, source="a", prompt_id="a:0"),
        group(failed, source="a", prompt_id="a:1"),
        group(failed, source="b", prompt_id="b:0"),
    ]
    found = values(evaluation_metrics(groups, Scoring("sampled", 1.0, (1,))))
    assert found["eval/sampled/accuracy"] == pytest.approx(1 / 3)
    assert found["eval/sampled/by_source/a/accuracy"] == found["eval/sampled/by_source/a/pass_at_1"] == 0.5
    assert found["eval/sampled/by_source/a/accuracy_standard_error"] == 0.5
    assert (found["eval/sampled/by_source/b/accuracy"], found["eval/sampled/by_source/b/truncated_share"]) == (0, 1)
    assert found["eval/sampled/by_source/a/length"] == 4
    scores = evaluation_scores(groups, Scoring("sampled", 1.0))
    assert {name: score.num_prompts for name, score in scores.items()} == {
        "sampled": 3,
        "sampled on a": 2,
        "sampled on b": 1,
    }
    assert scores["sampled"].per_prompt == {"a:0": 1.0, "a:1": 0.0, "b:0": 0.0}
    alone = evaluation_metrics(groups[:2], Scoring("sampled", 1.0))
    assert not any("by_source" in name for name in alone)


def test_a_reward_part_without_any_value_is_no_score_of_zero() -> None:
    lost = replace(sample(0, 1.0), reward_parts={"shown": RewardPart(None, weight=0.0, error="it broke")})
    assert list(evaluation_scores([group(lost)], Scoring("sampled", 1.0))) == ["sampled"]


def test_greedy_evaluation_takes_one_sample_at_temperature_zero() -> None:
    sampling = SamplingParams(8, temperature=0.7, top_p=0.9)
    greedy = with_greedy(EvaluationSettings(4, sampling, 0, Scoring("sampled", 0.5, (2,))))
    assert (greedy.samples, greedy.sampling.temperature, greedy.sampling.top_p) == (1, 0.0, 1.0)
    assert greedy.scoring == Scoring("greedy", 0.5)
