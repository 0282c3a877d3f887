"""The update half of a step takes any batch: what is finite and right of it is learned, and nothing else moves.

Every estimator and every loss is tried with each batch: they are paired, the losses beginning anew where they end. A
batch is trained on four times, as two mini-batches in two epochs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from strop.algorithms.advantages.samples import is_valid
from strop.api import train
from strop.config.bundles import ResolvedAlgorithm
from strop.config.compatibility import ADVANTAGES, LOSSES, NEEDS_GROUPS
from strop.models.attention.registry import register_attention
from strop.protocols import LossInputs, LossOutputs
from strop.records import FinishState, Group, Sample
from strop.trainers.step import Updated, prepare_update, update
from support.combinations import not_finite
from support.critic import critic_weights
from support.runs import stored_metrics, tiny_run
from support.tiny import tiny_model, tiny_row
from support.training import assert_gradients_close
from support.update_half import (
    measured,
    prepared_and_moved,
    ready_plan,
    resolved,
    sampled_groups,
    shortened,
    step_settings,
    update_roles,
    with_rewards,
    without_tokens,
)

PAIRS = list(zip(ADVANTAGES, cycle(LOSSES), strict=False))
of_every_part = pytest.mark.parametrize(("advantage", "loss"), PAIRS)
GROUPS = sampled_groups(num_groups=4, group_size=4)
GOOD_REWARDS = [0.0, 1.0, 0.25, 0.75]
ALONE = frozenset(ADVANTAGES) - NEEDS_GROUPS
"""Estimators that a single sample teaches something."""


def settings_of(advantage: str, loss: str, **keys: Any) -> ResolvedAlgorithm:
    return resolved(advantage=advantage, loss=loss, pass_k=2, **keys)


def test_the_pairs_hold_every_estimator_and_every_loss() -> None:
    assert {advantage for advantage, _ in PAIRS} == set(ADVANTAGES)
    assert {loss for _, loss in PAIRS} == set(LOSSES)


# ------------------------------------------------------------------------------------------- what an update did


@dataclass(frozen=True)
class Outcome:
    """What the updates of a step did to a policy."""

    updated: Updated
    weights: dict[str, torch.Tensor]
    """Of the policy and of the critic, afterwards."""
    moved: bool
    """Whether the policy is another than before."""


def outcome_of(
    settings: ResolvedAlgorithm, groups: Sequence[Group], *, updates_per_batch: int = 2, epochs_per_batch: int = 2
) -> Outcome:
    roles = update_roles(settings)
    policy = roles.policy.causal_lm
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    step = step_settings(updates=updates_per_batch, epochs=epochs_per_batch)
    updated = update(roles, step, prepare_update(roles, step, groups))
    after = {name: weight.detach() for name, weight in policy.named_parameters()}
    of_critic = {} if roles.critic is None else critic_weights(roles.critic)
    return Outcome(
        updated,
        after | {f"critic {name}": weight for name, weight in of_critic.items()},
        any(not torch.equal(after[name], before[name]) for name in after),
    )


def assert_sound(outcome: Outcome) -> None:
    """Advantages, metrics, gradients and weights are finite, and where nothing can be learned no advantage says so."""
    assert_finite_advantages(outcome.updated.groups)
    assert not_finite(outcome.updated.metrics) == []
    assert all(np.isfinite(report.gradient_norm) for report in outcome.updated.reports)
    assert all(bool(weight.isfinite().all()) for weight in outcome.weights.values())


def assert_finite_advantages(groups: Sequence[Group]) -> None:
    for sample in (sample for group in groups for sample in group.samples):
        for row in sample.rows:
            assert np.isfinite(row.advantages).all()
            assert not row.advantages[~row.loss_mask].any()
            assert is_valid(sample) or not row.advantages.any()


# ------------------------------------------------------------------------------------------- batches


def rewarded(*rewards: float | None, groups: Sequence[Group] = GROUPS) -> list[Group]:
    return [with_rewards(group, rewards) for group in groups]


def changed(change: Callable[[Sample], Sample], places: Sequence[int] = (0, 1, 2, 3)) -> list[Group]:
    """The batch with good rewards, and some samples of every group changed."""
    return [
        group.with_samples([change(sample) if sample.index in places else sample for sample in group.samples])
        for group in rewarded(*GOOD_REWARDS)
    ]


def cut(sample: Sample) -> Sample:
    return replace(sample, finish=FinishState.LENGTH)


def failed(sample: Sample) -> Sample:
    return replace(sample, rows=(), finish=FinishState.FAILED, reward=None, error="the engine lost it")


def of_one_token(sample: Sample) -> Sample:
    return replace(sample, rows=tuple(shortened(row, 1) for row in sample.rows[:1]))


def of_sizes(*sizes: int) -> list[Group]:
    groups = [with_rewards(group, np.linspace(0, 1, 5).tolist()) for group in sampled_groups(3, len(sizes), 5)]
    return [group.with_samples(group.samples[-size:]) for group, size in zip(groups, sizes, strict=True)]


LEARNED: dict[str, list[Group]] = {
    "rewards_that_are_none": rewarded(None, 0.0, 1.0, 0.5),
    "whole_groups_of_none": [*rewarded(0.0, 1.0, 0.5, None)[:3], *rewarded(None, None, None, None)[3:]],
    "rewards_that_hardly_differ": rewarded(0.3, 0.3 + 1e-7, 0.3, 0.3),
    "empty_completions": changed(without_tokens, places=(0,)),
    "failed_samples_without_rows": changed(failed, places=(1,)),
    "single_tokens": changed(of_one_token),
    "single_tokens_beside_others": changed(of_one_token, places=(1, 2)),
    "groups_of_many_sizes": of_sizes(1, 5, 2, 4),
}
"""Batches that every estimator learns something of."""


@of_every_part
@pytest.mark.parametrize("batch", LEARNED)
def test_a_batch_that_is_bad_in_part_is_learned_from(batch: str, advantage: str, loss: str) -> None:
    outcome = outcome_of(settings_of(advantage, loss), LEARNED[batch])
    assert_sound(outcome)
    assert outcome.moved


UNLEARNED: dict[str, tuple[list[Group], frozenset[str]]] = {
    "no_reward_at_all": (rewarded(None, None, None, None), frozenset()),
    "constant_rewards": (rewarded(0.5, 0.5, 0.5, 0.5), frozenset(("gae", "remax"))),
    "only_empty_completions": (changed(without_tokens), frozenset()),
    "only_failed_samples": (changed(failed), frozenset()),
    "groups_of_one": (
        [with_rewards(group, [reward]) for group, reward in zip(of_sizes(1, 1, 1, 1), GOOD_REWARDS, strict=True)],
        ALONE,
    ),
}
"""Batches that only these estimators learn from: a critic and a greedy sample tell what no other sample does."""


@of_every_part
@pytest.mark.parametrize("batch", UNLEARNED)
def test_a_batch_that_says_nothing_moves_nothing(batch: str, advantage: str, loss: str) -> None:
    groups, taught = UNLEARNED[batch]
    outcome = outcome_of(settings_of(advantage, loss), groups)
    assert_sound(outcome)
    assert outcome.moved == (advantage in taught)


WITH_TERMS: dict[str, dict[str, Any]] = {
    "kl_in_the_reward_of_a_critic": {"advantage": "gae", "kl_placement": "reward", "kl_estimator": "k1"},
    "kl_in_the_reward_of_tokens": {
        "advantage": "optimal_token_baseline",
        "loss": "gspo",
        "kl_placement": "reward",
        "kl_estimator": "abs",
    },
    "full_kl_entropy_and_corrections": {
        "loss": "gmpo",
        "kl_estimator": "full",
        "kl_top_k": 4,
        "entropy_coefficient": 0.01,
        "correction": {"weight": "sequence", "sequence_band": [0.1, 9.0], "normalise": True},
    },
}


@pytest.mark.parametrize("terms", WITH_TERMS)
@pytest.mark.parametrize("batch", [*LEARNED, *UNLEARNED])
def test_terms_of_kl_and_entropy_and_corrections_bear_bad_batches_too(batch: str, terms: str) -> None:
    groups = LEARNED[batch] if batch in LEARNED else UNLEARNED[batch][0]
    outcome = outcome_of(resolved(kl_coefficient=0.1, **WITH_TERMS[terms]), groups)
    assert_sound(outcome)
    assert outcome.moved or batch in UNLEARNED


@of_every_part
def test_where_every_sample_is_masked_nothing_moves(advantage: str, loss: str) -> None:
    settings = settings_of(advantage, loss, truncated="mask")
    outcome = outcome_of(settings, changed(cut))
    assert_sound(outcome)
    assert not outcome.moved
    some = outcome_of(settings, changed(cut, places=(0, 2)))
    assert_sound(some)
    assert some.moved


# ------------------------------------------------------------------------------------------- what is right of them


@of_every_part
def test_samples_without_a_valid_reward_are_as_if_they_were_not_there(advantage: str, loss: str) -> None:
    settings = settings_of(advantage, loss)
    whole = changed(lambda sample: replace(sample, reward=None), places=(3,))
    without = [group.with_samples(group.samples[:3]) for group in whole]
    actual, expected = measured(settings, whole), measured(settings, without)
    assert actual.metrics["update/loss"] == pytest.approx(expected.metrics["update/loss"], rel=1e-5, abs=1e-6)
    assert_gradients_close(actual.all_gradients, expected.all_gradients, 1e-5)


OF_ANY_SCALE = ("group", "reinforce_pp", "reinforce_pp_baseline", "pass_at_k", "gdpo", "maxrl", "best_of_n")
"""Estimators whose advantages do not depend on the unit of the reward."""


@of_every_part
@pytest.mark.parametrize("largest", [1e30, 3e38])
def test_huge_rewards_are_learned_from_or_their_update_is_skipped_and_told(
    largest: float, advantage: str, loss: str
) -> None:
    settings = settings_of(advantage, loss)
    groups = rewarded(*(largest * reward for reward in (-1.0, 1.0, 0.25, 0.75)))
    outcome = outcome_of(settings, groups) if advantage in OF_ANY_SCALE else only_update(settings, groups)
    assert_finite_advantages(outcome.updated.groups)
    assert all(bool(weight.isfinite().all()) for weight in outcome.weights.values())
    applied = [report.applied for report in outcome.updated.reports]
    if advantage in OF_ANY_SCALE:
        assert_sound(outcome)
        assert all(applied)
    elif not all(applied):
        assert not outcome.moved
        assert outcome.updated.notes
        assert all("not finite" in note for note in outcome.updated.notes)


def only_update(settings: ResolvedAlgorithm, groups: Sequence[Group]) -> Outcome:
    """One update: three that are skipped in a row end a run."""
    return outcome_of(settings, groups, updates_per_batch=1, epochs_per_batch=1)


@of_every_part
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("reward", [float("nan"), float("inf")])
def test_a_reward_that_is_no_number_and_got_past_the_judge_moves_nothing_and_is_told(
    reward: float, advantage: str, loss: str
) -> None:
    """Only a loop of one's own can let it through. RAFT asks for the best sample alone, and infinity is."""
    outcome = only_update(settings_of(advantage, loss), rewarded(0.0, 1.0, 0.5, reward))
    assert all(bool(weight.isfinite().all()) for weight in outcome.weights.values())
    if advantage != "best_of_n":
        assert not outcome.moved
        assert any("not finite" in note and "tiny-0" in note for note in outcome.updated.notes)


