"""Every policy loss against its formula written token by token in float64."""

import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from strop.algorithms.losses.kernel import Terms, TokenLosses, ratio_metrics
from strop.algorithms.losses.table import COVARIANCE_LOSSES, KNOWN_GRADIENT_LOSSES, LOSSES, policy_loss
from strop.algorithms.policy_gradient import PolicyGradient
from strop.config.algorithm import CorrectionConfig
from strop.config.bundles import BUNDLES, ResolvedAlgorithm
from strop.protocols import LossInputs

SETTINGS: dict[str, ResolvedAlgorithm] = {
    "clip": BUNDLES["dapo"],
    "dual clip": replace(BUNDLES["grpo"], dual_clip=1.5),
    "gspo": replace(BUNDLES["gspo"], clip_low=0.04, clip_high=0.06),
    "gmpo": BUNDLES["gmpo"],
    "cispo": replace(BUNDLES["cispo"], clip_low=0.3, clip_high=0.3),
    "sapo": replace(BUNDLES["sapo"], negative_temperature=2.0),
    "dppo_tv": replace(BUNDLES["dppo"], clip_low=0.02, clip_high=0.04),
    "dppo_kl": replace(BUNDLES["dppo"], loss="dppo_kl", clip_low=0.002, clip_high=0.004),
    "clip_cov": replace(BUNDLES["clip_cov"], clip_low=0.2, clip_high=0.2),
    "kl_cov": replace(BUNDLES["kl_cov"], penalty=0.7),
    "gpg": BUNDLES["gpg"],
    "dro": BUNDLES["dro"],
    "reinforce": BUNDLES["rloo"],
}
"""Settings under which each loss has tokens on both sides of each of its bounds."""

every_loss = pytest.mark.parametrize("name", SETTINGS)


def settings_of(name: str) -> ResolvedAlgorithm:
    return SETTINGS[name]


def random_inputs(lengths: tuple[int, ...] = (7, 1, 12, 5, 9), seed: int = 0, spread: float = 0.4) -> LossInputs:
    """One advantage and one weight a sample; log-ratios of about `spread`."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths, dtype=torch.int64))
    count = len(ids)

    def normal(size: int) -> Tensor:
        return torch.randn(size, generator=generator, dtype=torch.float64)

    old = -normal(count).abs() - 0.01
    new = torch.minimum(old + spread * normal(count), torch.tensor(-1e-3))
    return LossInputs(
        new_logprobs_N=new.requires_grad_(),
        old_logprobs_N=old,
        advantages_N=normal(len(lengths))[ids],
        weights_N=normal(len(lengths)).abs()[ids],
        sample_ids_N=ids,
        num_samples=len(lengths),
        rollout_logprobs_N=old + 0.01 * normal(count),
        fields_N={"chosen": (torch.rand(count, generator=generator) < 0.3).float()},
    )


def changed(inputs: LossInputs, new: Tensor, **fields: object) -> LossInputs:
    return replace(inputs, new_logprobs_N=new, **fields)


def cast(inputs: LossInputs, dtype: torch.dtype) -> LossInputs:
    """The same inputs in another format; no field is left in the old one."""
    names = ("new_logprobs_N", "old_logprobs_N", "advantages_N", "weights_N", "rollout_logprobs_N")
    return replace(inputs, **{name: getattr(inputs, name).to(dtype) for name in names})


def found(inputs: LossInputs, settings: ResolvedAlgorithm) -> TokenLosses:
    return policy_loss(settings.loss)(Terms(inputs, inputs.old_logprobs_N), settings)


def total(inputs: LossInputs, settings: ResolvedAlgorithm) -> Tensor:
    return PolicyGradient(settings).loss(inputs).loss


def gradient(inputs: LossInputs, settings: ResolvedAlgorithm) -> Tensor:
    leaf = inputs.new_logprobs_N.detach().clone().requires_grad_()
    (result,) = torch.autograd.grad(total(changed(inputs, leaf), settings), leaf)
    return result


# ------------------------------------------------------------------------------------------- the formulas, slowly


class Token(NamedTuple):
    new: float
    old: float
    frozen: float
    """The new log-prob as whatever a formula puts under a stop-gradient sees it."""
    a: float
    chosen: bool
    mean_log: float
    """Over the token's sample, of log-ratios; of clipped ones with gmpo."""

    @property
    def ratio(self) -> float:
        return math.exp(self.new - self.old)


