"""Divergences from a teacher against loops over the vocabulary, and how they become a loss or a reward."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from strop.algorithms.build import build_algorithm
from strop.algorithms.distillation import forward_kl, sampled_divergence
from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import resolve_algorithm
from strop.config.distillation import DistillationConfig
from strop.protocols import Algorithm, LossInputs
from strop.records import FinishState, Group, Prompt, Row, Sample

VOCABULARY = 9


def settings(**changes: object) -> DistillationConfig:
    return DistillationConfig.model_validate({"teachers": [{"path": "t"}], **changes})


def logits(num_rows: int, seed: int, scale: float = 1.5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(num_rows, VOCABULARY, generator=generator, dtype=torch.float64)


def likely(teacher_logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    top = torch.log_softmax(teacher_logits, 1).topk(k, 1)
    return top.indices, top.values


def policy_at(policy_logits: Tensor, ids: Tensor) -> Tensor:
    return torch.log_softmax(policy_logits, 1).gather(1, ids)


def loop(policy_logits: Tensor, teacher_logits: Tensor, k: int, config: DistillationConfig) -> list[float]:
    found = []
    for row in range(len(policy_logits)):
        p, q = (
            [math.exp(float(z)) / sum(math.exp(float(x)) for x in some[row]) for z in some[row]]
            for some in (policy_logits, teacher_logits)
        )
        ids = sorted(range(VOCABULARY), key=lambda v: -q[v])[:k]
        floor = -math.inf if config.min_logprob is None else config.min_logprob
        total = 0.0
        for v in ids:
            log_q, log_p = max(math.log(q[v]), floor), max(math.log(p[v]), floor)
            total += math.exp(log_q) * (log_q - log_p)
        if config.tail and k < VOCABULARY:
            rest_q, rest_p = 1 - sum(q[v] for v in ids), 1 - sum(p[v] for v in ids)
            total += rest_q * (max(math.log(rest_q), floor) - max(math.log(rest_p), floor))
        found.append(min(max(total, 0.0), config.max_divergence or math.inf))
    return found


@pytest.mark.parametrize("tail", [True, False])
@pytest.mark.parametrize("bounds", [{}, {"min_logprob": -2.5}, {"max_divergence": 0.4}])
@pytest.mark.parametrize("k", [1, 4, VOCABULARY])
def test_the_forward_kl_is_the_sum_over_likely_tokens_and_the_rest(
    k: int, bounds: dict[str, float], tail: bool
) -> None:
    config = settings(tail=tail, **bounds)
    policy, teacher = logits(20, 0), logits(20, 1)
    ids, top = likely(teacher, k)
    found = forward_kl(policy_at(policy, ids), top, config)
    assert found.tolist() == pytest.approx(loop(policy, teacher, k, config), rel=1e-10, abs=1e-12)
    single = forward_kl(policy_at(policy, ids).float(), top.float(), config)
    assert single.tolist() == pytest.approx(found.tolist(), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("bounds", [{}, {"min_logprob": -2.5}, {"max_divergence": 0.4}])
@pytest.mark.parametrize("k", [1, 4, VOCABULARY])
def test_the_gradient_of_the_forward_kl_agrees_with_finite_differences(k: int, bounds: dict[str, float]) -> None:
    config = settings(**bounds)
    policy, teacher = logits(5, 2).requires_grad_(), logits(5, 3)
    ids, top = likely(teacher, k)
    (gradient,) = torch.autograd.grad(forward_kl(policy_at(policy, ids), top, config).sum(), policy)
    step = 1e-6
    for row, v in ((0, 0), (1, 5), (2, 8), (4, 3)):
        shift = torch.zeros_like(policy)
        shift[row, v] = step
        up, down = (sum(loop(policy.detach() + sign * shift, teacher, k, config)) for sign in (1, -1))
        assert float(gradient[row, v]) == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-8)


def test_with_the_whole_vocabulary_it_is_the_kl_and_with_fewer_tokens_never_more() -> None:
    policy, teacher = logits(50, 4), logits(50, 5)
    log_p, log_q = torch.log_softmax(policy, 1), torch.log_softmax(teacher, 1)
    whole = (log_q.exp() * (log_q - log_p)).sum(1)
    found = []
    for k in range(1, VOCABULARY + 1):
        ids, top = likely(teacher, k)
        found.append(forward_kl(policy_at(policy, ids), top, settings()))
    torch.testing.assert_close(found[-1], whole, rtol=1e-10, atol=1e-12)
    for fewer, more in itertools.pairwise(found):
        assert bool((fewer <= more + 1e-12).all())
        assert bool((fewer >= 0).all())


def test_a_policy_that_is_its_teacher_has_no_divergence_and_no_gradient() -> None:
    policy = logits(6, 6, scale=4.0).float().requires_grad_()
    ids, top = likely(policy.detach(), 3)
    divergence = forward_kl(policy_at(policy, ids), top, settings())
    (gradient,) = torch.autograd.grad(divergence.sum(), policy)
    assert float(divergence.abs().max()) < 1e-6
    assert float(gradient.abs().max()) < 1e-6


def test_a_certain_teacher_and_a_certain_policy_stay_finite() -> None:
    certain = torch.full((2, VOCABULARY), -200.0)
    certain[:, 0] = 200.0
    other = certain.roll(1, dims=1).requires_grad_()
    ids, top = likely(certain, 4)
    divergence = forward_kl(policy_at(other, ids), top, settings())
    (gradient,) = torch.autograd.grad(divergence.sum(), other)
    assert bool(divergence.isfinite().all() and gradient.isfinite().all())
    assert float(divergence.detach().min()) > 100


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_estimators_of_sampled_tokens_average_to_their_expectation(kind: str) -> None:
    policy, teacher = logits(1, 7)[0], logits(1, 8)[0]
    log_p, log_q = torch.log_softmax(policy, 0), torch.log_softmax(teacher, 0)
    found = sampled_divergence(log_p, log_q, settings(divergence=kind, placement="reward"))
    reverse = float((log_p.exp() * (log_p - log_q)).sum())
    expected = {"k1": reverse, "k3": reverse, "k2": float((log_p.exp() * (log_q - log_p) ** 2 / 2).sum())}[kind]
    assert float((log_p.exp() * found).sum()) == pytest.approx(expected, rel=1e-10)


# ------------------------------------------------------------------------------------------ as an algorithm


def algorithm(name: str = "grpo", **changes: object) -> Algorithm:
    resolved = resolve_algorithm(AlgorithmConfig.model_validate({"name": name}), 16)
    return build_algorithm(resolved, distillation=settings(**changes))


def inputs(num_targets: int, seed: int = 0) -> LossInputs:
    policy, teacher = logits(num_targets, seed).requires_grad_(), logits(num_targets, seed + 1)
    ids, top = likely(teacher, 3)
    sampled = torch.arange(num_targets) % VOCABULARY
    new = policy_at(policy, sampled[:, None])[:, 0]
    generator = torch.Generator().manual_seed(seed)
    return LossInputs(
        new_logprobs_N=new,
        old_logprobs_N=new.detach(),
        advantages_N=torch.randn(num_targets, generator=generator, dtype=torch.float64),
        weights_N=torch.rand(num_targets, generator=generator, dtype=torch.float64),
        sample_ids_N=torch.arange(num_targets) // 4,
        num_samples=(num_targets + 3) // 4,
        rollout_logprobs_N=new.detach(),
        candidate_logprobs_NK=policy_at(policy, ids),
        fields_N={
            "candidate_ids": ids,
            "teacher_top_logprobs": top,
            "teacher_logprobs": policy_at(teacher, sampled[:, None])[:, 0],
        },
    )


def test_the_loss_is_the_weighted_divergence_and_nothing_else_where_the_teacher_is_alone() -> None:
    given = inputs(12)
    found = algorithm(coefficient=0.5).loss(given)
    divergence = forward_kl(given.candidate_logprobs_NK, given.fields_N["teacher_top_logprobs"], settings())
    assert float(found.loss) == pytest.approx(0.5 * float((given.weights_N * divergence).sum()), rel=1e-12)
    assert set(found.metrics) == {"distillation/divergence", "distillation/teacher_mass"}


def test_beside_rewards_the_two_losses_are_added() -> None:
    given = inputs(12)
    both = algorithm(with_rewards=True).loss(given)
    policy = build_algorithm(resolve_algorithm(AlgorithmConfig(), 16)).loss(given)
    assert float(both.loss) == pytest.approx(float(policy.loss) + float(algorithm().loss(given).loss), rel=1e-12)


def test_with_advantages_of_zero_rewards_on_or_off_give_the_same_loss_and_gradient() -> None:
    given = replace(inputs(12), advantages_N=torch.zeros(12, dtype=torch.float64))
    alone, beside = algorithm().loss(given).loss, algorithm(with_rewards=True).loss(given).loss
    assert float(alone) == float(beside)


@pytest.mark.parametrize("changes", [{}, {"with_rewards": True}, {"divergence": "k3"}])
def test_a_micro_batch_without_targets_gives_zero_and_metrics_without_weight(changes: dict[str, object]) -> None:
    found = algorithm(**changes).loss(inputs(0))
    assert float(found.loss) == 0.0
    assert found.metrics["distillation/divergence"].result is None


def make_group(rewards: list[float | None], finish: FinishState = FinishState.STOPPED) -> Group:
    samples = []
    for index, reward in enumerate(rewards):
        mask = np.array([False, False, True, True, True])
        rollout = np.where(mask, -1.0 - index, 0.0).astype(np.float32)
        row = Row(np.arange(5), mask, rollout, np.zeros(5, np.int64))
        teacher = np.where(mask, -0.5 * np.arange(5), 0.0).astype(np.float32)
        samples.append(Sample(index, (row.with_fields(teacher_logprobs=teacher),), finish, reward))
    return Group(Prompt("p", 0, np.array([0, 1]), (), "task"), tuple(samples))


def test_as_a_reward_each_token_loses_what_it_is_away_from_the_teacher() -> None:
    chosen = algorithm(divergence="k1", placement="reward", coefficient=2.0)
    (group,) = chosen.advantages([make_group([None, None])])
    rows = [sample.rows[0].advantages for sample in group.samples]
    assert [row.tolist() for row in rows] == [[0, 0, 0, -1, -2], [0, 0, 2, 1, 0]]


def test_as_a_reward_it_is_added_to_the_advantage_of_the_task() -> None:
    chosen = algorithm("dr_grpo", divergence="k1", placement="reward", with_rewards=True)
    (group,) = chosen.advantages([make_group([1.0, 0.0])])
    rows = [sample.rows[0].advantages for sample in group.samples]
    assert [row.tolist() for row in rows] == [[0, 0, 0.5, 0, -0.5], [0, 0, 0.5, 0, -0.5]]


def test_a_teacher_alone_needs_no_rewards_and_leaves_out_lost_samples_only() -> None:
    chosen = algorithm()
    assert chosen.weights([make_group([None, None])]) == {(0, 0): 1 / 6, (0, 1): 1 / 6}
    assert chosen.weights([make_group([1.0, 1.0], FinishState.ABORTED)]) == {}
    assert chosen.select([make_group([None, None])]) != []


@pytest.mark.parametrize(
    ("changes", "candidates", "top_k"),
    [({}, True, 32), ({"divergence": "k3"}, False, 0), ({"divergence": "k1", "placement": "reward"}, False, 0)],
)
def test_only_what_is_read_is_asked_for(changes: dict[str, object], candidates: bool, top_k: int) -> None:
    needs = algorithm(**changes).needs
    assert (needs.teacher, needs.candidates, needs.teacher_top_k) == (True, candidates, top_k)
    assert needs.on_policy_gradient_known == (changes.get("placement") == "reward")
