"""KL estimators by enumeration over a small vocabulary: which is unbiased for the value, which for the gradient."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from strop.algorithms.kl import adapted_coefficient, full_kl, kl_estimate

ESTIMATORS = ("k1", "k2", "k3", "abs", "k1+", "k3+", "abs+")
UNBIASED_VALUES = ("k1", "k3", "k1+", "k3+")
KL_GRADIENTS = ("k2", "k1+", "k3+", "abs+")
VOCABULARY = 7


def logits(seed: int, *shape: int) -> Tensor:
    return torch.randn(*(shape or (VOCABULARY,)), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


POLICY = logits(0)
REFERENCE = torch.log_softmax(logits(1), 0)


def as_a_loss_term(estimator: str) -> tuple[float, Tensor]:
    """Enumerates all tokens: the expected value, and the expected gradient with the sampled tokens held fixed."""
    parameters = POLICY.clone().requires_grad_()
    logprobs = torch.log_softmax(parameters, 0)
    terms = kl_estimate(logprobs, REFERENCE, estimator)
    probabilities = logprobs.detach().exp()
    (gradient,) = torch.autograd.grad((probabilities * terms).sum(), parameters)
    return float((probabilities * terms.detach()).sum()), gradient


def in_the_reward(estimator: str) -> Tensor:
    """Enumerates all tokens: the expected product of the score function and of what the term costs."""
    gradient = torch.zeros(VOCABULARY, dtype=torch.float64)
    for token in range(VOCABULARY):
        parameters = POLICY.clone().requires_grad_()
        logprob = torch.log_softmax(parameters, 0)[token]
        cost = float(kl_estimate(logprob.detach(), REFERENCE[token], estimator))
        (score,) = torch.autograd.grad(logprob, parameters)
        gradient += float(logprob.detach().exp()) * cost * score
    return gradient


def true_kl(reverse: bool = False) -> tuple[float, Tensor]:
    """The KL by a plain sum; its gradient by central differences, without autograd."""

    def value(parameters: Tensor) -> float:
        policy = [float(one) for one in parameters - parameters.logsumexp(0)]
        pairs = list(zip(policy, REFERENCE.tolist(), strict=True))
        return sum(math.exp(q) * (q - p) for p, q in pairs) if reverse else sum(math.exp(p) * (p - q) for p, q in pairs)

    return value(POLICY), central_differences(value, POLICY)


def central_differences(value: Callable[[Tensor], float], at: Tensor, step: float = 1e-5) -> Tensor:
    found = []
    for place in range(at.numel()):
        shift = torch.zeros_like(at).view(-1)
        shift[place] = step
        shift = shift.view_as(at)
        found.append((value(at + shift) - value(at - shift)) / (2 * step))
    return torch.tensor(found, dtype=at.dtype).view_as(at)


def is_close(found: Tensor, expected: Tensor) -> bool:
    """To the precision of central differences."""
    return torch.allclose(found, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_k1_and_k3_are_unbiased_for_the_value_and_k2_and_abs_are_not(estimator: str) -> None:
    kl, _ = true_kl()
    value, _ = as_a_loss_term(estimator)
    if estimator in UNBIASED_VALUES:
        assert value == pytest.approx(kl, rel=1e-12)
    else:
        assert abs(value - kl) > 1e-2


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_as_a_loss_term_k2_and_all_straight_through_ones_have_the_gradient_of_the_kl(estimator: str) -> None:
    _, gradient = as_a_loss_term(estimator)
    assert is_close(gradient, true_kl()[1]) == (estimator in KL_GRADIENTS)


def test_as_a_loss_term_k1_has_no_gradient_and_k3_that_of_the_reversed_kl() -> None:
    assert as_a_loss_term("k1")[1].abs().max() < 1e-15
    assert is_close(as_a_loss_term("k3")[1], true_kl(reverse=True)[1])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_in_the_reward_only_k1_has_the_gradient_of_the_kl(estimator: str) -> None:
    assert is_close(in_the_reward(estimator), true_kl()[1]) == (estimator in ("k1", "k1+"))


def test_in_the_reward_k3_has_the_gradient_of_the_kl_less_that_of_the_reversed_kl() -> None:
    expected = true_kl()[1] - true_kl(reverse=True)[1]
    assert is_close(in_the_reward("k3"), expected)
    assert is_close(in_the_reward("k3+"), expected)


@pytest.mark.parametrize("estimator", ["k1", "k3", "abs"])
def test_a_straight_through_estimator_has_the_exact_value_of_the_one_and_the_exact_gradient_of_k2(
    estimator: str,
) -> None:
    logprobs = POLICY.log_softmax(0).requires_grad_()
    through = kl_estimate(logprobs, REFERENCE, f"{estimator}+")
    assert torch.equal(through, kl_estimate(logprobs, REFERENCE, estimator))
    (gradient,) = torch.autograd.grad(through.sum(), logprobs)
    (of_k2,) = torch.autograd.grad(kl_estimate(logprobs, REFERENCE, "k2").sum(), logprobs)
    assert torch.equal(gradient, of_k2)


# ------------------------------------------------------------------------------------- samples of several tokens

STATES_POLICY, STATES_REFERENCE = logits(2, 4, 3), torch.log_softmax(logits(3, 4, 3), 1)
"""Samples of two tokens of three: row 0 for the first token, row 1 + token for the second."""


def sample_kl(parameters: Tensor) -> float:
    policy = torch.log_softmax(parameters, 1)
    total = 0.0
    for first, second in itertools.product(range(3), repeat=2):
        logprob = float(policy[0, first] + policy[1 + first, second])
        reference = float(STATES_REFERENCE[0, first] + STATES_REFERENCE[1 + first, second])
        total += math.exp(logprob) * (logprob - reference)
    return total


def expected_over_samples(in_reward: bool) -> Tensor:
    """Gradient of k1 in the reward of whole samples, or of k2 as a loss term of each token."""
    gradient = torch.zeros_like(STATES_POLICY)
    for first, second in itertools.product(range(3), repeat=2):
        parameters = STATES_POLICY.clone().requires_grad_()
        policy = torch.log_softmax(parameters, 1)
        logprobs = torch.stack((policy[0, first], policy[1 + first, second]))
        references = torch.stack((STATES_REFERENCE[0, first], STATES_REFERENCE[1 + first, second]))
        if in_reward:
            cost = float(kl_estimate(logprobs.detach(), references, "k1").sum())
            (own,) = torch.autograd.grad(cost * logprobs.sum(), parameters)
        else:
            (own,) = torch.autograd.grad(kl_estimate(logprobs, references, "k2").sum(), parameters)
        gradient += float(logprobs.detach().sum().exp()) * own
    return gradient


def test_a_reward_has_the_gradient_of_the_kl_of_whole_samples_and_a_loss_term_that_of_states_held_fixed() -> None:
    whole = central_differences(sample_kl, STATES_POLICY)
    assert is_close(expected_over_samples(in_reward=True), whole)
    of_tokens = expected_over_samples(in_reward=False)
    assert is_close(of_tokens[1:], whole[1:]), "the last token leads nowhere"
    assert not is_close(of_tokens[0], whole[0]), "the first decides in which state the second is"


# ------------------------------------------------------------------------------------- edges


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log_probs_that_lie_a_thousand_apart_give_finite_values_and_gradients(
    estimator: str, dtype: torch.dtype
) -> None:
    logprobs = torch.tensor([-1000.0, -0.5, -3.0], dtype=dtype, requires_grad=True)
    values = kl_estimate(logprobs, torch.tensor([-0.5, -1000.0, -3.0], dtype=dtype), estimator)
    (gradient,) = torch.autograd.grad(values.sum(), logprobs)
    assert values.isfinite().all()
    assert gradient.isfinite().all()
    assert values[2] == 0


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_no_tokens_give_no_estimates(estimator: str) -> None:
    assert kl_estimate(torch.zeros(0), torch.zeros(0), estimator).shape == (0,)


def test_k3_is_never_negative_and_zero_for_equal_policies() -> None:
    for dtype in (torch.float32, torch.float64):
        logprobs = torch.linspace(-5, 0, 51, dtype=dtype)
        assert (kl_estimate(logprobs, logprobs.flip(0), "k3") >= 0).all()
        assert (kl_estimate(logprobs, logprobs + 1e-6 * logprobs.sin(), "k3") >= 0).all()
        assert (kl_estimate(logprobs, logprobs, "k3") == 0).all()


def test_full_is_no_estimator_of_sampled_tokens() -> None:
    with pytest.raises(ValueError, match="use full_kl"):
        kl_estimate(POLICY, REFERENCE, "full")


# ------------------------------------------------------------------------------------- over the likeliest tokens


def bucketed_kl(policy: Tensor, reference: Tensor, count: int) -> float:
    """KL over the reference's first tokens and one bucket of the rest, by a loop over float64 probabilities."""
    order = sorted(range(len(reference)), key=lambda token: -float(reference[token]))
    kl = sum(math.exp(policy[k]) * (float(policy[k]) - float(reference[k])) for k in order[:count])
    rest = order[count:]
    if not rest:
        return kl
    tail, reference_tail = (math.fsum(math.exp(one[k]) for k in rest) for one in (policy, reference))
    return kl + tail * (math.log(tail) - math.log(reference_tail))


