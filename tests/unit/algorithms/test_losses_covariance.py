"""Which tokens Clip-Cov and KL-Cov restrain: over the whole mini-batch, whatever the cut into micro-batches."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from strop.algorithms.losses.covariance import choose_tokens
from strop.algorithms.policy_gradient import PolicyGradient
from strop.config.algorithm import CorrectionConfig
from strop.config.bundles import BUNDLES, ResolvedAlgorithm
from strop.records import Group, MicroBatchPlan, PackedBatch, Sample
from strop.records.packing import SampleKey, pack, with_target_fields
from support.tiny import tiny_groups, tiny_row

CLIP_COV = replace(
    BUNDLES["clip_cov"], clip_low=0.2, clip_high=0.2, covariance_share=0.1, covariance_low=0.1, covariance_high=2.0
)
KL_COV = replace(BUNDLES["kl_cov"], covariance_share=0.1)
CUTS: tuple[Sequence[Sequence[int]], ...] = (
    [[0, 1, 2, 3, 4, 5, 6, 7]],
    [[0, 1, 2, 3], [4, 5, 6, 7]],
    [[5], [7, 0], [3, 2, 6], [4, 1]],
    [[7], [6], [5], [4], [3], [2], [1], [0]],
)
both = pytest.mark.parametrize("settings", [CLIP_COV, KL_COV], ids=["clip_cov", "kl_cov"])


def groups_of(seed: int = 0, sampled_tokens: tuple[int, int] = (1, 40)) -> list[Group]:
    """Two groups of four; the first sample of each has three rows, two of them alike."""
    groups = tiny_groups(2, 4, seed=seed, sampled_tokens=sampled_tokens)
    rng = np.random.default_rng(seed)
    return [group.with_samples([_of_three_rows(group.samples[0], rng), *group.samples[1:]]) for group in groups]


def _of_three_rows(sample: Sample, rng: np.random.Generator) -> Sample:
    other = tiny_row(rng, 5, 9)
    return replace(sample, rows=(*sample.rows, other, other)).with_token_advantage(float(rng.normal()))


def plan_of(
    groups: list[Group], cut: Sequence[Sequence[int]], masked: frozenset[SampleKey] = frozenset()
) -> MicroBatchPlan:
    keys = [(g, s) for g, group in enumerate(groups) for s in range(len(group.samples))]
    return MicroBatchPlan(tuple(_with_scores(pack(groups, [keys[i] for i in part]), masked) for part in cut))


def _with_scores(batch: PackedBatch, masked: frozenset[SampleKey]) -> PackedBatch:
    """Log-probs that depend on the token alone, and the weights."""
    current = -((batch.target_ids_N.double() * 0.37).sin().abs() * 3 + 0.1).float()
    drift = 0.3 * (batch.target_ids_N.double() * 1.7).cos().float()
    weights = torch.tensor([0.0 if key in masked else 0.5 for key in batch.sample_keys])[batch.sample_ids_N]
    return batch.with_fields(current_logprobs=current, old_logprobs=current - drift, weights=weights)


def chosen_of(plan: MicroBatchPlan, settings: ResolvedAlgorithm) -> list[torch.Tensor]:
    return [batch.fields_N["chosen"] for batch in choose_tokens(plan, settings).micro_batches]


def chosen_by_row(groups: list[Group], plan: MicroBatchPlan, settings: ResolvedAlgorithm) -> list[list[list[float]]]:
    """What is chosen in each row of each sample, rows of one sample that are alike in no order."""
    placed = with_target_fields(groups, plan.micro_batches, chosen_of(plan, settings), "chosen")
    return [_rows_in_any_order(sample) for group in placed for sample in group.samples]


def _rows_in_any_order(sample: Sample) -> list[list[float]]:
    return sorted(row.fields["chosen"].tolist() for row in sample.rows)


def whole(plan: MicroBatchPlan, name: str) -> list[float]:
    return [value for batch in plan.micro_batches for value in batch.fields_N[name].double().tolist()]


def covariances(advantages: list[float], logprobs: list[float]) -> list[float]:
    mean_a, mean_p = math.fsum(advantages) / len(advantages), math.fsum(logprobs) / len(logprobs)
    return [(a - mean_a) * (p - mean_p) for a, p in zip(advantages, logprobs, strict=True)]


@both
@pytest.mark.parametrize("seed", range(5))
def test_any_cut_chooses_the_same_tokens(settings: ResolvedAlgorithm, seed: int) -> None:
    groups = groups_of(seed)
    found = [chosen_by_row(groups, plan_of(groups, cut), settings) for cut in CUTS]
    assert any(value for sample in found[0] for row in sample for value in row)
    for other in found[1:]:
        assert other == found[0]


@pytest.mark.parametrize("seed", range(5))
def test_kl_cov_chooses_the_tokens_of_largest_covariance(seed: int) -> None:
    plan = plan_of(groups_of(seed), CUTS[2])
    values = covariances(whole(plan, "advantages"), whole(plan, "current_logprobs"))
    chosen = [bool(value) for part in chosen_of(plan, KL_COV) for value in part]
    count = int(0.1 * len(values))
    assert sum(chosen) == count
    assert sorted(v for v, is_chosen in zip(values, chosen, strict=True) if is_chosen) == pytest.approx(
        sorted(values)[-count:]
    )


@pytest.mark.parametrize("seed", range(5))
def test_clip_cov_draws_between_its_bounds_among_tokens_that_the_clip_does_not_hold(seed: int) -> None:
    settings = replace(CLIP_COV, covariance_share=1.0)
    plan = plan_of(groups_of(seed), CUTS[1])
    advantages, current, old = (whole(plan, name) for name in ("advantages", "current_logprobs", "old_logprobs"))
    expected = []
    for a, new, base, cov in zip(advantages, current, old, covariances(advantages, current), strict=True):
        ratio = math.exp(new - base)
        is_held = (a > 0 and ratio > 1.2) or (a < 0 and ratio < 0.8)
        expected.append(float(0.1 < cov < 2.0 and not is_held))
    found = [float(value) for part in chosen_of(plan, settings) for value in part]
    assert found == expected
    assert 0 < sum(found) < len(found)
    few = [float(value) for part in chosen_of(plan, CLIP_COV) for value in part]
    assert sum(few) == int(0.1 * len(found))
    assert all(one <= all_ for one, all_ in zip(few, found, strict=True))


def test_the_draw_of_clip_cov_favours_no_advantage() -> None:
    settings = replace(CLIP_COV, covariance_share=1e-9)
    ranks = []
    for seed in range(200):
        plan = plan_of(groups_of(seed), CUTS[0])
        candidates = torch.cat(chosen_of(plan, replace(settings, covariance_share=1.0))).nonzero().flatten().tolist()
        (drawn,) = torch.cat(chosen_of(plan, settings)).nonzero().flatten().tolist()
        advantages = whole(plan, "advantages")
        others = sorted(candidates, key=lambda n, values=advantages: (values[n], n))
        ranks.append((others.index(drawn) + 0.5) / len(others))
    assert np.mean(ranks) == pytest.approx(0.5, abs=4 / math.sqrt(12 * 200))
    assert np.std(ranks) == pytest.approx(math.sqrt(1 / 12), rel=0.15)


def test_the_draw_of_clip_cov_differs_by_what_else_is_in_the_mini_batch() -> None:
    any_token = {"covariance_low": -math.inf, "covariance_high": math.inf, "clip_low": 0.99, "clip_high": 1e6}
    settings = replace(CLIP_COV, covariance_share=0.3, **any_token)
    ours, drawn = groups_of(0)[0], []
    for seed in (1, 2, 3):
        batch = plan_of([ours, groups_of(seed)[1]], [[0, 1, 2, 3], [4, 5, 6, 7]])
        drawn.append(set(chosen_of(batch, settings)[0].nonzero().flatten().tolist()))
    assert not all(one <= other or other <= one for one in drawn for other in drawn)


@both
def test_tokens_of_weight_0_count_nowhere(settings: ResolvedAlgorithm) -> None:
    groups = groups_of()
    masked = frozenset({(0, 1), (1, 2)})
    with_masked = chosen_by_row(groups, plan_of(groups, CUTS[0], masked), settings)
    alone = [[i for i in CUTS[0][0] if divmod(i, 4) not in masked]]
    for index, sample in enumerate(with_masked):
        if divmod(index, 4) in masked:
            assert not any(value for row in sample for value in row)
    plan = plan_of(groups, alone)
    if settings is KL_COV:
        placed = with_target_fields(groups, plan.micro_batches, chosen_of(plan, settings), "chosen")
        for index in alone[0]:
            assert _rows_in_any_order(placed[index // 4].samples[index % 4]) == with_masked[index]
    assert sum(value for sample in with_masked for row in sample for value in row) == sum(
        float(part.sum()) for part in chosen_of(plan, settings)
    )


@both
@pytest.mark.parametrize("cut", [[], [[]], [[0], []]])
def test_empty_micro_batches_choose_nothing(settings: ResolvedAlgorithm, cut: Sequence[Sequence[int]]) -> None:
    plan = plan_of(groups_of(), cut)
    assert [len(part) for part in chosen_of(plan, settings)] == [batch.num_targets for batch in plan.micro_batches]


def test_kl_cov_treats_at_least_one_token() -> None:
    groups = tiny_groups(1, 1, sampled_tokens=(1, 1))
    assert torch.cat(chosen_of(plan_of(groups, [[0]]), KL_COV)).tolist() == [1.0]


@both
def test_nothing_to_learn_gives_no_covariance(settings: ResolvedAlgorithm) -> None:
    groups = [group.with_samples([s.with_token_advantage(0.0) for s in group.samples]) for group in groups_of()]
    found = [chosen_by_row(groups, plan_of(groups, cut), settings) for cut in CUTS]
    assert all(other == found[0] for other in found)
    count = sum(value for sample in found[0] for row in sample for value in row)
    assert (count == 0) == (settings is CLIP_COV)


@both
def test_ten_thousand_tokens_beside_one_choose_the_same_in_any_cut(settings: ResolvedAlgorithm) -> None:
    rng = np.random.default_rng(0)
    (group,) = tiny_groups(1, 2)
    long, short = (
        replace(sample, rows=(tiny_row(rng, 3, length),)).with_token_advantage(advantage)
        for sample, length, advantage in zip(group.samples, (10_000, 1), (0.6, -1.5), strict=True)
    )
    groups = [group.with_samples([long, short])]
    settings = replace(settings, covariance_low=1e-6, covariance_share=2e-3)
    together, apart = (chosen_by_row(groups, plan_of(groups, cut), settings) for cut in ([[0, 1]], [[1], [0]]))
    assert together == apart
    assert sum(value for sample in together for row in sample for value in row) == 20


@both
def test_the_one_kind_of_log_probs_that_is_there_stands_for_both(settings: ResolvedAlgorithm) -> None:
    plan = plan_of(groups_of(), CUTS[1])
    current = [batch.fields_N["current_logprobs"] for batch in plan.micro_batches]
    expected = chosen_of(plan.with_field("old_logprobs", current), settings)
    for name in ("old_logprobs", "current_logprobs"):
        alone = MicroBatchPlan(tuple(_without_logprobs(batch) for batch in plan.micro_batches)).with_field(
            name, current
        )
        for found, wanted in zip(chosen_of(alone, settings), expected, strict=True):
            assert torch.equal(found, wanted)


def _without_logprobs(batch: PackedBatch) -> PackedBatch:
    return replace(batch, fields_N={name: batch.fields_N[name] for name in ("advantages", "weights")})


def test_with_two_policies_the_clip_is_by_the_sampler() -> None:
    settings = replace(CLIP_COV, covariance_share=1.0, correction=CorrectionConfig(policies=2))
    plan = plan_of(groups_of(), CUTS[1])
    moved = plan.with_field("rollout_logprobs", [b.fields_N["old_logprobs"] for b in plan.micro_batches])
    three = replace(settings, correction=CorrectionConfig())
    for one, other in zip(chosen_of(moved, settings), chosen_of(plan, three), strict=True):
        assert torch.equal(one, other)


@both
def test_log_probs_are_asked_for(settings: ResolvedAlgorithm) -> None:
    plan = plan_of(groups_of(), CUTS[0])
    bare = replace(plan.micro_batches[0], fields_N={"advantages": plan.micro_batches[0].fields_N["advantages"]})
    with pytest.raises(ValueError, match="current_logprobs or old_logprobs"):
        choose_tokens(MicroBatchPlan((bare,)), settings)


@both
def test_the_algorithm_prepares_its_mini_batch(settings: ResolvedAlgorithm) -> None:
    plan = plan_of(groups_of(), CUTS[2])
    prepared, _ = PolicyGradient(settings).prepare(plan)
    for batch, expected in zip(prepared.micro_batches, chosen_of(plan, settings), strict=True):
        assert torch.equal(batch.fields_N["chosen"], expected)
