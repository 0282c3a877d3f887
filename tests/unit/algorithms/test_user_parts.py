"""A function in the place of a loss or an estimator is told what it must return, by its name."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from strop.algorithms.advantages.samples import with_sample_advantages
from strop.algorithms.losses.kernel import Terms, TokenLosses
from strop.algorithms.user_parts import checked_estimator, checked_loss
from strop.config.bundles import BUNDLES
from strop.errors import ConfigError
from strop.protocols import LossInputs
from strop.records import FinishState, Group, Sample
from support.groups import made_prompt, made_row

SETTINGS = BUNDLES["grpo"]


def terms(new: Sequence[float] = (-1.0, -0.5, -2.0), *, gradient: bool = True) -> Terms:
    new_N = torch.tensor(new).requires_grad_(gradient)
    old_N = torch.tensor([-1.1, -0.5, -1.9])[: len(new)]
    inputs = LossInputs(
        new_logprobs_N=new_N,
        old_logprobs_N=old_N,
        advantages_N=torch.tensor([1.0, -1.0, 0.0])[: len(new)],
        weights_N=torch.ones(len(new)),
        sample_ids_N=torch.zeros(len(new), dtype=torch.int64),
        num_samples=1,
        rollout_logprobs_N=old_N,
    )
    return Terms(inputs, old_N)


def reinforce(terms: Terms, settings: Any) -> Tensor:
    return -terms.advantages_N * terms.new_logprobs_N


def group() -> Group:
    rewards = (1.0, 0.0, None)
    rows = tuple(made_row(([1, 2], False), ([3, 4], True)) for _ in rewards)
    pairs = enumerate(zip(rows, rewards, strict=True))
    return Group(made_prompt(), tuple(Sample(i, (row,), FinishState.STOPPED, reward) for i, (row, reward) in pairs))


def test_a_plain_tensor_stands_for_losses_without_bounds() -> None:
    found = checked_loss(reinforce, "my.py:loss")(terms(), SETTINGS)
    assert found.losses_N.tolist() == [1.0, -0.5, 0.0]
    assert (found.below_N, found.above_N) == (None, None)


def test_token_losses_are_passed_on_as_they_are() -> None:
    given = terms()
    own = TokenLosses(reinforce(given, None), above_N=given.ratio_N > 1)
    assert checked_loss(lambda terms, settings: own, "my.py:loss")(given, SETTINGS) is own


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda t, s: None, r"must return a tensor of one loss a token, or TokenLosses, got NoneType"),
        (lambda t, s: [1.0], r"got list of float"),
        (lambda t, s: TokenLosses([1.0]), r"or TokenLosses, got TokenLosses of list"),  # type: ignore[arg-type]
        (lambda t, s: t.new_logprobs_N.mean(), r"one loss a token, of shape \[3\], got \[\]"),
        (lambda t, s: t.new_logprobs_N[:2], r"of shape \[3\], got \[2\]"),
        (lambda t, s: t.new_logprobs_N.detach(), r"do not depend on terms.new_logprobs_N\nTake terms.new_logprobs_N"),
        (
            lambda t, s: t.new_logprobs_N / t.advantages_N,
            r"finite losses, got -inf for a token of advantage 0, log-ratio",
        ),
        (
            lambda t, s: TokenLosses(t.new_logprobs_N, below_N=True),
            r"below_N as a tensor of shape \[3\] or None, got True",
        ),
    ],
)
def test_another_return_of_a_loss_is_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.loss \(my\.py:loss\) must return") as caught:
        checked_loss(function, "my.py:loss")(terms(), SETTINGS)
    caught.match(message)


def test_a_loss_is_not_blamed_for_log_probs_that_are_not_finite() -> None:
    found = checked_loss(reinforce, "my.py:loss")(terms([float("nan"), -0.5, -2.0]), SETTINGS)
    assert torch.isnan(found.losses_N[0])


def test_no_tokens_and_no_gradient_are_in_order() -> None:
    assert len(checked_loss(reinforce, "my.py:loss")(terms([]), SETTINGS).losses_N) == 0
    assert not checked_loss(reinforce, "my.py:loss")(terms(gradient=False), SETTINGS).losses_N.requires_grad


def test_advantages_of_a_function_are_passed_on() -> None:
    one = group()
    (found,) = checked_estimator(lambda groups, s: [with_sample_advantages(groups[0], [1, -1, 0])], "my.py:f")(
        [one], SETTINGS
    )
    assert [sample.rows[0].advantages.tolist() for sample in found.samples] == [  # type: ignore[union-attr]
        [0, 0, 1, 1],
        [0, 0, -1, -1],
        [0, 0, 0, 0],
    ]


def with_a_nan(groups: Sequence[Group], settings: Any) -> list[Group]:
    values = [[np.array([0.0, 0.0, np.nan, 1.0])]] * 3
    return [g.with_samples([s.with_advantages(v) for s, v in zip(g.samples, values, strict=True)]) for g in groups]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda g, s: None, r"must return a list of groups, got NoneType"),
        (lambda g, s: [[1.0, 0.0]], r"must return a list of groups, got list of list"),
        (
            lambda g, s: [],
            r"must return the groups and samples that it was given, in their order, got others\nSet algor",
        ),
        (lambda g, s: [x.with_samples(x.samples[:2]) for x in g], r"the groups and samples that it was given"),
        (lambda g, s: list(g), r"must put advantages on every row, got none on sample 0 of prompt 'made:0'"),
        (with_a_nan, r"must put finite advantages on every token, got nan on sample 0 .*, whose reward is 1\.0"),
    ],
)
def test_another_return_of_an_estimator_is_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.advantage \(my\.py:ranks\) must") as caught:
        checked_estimator(function, "my.py:ranks")([group()], SETTINGS)
    caught.match(message)
