"""Functions of the user's in the place of a loss or an estimator: what they return is checked at every call.

A loss may return a plain tensor of one loss a token. What is wrong is said with the function's name, what must be and
what was got; a number that is not finite is only the function's fault where its inputs were finite.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from strop.algorithms.advantages.table import AdvantageEstimator
from strop.algorithms.losses.kernel import PolicyLoss, Terms, TokenLosses
from strop.config.bundles import ResolvedAlgorithm
from strop.errors import ConfigError
from strop.records import Group


def checked_loss(function: Callable[..., Any], location: str) -> PolicyLoss:
    """Returns the function as a policy loss that raises ConfigError where it returns something else."""
    name = f"algorithm.loss ({location})"

    def loss(terms: Terms, settings: ResolvedAlgorithm) -> TokenLosses:
        found = function(terms, settings)
        losses = TokenLosses(found) if isinstance(found, Tensor) else found
        if not isinstance(losses, TokenLosses) or not isinstance(losses.losses_N, Tensor):
            raise ConfigError(f"{name} must return a tensor of one loss a token, or TokenLosses, got {_kind(found)}")
        _check_losses(losses, terms, name)
        return losses

    return loss


def checked_estimator(function: Callable[..., Any], location: str) -> AdvantageEstimator:
    """Returns the function as an estimator that raises ConfigError where it returns something else."""
    name = f"algorithm.advantage ({location})"

    def estimator(groups: Sequence[Group], settings: ResolvedAlgorithm) -> list[Group]:
        found = function(groups, settings)
        if not isinstance(found, Sequence) or not all(isinstance(group, Group) for group in found):
            raise ConfigError(f"{name} must return a list of groups, got {_kind(found)}")
        if [_identity(group) for group in found] != [_identity(group) for group in groups]:
            raise ConfigError(
                f"{name} must return the groups and samples that it was given, in their order, got others",
                "Set algorithm.drop_zero_signal or algorithm.keep_samples to train on fewer.",
            )
        for group in found:
            _check_advantages(group, name)
        return list(found)

    return estimator


def _check_losses(found: TokenLosses, terms: Terms, name: str) -> None:
    expected, losses_N = terms.new_logprobs_N.shape, found.losses_N
    if losses_N.shape != expected:
        raise ConfigError(f"{name} must return one loss a token, of shape {[*expected]}, got {[*losses_N.shape]}")
    for field, held_N in (("below_N", found.below_N), ("above_N", found.above_N)):
        if held_N is not None and not (isinstance(held_N, Tensor) and held_N.shape == expected):
            raise ConfigError(f"{name} must return {field} as a tensor of shape {[*expected]} or None, got {held_N!r}")
    if terms.new_logprobs_N.requires_grad and not losses_N.requires_grad and len(losses_N):
        raise ConfigError(
            f"{name} must return losses with a gradient, got losses that do not depend on terms.new_logprobs_N",
            "Take terms.new_logprobs_N, terms.log_ratio_N or terms.ratio_N into the loss, not detached.",
        )
    if not torch.isfinite(losses_N).all() and _inputs_are_finite(terms):
        token = int((~torch.isfinite(losses_N)).nonzero()[0])
        facts = {
            "advantage": terms.advantages_N,
            "log-ratio": terms.log_ratio_N,
            "new log-prob": terms.new_logprobs_N,
        }
        at = ", ".join(f"{fact} {float(values_N[token].detach()):g}" for fact, values_N in facts.items())
        raise ConfigError(
            f"{name} must return finite losses, got {float(losses_N[token].detach())} for a token of {at}"
        )


def _inputs_are_finite(terms: Terms) -> bool:
    inputs = (terms.new_logprobs_N, terms.base_logprobs_N, terms.advantages_N)
    return all(bool(torch.isfinite(values_N).all()) for values_N in inputs)


def _check_advantages(group: Group, name: str) -> None:
    for sample in group.samples:
        place = f"sample {sample.index} of prompt {group.prompt.prompt_id!r}"
        for row in sample.rows:
            if row.advantages is None:
                raise ConfigError(
                    f"{name} must put advantages on every row, got none on {place}",
                    "Give samples whose reward is None the advantage 0, as `with_sample_advantages` does.",
                )
            wrong = row.advantages[~np.isfinite(row.advantages)]
            if len(wrong):
                raise ConfigError(
                    f"{name} must put finite advantages on every token, got {wrong[0]} on {place}, whose reward is "
                    f"{sample.reward}"
                )


def _identity(group: Group) -> tuple[str, int, tuple[int, ...]]:
    return group.prompt.prompt_id, group.prompt.visit, tuple(sample.index for sample in group.samples)


def _kind(found: object) -> str:
    """What was returned, in words."""
    if isinstance(found, list | tuple) and found:
        return f"{type(found).__name__} of {type(found[0]).__name__}"
    return type(found).__name__
