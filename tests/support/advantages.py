"""Groups for advantage estimators: rows drawn as text, with every field that an estimator may read."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import ResolvedAlgorithm, resolve_algorithm
from strop.records import FinishState, Group, RewardPart, Row, Sample
from support.groups import made_prompt


def resolved(name: str, **overrides: object) -> ResolvedAlgorithm:
    """A bundle with its overrides."""
    return resolve_algorithm(AlgorithmConfig.model_validate({"name": name, **overrides}), 16)


def drawn_row(drawing: str, seed: int = 0, *, token_rewards: bool = False) -> Row:
    """A row drawn as `..xx.x`: x where the policy sampled the token. Its fields are random, 0 where it did not."""
    generator = np.random.default_rng([seed, len(drawing)])
    mask = np.array([mark == "x" for mark in drawing], dtype=np.bool_)
    size = len(drawing)
    fields = {
        "values": generator.normal(size=size),
        "old_logprobs": -generator.exponential(size=size),
        "collisions": generator.uniform(0.2, 0.8, size=size),
    }
    if token_rewards:
        fields["token_rewards"] = generator.normal(scale=0.1, size=size)
    at_sampled = {name: np.where(mask, values, 0).astype(np.float32) for name, values in fields.items()}
    return Row(np.arange(size), mask, np.zeros(size, np.float32), np.where(mask, 0, -1), fields=at_sampled)


def drawn_sample(
    index: int,
    reward: float | None,
    *drawings: str,
    finish: FinishState = FinishState.STOPPED,
    parts: dict[str, RewardPart] | None = None,
    token_rewards: bool = False,
) -> Sample:
    """A sample of drawn rows."""
    rows = tuple(
        drawn_row(drawing, 31 * index + number, token_rewards=token_rewards) for number, drawing in enumerate(drawings)
    )
    return Sample(index, rows, finish, reward, parts or {})


def drawn_group(
    rewards: Sequence[float | None],
    drawings: Sequence[str] | None = None,
    *,
    baseline: float | None = 0.25,
    token_rewards: bool = False,
) -> Group:
    """A group of stopped samples of one row each, and a greedy baseline."""
    drawings = drawings or ["..xx"] * len(rewards)
    pairs = zip(rewards, drawings, strict=True)
    samples = tuple(
        drawn_sample(index, reward, drawing, token_rewards=token_rewards)
        for index, (reward, drawing) in enumerate(pairs)
    )
    return Group(made_prompt(), samples, drawn_sample(0, baseline, "..xx"))


def sampled_advantages(group: Group) -> list[list[float]]:
    """The advantages of each sample's sampled tokens, over all rows; fails where another token has one."""
    return [
        [value for row in sample.rows for value in _at_sampled(row.advantages, row.loss_mask)]
        for sample in group.samples
    ]


def _at_sampled(advantages: NDArray[np.float32] | None, mask: NDArray[np.bool_]) -> list[float]:
    assert advantages is not None
    assert not advantages[~mask].any()
    return [float(value) for value in advantages[mask]]