def clip_token(ratio: float, a: float, s: ResolvedAlgorithm) -> float:
    return -min(ratio * a, min(max(ratio, 1 - s.clip_low), 1 + s.clip_high) * a)


def dual_clip_token(t: Token, s: ResolvedAlgorithm) -> float:
    loss = clip_token(t.ratio, t.a, s)
    return min(loss, -s.dual_clip * t.a) if s.dual_clip and t.a < 0 else loss


def gmpo_log(log_ratio: float, a: float, s: ResolvedAlgorithm) -> float:
    bounded = min(max(log_ratio, -s.clip_low), s.clip_high)
    sign = 1 if a >= 0 else -1
    return sign * min(sign * log_ratio, sign * bounded)


def cispo_token(t: Token, s: ResolvedAlgorithm) -> float:
    weight = min(max(math.exp(t.frozen - t.old), 1 - s.clip_low), 1 + s.clip_high)
    return -weight * t.a * t.new


def sapo_token(t: Token, s: ResolvedAlgorithm) -> float:
    tau = s.positive_temperature if t.a > 0 else s.negative_temperature
    return -4 / tau / (1 + math.exp(-tau * (t.ratio - 1))) * t.a


def dppo_token(t: Token, divergence: float, s: ResolvedAlgorithm) -> float:
    is_above = t.a > 0 and t.new > t.old and divergence > s.clip_high
    is_below = t.a < 0 and t.new < t.old and divergence > s.clip_low
    return 0.0 if is_above or is_below else -t.ratio * t.a


def binary_tv(t: Token) -> float:
    return abs(math.exp(t.new) - math.exp(t.old))


def binary_kl(t: Token) -> float:
    p, q = math.exp(t.new), math.exp(t.old)
    return q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))


FORMULAS: dict[str, Callable[[Token, ResolvedAlgorithm], float]] = {
    "clip": dual_clip_token,
    "gspo": lambda t, s: clip_token(math.exp(t.mean_log), t.a, s),
    "gmpo": lambda t, s: -math.exp(t.mean_log) * t.a,
    "cispo": cispo_token,
    "sapo": sapo_token,
    "dppo_tv": lambda t, s: dppo_token(t, binary_tv(t), s),
    "dppo_kl": lambda t, s: dppo_token(t, binary_kl(t), s),
    "clip_cov": lambda t, s: 0.0 if t.chosen else dual_clip_token(t, s),
    "kl_cov": lambda t, s: -t.ratio * t.a + (s.penalty * abs(t.new - t.old) if t.chosen else 0.0),
    "gpg": lambda t, s: -t.a * t.new,
    "reinforce": lambda t, s: -t.a * t.new,
    "dro": lambda t, s: -t.a * t.new + s.penalty / 2 * (t.new - t.old) ** 2,
}


def sample_means(values: list[float], ids: list[int]) -> list[float]:
    by_sample = {i: [x for x, j in zip(values, ids, strict=True) if i == j] for i in set(ids)}
    means = {i: math.fsum(own) / len(own) for i, own in by_sample.items()}
    return [means[i] for i in ids]


def oracle(inputs: LossInputs, s: ResolvedAlgorithm, frozen: list[float] | None = None) -> list[float]:
    """The loss of each token."""
    new, old, advantages, chosen = (
        values.detach().double().tolist()
        for values in (inputs.new_logprobs_N, inputs.old_logprobs_N, inputs.advantages_N, inputs.fields_N["chosen"])
    )
    logs = [x - y for x, y in zip(new, old, strict=True)]
    if s.loss == "gmpo":
        logs = [gmpo_log(x, a, s) for x, a in zip(logs, advantages, strict=True)]
    means = sample_means(logs, inputs.sample_ids_N.tolist())
    tokens = map(Token, new, old, frozen or new, advantages, map(bool, chosen), means)
    return [FORMULAS[s.loss](token, s) for token in tokens]


