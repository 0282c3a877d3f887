"""KL estimators by enumeration over a small vocabulary: which is unbiased for the value, which for the gradient."""

import pytest
import torch

from strop.algorithms.kl import kl_estimate

torch.manual_seed(0)
POLICY = torch.randn(7, dtype=torch.float64)
REFERENCE = torch.log_softmax(torch.randn(7, dtype=torch.float64), 0)


def expectation_and_gradient(estimator: str) -> tuple[float, torch.Tensor]:
    """Enumerates all tokens: the expected value, and the expected gradient with the sampled tokens held fixed."""
    logits = POLICY.clone().requires_grad_()
    logprobs = torch.log_softmax(logits, 0)
    terms = kl_estimate(logprobs, REFERENCE, estimator)
    probabilities = logprobs.detach().exp()
    (gradient,) = torch.autograd.grad((probabilities * terms).sum(), logits)
    return float((probabilities * terms.detach()).sum()), gradient


def true_kl(reverse: bool = False) -> tuple[float, torch.Tensor]:
    logits = POLICY.clone().requires_grad_()
    logprobs = torch.log_softmax(logits, 0)
    kl = (
        (REFERENCE.exp() * (REFERENCE - logprobs)).sum() if reverse else (logprobs.exp() * (logprobs - REFERENCE)).sum()
    )
    (gradient,) = torch.autograd.grad(kl, logits)
    return float(kl.detach()), gradient


def test_k1_and_k3_are_unbiased_for_the_value_and_k2_is_not() -> None:
    kl, _ = true_kl()
    assert expectation_and_gradient("k1")[0] == pytest.approx(kl, rel=1e-10)
    assert expectation_and_gradient("k3")[0] == pytest.approx(kl, rel=1e-10)
    assert abs(expectation_and_gradient("k2")[0] - kl) > 1e-3


def test_k1_has_no_expected_gradient_k2_that_of_the_kl_and_k3_that_of_the_reversed_kl() -> None:
    assert expectation_and_gradient("k1")[1].abs().max() < 1e-12
    torch.testing.assert_close(expectation_and_gradient("k2")[1], true_kl()[1], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(expectation_and_gradient("k3")[1], true_kl(reverse=True)[1], rtol=1e-10, atol=1e-12)


def test_k3_is_never_negative_and_zero_for_equal_policies() -> None:
    logprobs = torch.linspace(-5, 0, 50, dtype=torch.float64)
    assert (kl_estimate(logprobs, logprobs.flip(0), "k3") >= 0).all()
    assert (kl_estimate(logprobs, logprobs, "k3") == 0).all()
