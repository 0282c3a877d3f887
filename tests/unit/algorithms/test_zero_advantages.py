"""A sample of advantage 0 is left out of an update only where no loss of its tokens has any gradient."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from strop.algorithms.build import build_algorithm
from strop.algorithms.losses.kernel import Terms, TokenLosses
from strop.config.bundles import ResolvedAlgorithm
from strop.config.compatibility import LOSSES
from strop.protocols import LossInputs
from support.tiny import tiny_groups
from support.update_half import resolved

N = 5
"""Tokens of a sample."""


def inputs_without_advantage() -> LossInputs:
    """A sample off-policy whose advantage is 0, of which a covariance loss chose the first two tokens."""
    generator = torch.Generator().manual_seed(0)
    new_N, old_N, rollout_N = -torch.rand(3, N, generator=generator, dtype=torch.float64)
    return LossInputs(
        new_logprobs_N=new_N.clone().requires_grad_(),
        old_logprobs_N=old_N,
        advantages_N=torch.zeros(N, dtype=torch.float64),
        weights_N=torch.full((N,), 0.1, dtype=torch.float64),
        sample_ids_N=torch.zeros(N, dtype=torch.int64),
        num_samples=1,
        rollout_logprobs_N=rollout_N,
        fields_N={"chosen": torch.tensor([1.0, 1, 0, 0, 0], dtype=torch.float64)},
    )


def slope(algorithm: Any) -> float:
    inputs = inputs_without_advantage()
    (slopes_N,) = torch.autograd.grad(algorithm.loss(inputs).loss, inputs.new_logprobs_N)
    return float(slopes_N.norm())


def is_trained_on(algorithm: Any) -> bool:
    return bool(algorithm.has_gradient(tiny_groups()[0].samples[0].with_token_advantage(0.0)))


@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_with_a_gradient_at_advantage_0_keeps_its_samples(loss: str) -> None:
    algorithm = build_algorithm(resolved(loss=loss))
    assert is_trained_on(algorithm) or slope(algorithm) == 0


def test_the_quadratic_term_of_dro_has_one() -> None:
    algorithm = build_algorithm(resolved(name="dro"))
    assert slope(algorithm) > 0
    assert is_trained_on(algorithm)


def test_a_loss_of_the_users_may_have_one() -> None:
    def pulled_back(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
        return TokenLosses(terms.log_ratio_N.square())

    algorithm = build_algorithm(replace(resolved(), loss="mine.py:pulled_back"), loss=pulled_back)
    assert slope(algorithm) > 0
    assert is_trained_on(algorithm)