def top(reference: Tensor, count: int) -> Tensor:
    return reference.topk(count, -1).indices


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("count", range(1, VOCABULARY + 1))
def test_full_kl_equals_the_loop_with_one_bucket(count: int, dtype: torch.dtype, tolerance: float) -> None:
    policy, reference = logits(4, 5, VOCABULARY).log_softmax(1), logits(5, 5, VOCABULARY).log_softmax(1)
    chosen = top(reference, count)
    found = full_kl(policy.gather(1, chosen).to(dtype), reference.gather(1, chosen).to(dtype))
    expected = [bucketed_kl(*rows, count) for rows in zip(policy, reference, strict=True)]
    assert found.tolist() == pytest.approx(expected, rel=tolerance)


def test_full_kl_grows_with_the_tokens_told_apart_up_to_the_kl() -> None:
    policy, chosen = POLICY.log_softmax(0), top(REFERENCE, VOCABULARY)
    found = [float(full_kl(policy[chosen[:k]][None], REFERENCE[chosen[:k]][None])) for k in range(1, VOCABULARY + 1)]
    assert all(more >= fewer - 1e-14 for fewer, more in itertools.pairwise(found))
    assert found[0] < found[-1] == pytest.approx(true_kl()[0], rel=1e-12)


@pytest.mark.parametrize("count", [1, 3, VOCABULARY - 1, VOCABULARY])
def test_the_gradient_of_full_kl_agrees_with_finite_differences(count: int) -> None:
    chosen = top(REFERENCE, count)
    parameters = POLICY.clone().requires_grad_()
    loss = full_kl(parameters.log_softmax(0)[chosen][None], REFERENCE[chosen][None]).sum()
    (gradient,) = torch.autograd.grad(loss, parameters)
    expected = central_differences(lambda at: bucketed_kl(at.log_softmax(0), REFERENCE, count), POLICY)
    torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sharpness", [1.0, 30.0, 1000.0])