def oracle_total(inputs: LossInputs, s: ResolvedAlgorithm, frozen: list[float] | None = None) -> float:
    weights = inputs.weights_N.tolist()
    return math.fsum(w * loss for w, loss in zip(weights, oracle(inputs, s, frozen), strict=True))


def slope(function: Callable[[Tensor], float], at: Tensor, n: int, step: float = 1e-6) -> float:
    up, down = at.clone(), at.clone()
    up[n] += step
    down[n] -= step
    return (function(up) - function(down)) / (2 * step)


# ------------------------------------------------------------------------------------------- values and gradients


@every_loss
@pytest.mark.parametrize("seed", range(3))
def test_a_loss_is_its_formula_in_float64(name: str, seed: int) -> None:
    inputs, settings = random_inputs(seed=seed), settings_of(name)
    assert found(inputs, settings).losses_N.tolist() == pytest.approx(oracle(inputs, settings), rel=1e-10, abs=1e-14)
    assert total(inputs, settings).item() == pytest.approx(oracle_total(inputs, settings), rel=1e-10)


@every_loss
def test_a_loss_is_its_formula_in_float32(name: str) -> None:
    inputs, settings = random_inputs(), settings_of(name)
    losses = found(cast(inputs, torch.float32), settings).losses_N
    assert losses.dtype == torch.float32
    assert losses.tolist() == pytest.approx(oracle(inputs, settings), rel=1e-5, abs=1e-6)


@every_loss
@pytest.mark.parametrize("seed", range(2))
def test_the_gradient_is_the_slope_of_the_formula(name: str, seed: int) -> None:
    inputs, settings = random_inputs(seed=seed), settings_of(name)
    at = inputs.new_logprobs_N.detach()
    slopes = [
        slope(lambda new: oracle_total(changed(inputs, new), settings, at.tolist()), at, n) for n in range(len(at))
    ]
    assert gradient(inputs, settings).tolist() == pytest.approx(slopes, rel=1e-6, abs=1e-8)


@every_loss
def test_the_settings_of_these_tests_reach_both_sides_of_every_bound(name: str) -> None:
    below, above = found(random_inputs(), settings_of(name))[1:]
    for reached in (below, above):
        assert reached is None or 0 < int(reached.sum()) < len(reached)


def test_clipped_tokens_have_no_gradient() -> None:
    for name in ("clip", "dppo_tv", "dppo_kl", "gspo"):
        inputs = random_inputs()
        held = found(inputs, settings_of(name))
        assert held.below_N is not None
        assert held.above_N is not None
        is_zero = gradient(inputs, settings_of(name)) == 0
        assert torch.equal(is_zero, held.below_N | held.above_N), name


def test_cispo_leaves_every_token_its_gradient() -> None:
    assert bool((gradient(random_inputs(), settings_of("cispo")) != 0).all())


@pytest.mark.parametrize("name", sorted(KNOWN_GRADIENT_LOSSES))
def test_a_known_gradient_is_exactly_minus_the_advantage_on_policy(name: str) -> None:
    inputs = random_inputs((5, 1, 300))
    settings = replace(settings_of(name), dual_clip=3.0)
    for dtype in (torch.float32, torch.float64):
        typed = cast(inputs, dtype)
        old = typed.old_logprobs_N
        advantages = torch.randn(len(old), generator=torch.Generator().manual_seed(1)).to(dtype)
        on_policy = replace(typed, new_logprobs_N=old, advantages_N=advantages, weights_N=torch.ones_like(old))
        assert torch.equal(gradient(on_policy, settings), -advantages)


@every_loss
def test_on_policy_every_loss_has_the_policy_gradient(name: str) -> None:
    inputs = random_inputs()
    expected = -inputs.weights_N * inputs.advantages_N
    if name == "clip_cov":
        expected = expected * (1 - inputs.fields_N["chosen"])
    assert torch.allclose(gradient(changed(inputs, inputs.old_logprobs_N), settings_of(name)), expected, rtol=1e-12)


