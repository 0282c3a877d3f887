"""The loss and the estimator that a run file names by a place in a file: loaded, and tried before weights are.

A trial calls each once on a few made tokens and samples, one of them without a valid reward, so that what is wrong with
the function costs seconds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
import torch

from strop.algorithms.advantages.table import AdvantageEstimator
from strop.algorithms.build import build_algorithm
from strop.algorithms.losses.kernel import PolicyLoss, Terms
from strop.algorithms.policy_gradient import PolicyGradient
from strop.algorithms.shaping import shape_rewards
from strop.algorithms.user_parts import checked_estimator, checked_loss
from strop.config.bundles import ResolvedAlgorithm, resolve_algorithm
from strop.config.root import Config
from strop.data import PromptTable
from strop.errors import StropError
from strop.protocols import Algorithm, AlgorithmNeeds, LossInputs
from strop.records import FinishState, Group, Prompt, RewardPart, Row, Sample
from strop.tasks import WeightedReward
from strop.tasks.load_function import FunctionError, error_with_line, load_function, split_location
from strop.tasks.rewards import combine_rewards
from strop.trainers.reader import JudgedTask

TRIED = ((0.0, -0.5), (-0.7, -0.7), (0.9, -2.0), (-0.2, -0.1), (0.4, -5.0))
"""Tokens of a trial: advantage and old log-prob. New ones are the old ones and then others."""


class UserParts(NamedTuple):
    """Functions of the user's; None where the run file names a part of ours."""

    estimator: AdvantageEstimator | None
    loss: PolicyLoss | None


def user_parts(settings: ResolvedAlgorithm) -> UserParts:
    """Loads what the settings name. Raises FunctionError, naming the key, where there is no such function."""
    estimator, loss = settings.advantage, settings.loss
    return UserParts(
        checked_estimator(load_function(estimator, "algorithm.advantage"), estimator) if ":" in estimator else None,
        checked_loss(load_function(loss, "algorithm.loss"), loss) if ":" in loss else None,
    )


def named_algorithm(config: Config) -> Algorithm:
    """Returns the algorithm of a run file, with the user's functions in the place of its parts."""
    settings = resolve_algorithm(config.algorithm, config.rollout.max_new_tokens)
    parts = user_parts(settings)
    return build_algorithm(settings, parts.estimator, parts.loss, config.distillation)


def try_user_parts(config: Config, table: PromptTable, tasks: Mapping[str, JudgedTask]) -> None:
    """Calls the user's loss and estimator once each on a few made tokens and samples.

    Args:
        config: names them; where it names none, nothing happens.
        table: has the prompts of the run, for an estimator that reads their columns.
        tasks: by name, for an estimator that reads the parts of rewards.

    Raises ConfigError where one fails or returns something else than it must, with the line of the file.
    """
    settings = resolve_algorithm(config.algorithm, config.rollout.max_new_tokens)
    estimator, loss = user_parts(settings)
    if estimator is not None:
        size, prompts = config.rollout.group_size, table.prompts()[:2]
        made = [_made_group(prompt, size, tasks[prompt.task].rewards) for prompt in prompts]
        groups = [shape_rewards(group, settings) for group in made]
        _tried("algorithm.advantage", settings.advantage, lambda: estimator(groups, settings))
    if loss is not None:
        needs = PolicyGradient(settings, estimator, loss).needs
        for gap in (0.0, 0.3):
            terms = _made_terms(needs, gap, is_two_policy=settings.correction.policies == 2)
            found = _tried("algorithm.loss", settings.loss, partial(loss, terms, settings))
            found.losses_N.sum().backward()  # type: ignore[no-untyped-call]


Result = TypeVar("Result")


def _tried(key: str, location: str, call: Callable[[], Result]) -> Result:
    try:
        return call()
    except StropError:
        raise
    except Exception as error:  # the boundary where a fault of the user's function becomes an error with its line
        where, _ = split_location(location, key)
        raise FunctionError(f"{key} ({location}) fails in a trial: {error_with_line(error, Path(where))}") from error


def _made_terms(needs: AlgorithmNeeds, gap: float, *, is_two_policy: bool) -> Terms:
    """Two samples of a few tokens, with what the run will have; new log-probs are `gap` off the old ones."""
    advantages_N, old_N = torch.tensor(TRIED).unbind(1)
    new_N = (old_N - gap * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])).clamp(max=-1e-3).requires_grad_()
    rollout_N = old_N + 0.01
    fields = {"advantages": advantages_N, "weights": torch.full_like(old_N, 0.2), "rollout_logprobs": rollout_N}
    inputs = LossInputs(
        new_logprobs_N=new_N,
        old_logprobs_N=old_N if gap else new_N.detach(),
        advantages_N=advantages_N,
        weights_N=fields["weights"],
        sample_ids_N=torch.tensor([0, 0, 0, 1, 1]),
        num_samples=2,
        rollout_logprobs_N=rollout_N,
        reference_logprobs_N=old_N - 0.1 if needs.reference_logprobs else None,
        entropies_N=-new_N if needs.entropy else None,
        fields_N=fields,
    )
    return Terms(inputs, rollout_N if is_two_policy else inputs.old_logprobs_N)


def _made_group(prompt: Prompt, size: int, rewards: Sequence[WeightedReward]) -> Group:
    """Samples of a few tokens each; of more than two, the last has no valid reward."""
    samples = [_made_sample(prompt, index, rewards) for index in range(size)]
    if size > 2:
        samples[-1] = replace(samples[-1], reward=None, reward_parts={})
    return Group(prompt, tuple(samples))


def _made_sample(prompt: Prompt, index: int, rewards: Sequence[WeightedReward]) -> Sample:
    num_sampled = index % 3 + 1
    token_ids = np.concatenate([prompt.token_ids, prompt.token_ids[:1].repeat(num_sampled)])
    mask = np.arange(len(token_ids)) >= prompt.num_tokens
    row = Row(token_ids, mask, np.where(mask, -0.5, 0.0).astype(np.float32), np.where(mask, 0, -1))
    parts = {reward.name: RewardPart(index % 3 / 2, reward.weight) for reward in rewards}
    sample = Sample(index, (row,), FinishState.STOPPED, combine_rewards(parts), parts)
    return replace(sample, reward=0.0) if sample.reward is None else sample