@pytest.mark.parametrize("advantage", OF_ANY_SCALE)
def test_the_unit_of_a_huge_reward_does_not_matter(advantage: str) -> None:
    settings = settings_of(advantage, "clip")
    rewards = (-1.0, 1.0, 0.25, 0.75)
    expected = measured(settings, rewarded(*rewards))
    actual = measured(settings, rewarded(*(2.0**127 * reward for reward in rewards)))
    assert_gradients_close(actual.gradients, expected.gradients, 1e-5)


@pytest.mark.parametrize("name", ["grpo", "ppo", "rloo"])
def test_rewards_that_are_no_numbers_are_refused_before_any_update_sees_them(name: str, tmp_path: Path) -> None:
    config = tiny_run(tmp_path, reward="no_number", algorithm={"name": name}, rollout={"group_size": 8})
    lines = stored_metrics(train(config).folder)[1:]
    assert all(0 < line["samples/error_share"] < 1 for line in lines)
    assert all(0 <= line["reward/mean"] <= 1 for line in lines)
    assert all(line["update/applied"] == 1 and np.isfinite(line["update/gradient_norm"]) for line in lines)


# ------------------------------------------------------------------------------------------- lengths of 1 to 10,000


def model_for_long_samples() -> PreTrainedModel:
    """The smallest llama that reads 10,000 tokens."""
    register_attention()
    config = LlamaConfig(
        vocab_size=tiny_model("llama").config.vocab_size,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=16_384,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="strop").eval()