# ------------------------------------------------------------------------------------------- sequences


def test_gspo_has_the_gradient_of_its_sequence_ratio() -> None:
    inputs, settings = random_inputs(spread=0.1), BUNDLES["gspo"]
    leaf = inputs.new_logprobs_N.detach().clone().requires_grad_()
    objective = torch.zeros((), dtype=torch.float64)
    for i in range(inputs.num_samples):
        own = inputs.sample_ids_N == i
        ratio = (leaf[own] - inputs.old_logprobs_N[own]).mean().exp()
        a, weight = inputs.advantages_N[own][0], inputs.weights_N[own].sum()
        bounded = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
        objective = objective - weight * torch.minimum(ratio * a, bounded * a)
    (expected,) = torch.autograd.grad(objective, leaf)
    assert torch.allclose(gradient(inputs, settings), expected, rtol=1e-10, atol=1e-14)
    assert bool((expected == 0).any())
    assert bool((expected != 0).any())


def test_gspo_scales_a_token_by_its_sequence_and_its_own_advantage() -> None:
    inputs = random_inputs(spread=0.01)
    own = torch.randn(len(inputs.advantages_N), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    logs = (inputs.new_logprobs_N - inputs.old_logprobs_N).tolist()
    ratios = torch.tensor(sample_means(logs, inputs.sample_ids_N.tolist()), dtype=torch.float64).exp()
    expected = -inputs.weights_N * own * ratios
    unbounded = replace(settings_of("gspo"), clip_low=0.9, clip_high=9.0)
    assert torch.allclose(gradient(replace(inputs, advantages_N=own), unbounded), expected, rtol=1e-10)


@every_loss
def test_no_cut_into_micro_batches_changes_loss_or_gradient(name: str) -> None:
    inputs, settings = random_inputs(), settings_of(name)
    whole, pieces = gradient(inputs, settings), torch.zeros_like(inputs.old_logprobs_N)
    losses = 0.0
    for samples in ((0, 3), (1,), (4, 2)):
        where = torch.isin(inputs.sample_ids_N, torch.tensor(samples)).nonzero().flatten()
        part = _part(inputs, where, samples)
        losses += total(part, settings).item()
        pieces[where] = gradient(part, settings)
    assert losses == pytest.approx(total(inputs, settings).item(), rel=1e-12)
    assert torch.allclose(pieces, whole, rtol=1e-12, atol=0)


def _part(inputs: LossInputs, where: Tensor, samples: tuple[int, ...]) -> LossInputs:
    return LossInputs(
        new_logprobs_N=inputs.new_logprobs_N[where],
        old_logprobs_N=inputs.old_logprobs_N[where],
        advantages_N=inputs.advantages_N[where],
        weights_N=inputs.weights_N[where],
        sample_ids_N=torch.tensor([samples.index(int(i)) for i in inputs.sample_ids_N[where]]),
        num_samples=len(samples),
        rollout_logprobs_N=inputs.rollout_logprobs_N[where],
        fields_N={name: values[where] for name, values in inputs.fields_N.items()},
    )


# ------------------------------------------------------------------------------------------- edge cases


@every_loss
def test_no_targets_give_a_loss_of_0(name: str) -> None:
    inputs, settings = random_inputs(()), settings_of(name)
    assert total(inputs, settings).item() == 0
    assert len(gradient(inputs, settings)) == 0
    ratio_metrics(Terms(inputs, inputs.old_logprobs_N), found(inputs, settings))


@every_loss
def test_a_single_token_is_its_own_sequence(name: str) -> None:
    inputs, settings = random_inputs((1,), seed=4), settings_of(name)
    assert total(inputs, settings).item() == pytest.approx(oracle_total(inputs, settings), rel=1e-10)


@every_loss
def test_advantages_of_0_give_only_what_a_penalty_costs(name: str) -> None:
    inputs, settings = random_inputs(), settings_of(name)
    still = replace(inputs, advantages_N=torch.zeros_like(inputs.advantages_N))
    slopes = gradient(still, settings)
    if name in ("dro", "kl_cov"):
        assert total(still, settings).item() > 0
    else:
        assert total(still, settings).item() == 0
        assert bool((slopes == 0).all())


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [-1000.0, 1000.0])
def test_log_ratios_of_a_thousand_stay_finite(name: str, dtype: torch.dtype, gap: float) -> None:
    inputs = cast(random_inputs(), dtype)
    old, new = inputs.old_logprobs_N - max(gap, 0), inputs.old_logprobs_N + min(gap, 0)
    far = replace(inputs, new_logprobs_N=new, old_logprobs_N=old)
    assert math.isfinite(total(far, settings_of(name)).item())
    assert bool(gradient(far, settings_of(name)).isfinite().all())


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_probabilities_of_0_and_1_stay_finite(name: str, dtype: torch.dtype) -> None:
    logprobs = torch.tensor([0.0, 0.0, -200.0, -200.0], dtype=dtype)
    for advantage in (-1.0, 1.0):
        certain = replace(
            cast(random_inputs((4,)), dtype),
            new_logprobs_N=logprobs,
            old_logprobs_N=logprobs[[0, 2, 1, 3]],
            advantages_N=torch.full_like(logprobs, advantage),
        )
        assert math.isfinite(total(certain, settings_of(name)).item())
        assert bool(gradient(certain, settings_of(name)).isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_token_that_was_certain_leaves_the_trust_region_by_any_fall(dtype: torch.dtype) -> None:
    inputs = random_inputs((2,))
    fallen = replace(
        cast(inputs, dtype),
        new_logprobs_N=torch.tensor([-1.0, -1e-4], dtype=dtype),
        old_logprobs_N=torch.zeros(2, dtype=dtype),
        advantages_N=-torch.ones(2, dtype=dtype),
    )
    below = found(fallen, settings_of("dppo_kl")).below_N
    assert below is not None
    assert below.tolist() == [True, False]


@every_loss
def test_a_long_sample_beside_a_single_token_changes_neither(name: str) -> None:
    inputs, settings = random_inputs((10_000, 1)), settings_of(name)
    for samples in ((0,), (1,)):
        where = (inputs.sample_ids_N == samples[0]).nonzero().flatten()
        alone = found(_part(inputs, where, samples), settings).losses_N
        assert torch.allclose(found(inputs, settings).losses_N[where], alone, rtol=1e-12)
    assert total(inputs, settings).item() == pytest.approx(oracle_total(inputs, settings), rel=1e-10)


# ------------------------------------------------------------------------------------------- two policies, the table


@every_loss
def test_with_two_policies_the_sampler_takes_the_place_of_the_old_policy(name: str) -> None:
    inputs = random_inputs()
    two = replace(settings_of(name), correction=CorrectionConfig(policies=2))
    expected = oracle_total(replace(inputs, old_logprobs_N=inputs.rollout_logprobs_N), two)
    assert total(inputs, two).item() == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("name", LOSSES)
def test_every_name_leads_to_a_loss_with_its_source(name: str) -> None:
    loss = policy_loss(name)
    module = import_module(loss.__module__)
    assert loss.__doc__
    assert module.__doc__
    assert "arXiv:" in module.__doc__
    assert "l_t = " in module.__doc__ or "cov_t = " in module.__doc__


def test_these_tests_know_every_loss() -> None:
    assert {settings.loss for settings in SETTINGS.values()} == set(LOSSES)
    assert {bundle.loss for bundle in BUNDLES.values()} <= set(LOSSES)
    assert set(LOSSES) >= KNOWN_GRADIENT_LOSSES | COVARIANCE_LOSSES


@pytest.mark.parametrize("name", sorted(COVARIANCE_LOSSES))
def test_a_covariance_loss_asks_for_its_chosen_tokens(name: str) -> None:
    with pytest.raises(ValueError, match="chosen"):
        total(replace(random_inputs(), fields_N={}), settings_of(name))
