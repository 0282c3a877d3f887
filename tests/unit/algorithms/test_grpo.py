"""The GRPO family against a loss written token by token in float64."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from strop.algorithms.build import build_algorithm
from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import ResolvedAlgorithm, resolve_algorithm
from strop.protocols import LossInputs
from strop.records import FinishState, Group, Prompt, Row, Sample


def resolved(name: str = "grpo", **overrides: object) -> ResolvedAlgorithm:
    return resolve_algorithm(AlgorithmConfig(name=name, **overrides), 16)


def make_group(rewards: list[float | None], lengths: list[int], finish: FinishState = FinishState.STOPPED) -> Group:
    samples = []
    for index, (reward, length) in enumerate(zip(rewards, lengths, strict=True)):
        mask = np.arange(2 + length) >= 2
        row = Row(np.arange(2 + length), mask, np.zeros(2 + length, np.float32), np.zeros(2 + length, np.int64))
        samples.append(Sample(index, (row,), finish, reward))
    return Group(Prompt("p", 0, np.array([0, 1]), (), "task"), tuple(samples))


def random_inputs(num_targets: int = 40, seed: int = 0, **changes: object) -> LossInputs:
    generator = torch.Generator().manual_seed(seed)

    def normal(scale: float = 1.0) -> torch.Tensor:
        return torch.randn(num_targets, generator=generator, dtype=torch.float64) * scale

    old = -normal().abs()
    inputs = LossInputs(
        new_logprobs_N=(old + normal(0.3)).requires_grad_(),
        old_logprobs_N=old,
        advantages_N=normal(),
        weights_N=torch.rand(num_targets, generator=generator, dtype=torch.float64),
        sample_ids_N=torch.arange(num_targets) // 8,
        num_samples=5,
        rollout_logprobs_N=old + normal(0.01),
        reference_logprobs_N=old + normal(0.2),
        entropies_N=normal().abs().requires_grad_(),
    )
    return replace(inputs, **changes)


def oracle(inputs: LossInputs, s: ResolvedAlgorithm) -> float:
    total = 0.0
    for n in range(len(inputs.old_logprobs_N)):
        new, old, a = (
            float(t[n].detach()) for t in (inputs.new_logprobs_N, inputs.old_logprobs_N, inputs.advantages_N)
        )
        ratio = math.exp(new - old)
        loss = -min(ratio * a, min(max(ratio, 1 - s.clip_low), 1 + s.clip_high) * a)
        if s.kl_coefficient:
            r = float(inputs.reference_logprobs_N[n]) - new
            loss += s.kl_coefficient * {"k1": -r, "k2": r * r / 2, "k3": math.exp(r) - r - 1}[s.kl_estimator]
        if s.entropy_coefficient:
            loss -= s.entropy_coefficient * float(inputs.entropies_N[n].detach())
        total += float(inputs.weights_N[n]) * loss
    return total


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo"])
@pytest.mark.parametrize("extra", [{}, {"kl_coefficient": 0.1, "kl_estimator": "k3"}, {"entropy_coefficient": 0.01}])
def test_the_loss_equals_the_loop(name: str, extra: dict[str, object]) -> None:
    settings = resolved(name, **extra)
    inputs = random_inputs()
    outputs = build_algorithm(settings).loss(inputs)
    assert float(outputs.loss.detach()) == pytest.approx(oracle(inputs, settings), rel=1e-10)


def test_the_gradient_agrees_with_finite_differences() -> None:
    settings = resolved(kl_coefficient=0.1, kl_estimator="k3", entropy_coefficient=0.01)
    inputs = random_inputs()
    (gradient,) = torch.autograd.grad(build_algorithm(settings).loss(inputs).loss, inputs.new_logprobs_N)
    step = 1e-6
    for n in range(0, 40, 7):
        shift = torch.zeros(40, dtype=torch.float64)
        shift[n] = step
        up = oracle(replace(inputs, new_logprobs_N=inputs.new_logprobs_N + shift), settings)
        down = oracle(replace(inputs, new_logprobs_N=inputs.new_logprobs_N - shift), settings)
        assert float(gradient[n]) == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-9)


def test_on_the_first_update_the_ratio_is_one_and_nothing_is_clipped() -> None:
    new = -torch.rand(40, dtype=torch.float64).requires_grad_()
    inputs = random_inputs(new_logprobs_N=new, old_logprobs_N=new.detach())
    outputs = build_algorithm(resolved()).loss(inputs)
    assert outputs.metrics["update/ratio"].result == 1.0
    assert outputs.metrics["update/clipped_low_share"].result == 0.0
    (gradient,) = torch.autograd.grad(outputs.loss, new)
    torch.testing.assert_close(gradient, -inputs.weights_N * inputs.advantages_N, rtol=1e-12, atol=0)


def test_no_targets_give_a_loss_of_zero_and_metrics_without_weight() -> None:
    outputs = build_algorithm(resolved()).loss(random_inputs(num_targets=0))
    assert float(outputs.loss.detach()) == 0.0
    assert outputs.metrics["update/ratio"].result is None


def test_a_missing_reference_is_an_error_where_the_loss_needs_one() -> None:
    algorithm = build_algorithm(resolved(kl_coefficient=0.1))
    assert algorithm.needs.reference_logprobs
    with pytest.raises(ValueError, match="reference_logprobs_N must be given"):
        algorithm.loss(random_inputs(reference_logprobs_N=None))


def test_invalid_aborted_and_failed_samples_are_in_no_denominator() -> None:
    grpo = build_algorithm(resolved())
    weights = grpo.weights([make_group([1.0, None, 0.0], [4, 6, 2])])
    assert weights == {(0, 0): 1 / 8, (0, 2): 1 / 4}
    assert grpo.weights([make_group([1.0, 0.0], [4, 4], FinishState.ABORTED)]) == {}


def test_truncated_samples_are_masked_in_the_denominator_too_where_asked() -> None:
    group = make_group([1.0, 0.0], [4, 4])
    cut = group.with_samples([group.samples[0], replace(group.samples[1], finish=FinishState.LENGTH)])
    assert build_algorithm(resolved("dapo")).weights([cut]) == {(0, 0): 1 / 4}
    assert build_algorithm(resolved("dapo", truncated="keep")).weights([cut]) == {(0, 0): 1 / 8, (0, 1): 1 / 8}


def test_dr_grpo_divides_by_the_budget() -> None:
    assert build_algorithm(resolved("dr_grpo")).weights([make_group([1.0, 0.0], [4, 8])]) == {
        (0, 0): 1 / 32,
        (0, 1): 1 / 32,
    }


def test_dynamic_sampling_leaves_out_groups_without_signal() -> None:
    groups = [make_group([1.0, 1.0], [1, 1]), make_group([1.0, 0.0], [1, 1]), make_group([None, 1.0], [1, 1])]
    assert build_algorithm(resolved("dapo")).select(groups) == [groups[1]]
    assert build_algorithm(resolved("grpo")).select(groups) == groups


def test_advantages_lie_on_sampled_tokens_only() -> None:
    (group,) = build_algorithm(resolved("dr_grpo")).advantages([make_group([1.0, 0.0], [2, 1])])
    assert group.samples[0].rows[0].advantages.tolist() == [0, 0, 0.5, 0.5]
    assert group.samples[1].rows[0].advantages.tolist() == [0, 0, -0.5]


def test_a_sample_of_advantage_zero_needs_no_gradient_unless_a_term_of_its_own_does() -> None:
    for settings, expected in ((resolved(), False), (resolved(kl_coefficient=0.1), True)):
        algorithm = build_algorithm(settings)
        (group,) = algorithm.advantages([make_group([1.0, 1.0], [2, 1])])
        assert algorithm.has_gradient(group.samples[0]) is expected
    (group,) = build_algorithm(resolved()).advantages([make_group([1.0, 0.0], [2, 1])])
    assert build_algorithm(resolved()).has_gradient(group.samples[0])