def groups_of_all_lengths() -> list[Group]:
    """Two groups whose completions have from 1 to 10,000 tokens."""
    rng = np.random.default_rng(0)
    groups = []
    for group, lengths in zip(rewarded(*GOOD_REWARDS), ((1, 10, 100, 1_000), (1, 3, 300, 10_000)), strict=False):
        prompt_ids = group.prompt.token_ids
        rows = [tiny_row(rng, len(prompt_ids), length, prompt_ids) for length in lengths]
        pairs = zip(group.samples, rows, strict=True)
        groups.append(group.with_samples([replace(sample, rows=(row,)) for sample, row in pairs]))
    return groups


@of_every_part
def test_lengths_from_1_to_10_000_in_one_batch_are_learned_from_as_exactly_as_short_ones(
    advantage: str, loss: str
) -> None:
    """The loss and its gradient by each log-prob are those of float64 from the same log-probs."""
    roles = update_roles(settings_of(advantage, loss), model_for_long_samples(), logprob_chunk_tokens=512)
    prepared = prepared_and_moved(roles, groups_of_all_lengths(), step_settings(epochs=2))
    assert_finite_advantages(prepared.groups)
    seen: list[int] = []

    def compared(inputs: LossInputs) -> LossOutputs:
        outputs, exact = roles.algorithm.loss(inputs), in_float64(inputs)
        expected = roles.algorithm.loss(exact).loss
        assert float(outputs.loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5, abs=1e-6)
        (slopes_N,) = torch.autograd.grad(outputs.loss, inputs.new_logprobs_N, retain_graph=True)
        (exact_N,) = torch.autograd.grad(expected, exact.new_logprobs_N)
        assert exact_N.norm() > 0
        assert (slopes_N - exact_N).norm() < 1e-5 * exact_N.norm()
        seen.append(len(slopes_N))
        return outputs

    metrics = roles.policy.forward_backward(ready_plan(roles, prepared), compared)
    report = roles.policy.optimizer_step()
    assert max(seen) > 10_000 or advantage == "best_of_n"
    assert not_finite(metrics) == []
    assert report.applied
    assert 0 < report.gradient_norm < float("inf")


def in_float64(inputs: LossInputs) -> LossInputs:
    """The same numbers, with more digits for what is made of them."""

    def exact(values: torch.Tensor | None) -> torch.Tensor | None:
        return values.double() if values is not None and values.is_floating_point() else values

    names = ("old_logprobs_N", "advantages_N", "weights_N", "rollout_logprobs_N", "reference_logprobs_N")
    return replace(
        inputs,
        new_logprobs_N=inputs.new_logprobs_N.detach().double().requires_grad_(),
        fields_N={name: exact(values) for name, values in inputs.fields_N.items()},
        **{name: exact(getattr(inputs, name)) for name in names},
    )