def test_full_kl_is_finite_where_almost_nothing_or_almost_everything_is_in_the_tail(
    sharpness: float, dtype: torch.dtype
) -> None:
    policy = (sharpness * logits(6, 50, VOCABULARY)).to(dtype).requires_grad_()
    reference = (sharpness * logits(7, 50, VOCABULARY)).to(dtype).log_softmax(1)
    for count in range(1, VOCABULARY + 1):
        chosen = top(reference, count)
        values = full_kl(policy.log_softmax(1).gather(1, chosen), reference.gather(1, chosen))
        (gradient,) = torch.autograd.grad(values.sum(), policy)
        assert values.isfinite().all()
        assert gradient.isfinite().all()
        assert (values > -1e-5).all()


@pytest.mark.parametrize(
    ("tail", "reference_tail", "dtype", "tolerance"),
    [(0.5, 1e-6, torch.float32, 1e-5), (0.5, 1e-12, torch.float64, 1e-10), (1e-9, 1e-3, torch.float64, 1e-10)],
)
def test_a_small_tail_keeps_its_digits(
    tail: float, reference_tail: float, dtype: torch.dtype, tolerance: float
) -> None:
    policy, reference = (torch.tensor([[math.log1p(-one)]], dtype=dtype) for one in (tail, reference_tail))
    expected = (1 - tail) * (math.log1p(-tail) - math.log1p(-reference_tail)) + tail * math.log(tail / reference_tail)
    assert float(full_kl(policy, reference)) == pytest.approx(expected, rel=tolerance)


def test_a_tail_of_nearly_everything_keeps_its_digits() -> None:
    top_share, reference_share = 1e-9, 2e-9
    policy, reference = (torch.tensor([[math.log(one)]], dtype=torch.float64) for one in (top_share, reference_share))
    of_tails = (1 - top_share) * (math.log1p(-top_share) - math.log1p(-reference_share))
    expected = top_share * math.log(top_share / reference_share) + of_tails
    assert float(full_kl(policy, reference)) == pytest.approx(expected, rel=1e-10, abs=0)


# ------------------------------------------------------------------------------------- the coefficient


def test_the_coefficient_moves_by_the_clipped_relative_error_of_the_kl() -> None:
    assert adapted_coefficient(0.1, 6.6, 6.0, 512, 10_000) == pytest.approx(0.1 * (1 + 0.1 * 512 / 10_000), rel=1e-12)
    assert adapted_coefficient(0.1, 60.0, 6.0, 512, 10_000) == pytest.approx(0.1 * (1 + 0.2 * 512 / 10_000), rel=1e-12)
    assert adapted_coefficient(0.1, -5.0, 6.0, 512, 10_000) == pytest.approx(0.1 * (1 - 0.2 * 512 / 10_000), rel=1e-12)
    assert adapted_coefficient(0.1, 6.0, 6.0, 512, 10_000) == 0.1


def test_over_a_horizon_of_samples_the_coefficient_changes_by_at_most_a_fifth_and_a_little() -> None:
    coefficient = 1.0
    for _ in range(100):
        coefficient = adapted_coefficient(coefficient, math.inf, 0.1, 100, 10_000)
    assert coefficient == pytest.approx(math.exp(0.2), rel=1e-3)


def test_the_coefficient_stays_positive_and_outlives_a_kl_that_is_no_number() -> None:
    assert adapted_coefficient(1.0, 0.0, 0.1, 1_000_000, 10) == pytest.approx(0.8)
    assert adapted_coefficient(1.0, math.nan, 0.1, 10, 10) == 1.0


def test_a_kl_that_answers_to_the_coefficient_ends_at_its_target() -> None:
    coefficient = 5.0
    for _ in range(2000):
        coefficient = adapted_coefficient(coefficient, 0.02 / coefficient, 0.1, 64, 1000)
    assert 0.02 / coefficient == pytest.approx(0.1, rel=1e-3)
