r"""GRPO in one file, written out by hand: `python examples/grpo_from_scratch.py [RUN.toml] [section.key=value ...]`.

The loop below owns everything that makes GRPO (Shao et al. 2024, arXiv:2402.03300): advantages, weights of tokens,
and the clipped loss. strop lends the verbs that know nothing of it:

    prompts --> sample --> reward --> [advantages] --> forward_backward([loss], [weights]) --> optimizer_step
       ^                                                                                             |
       +------------------------------------ publish <-----------------------------------------------+

Nothing here is imported from `strop.algorithms`, so that this file can tell when that code is wrong:
`tests/parity/test_grpo_from_scratch.py` holds its weights against those of `strop train` on the same run file.
It trains with one update a batch, as a run file does by default.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

import strop
from strop.protocols import LossInputs, LossOutputs
from strop.records import Group, Sample
from strop.trainers.session import Session

DEFAULT_RUN_FILE = Path(__file__).parent / "demo.toml"
CLIP = 0.2
"""How far the ratio of new to old probability may move before a token's gradient stops."""
EPSILON = 1e-6
"""Keeps the division by a small standard deviation finite."""

SampleKey = tuple[int, int]
"""(place of the group, place of the sample in it)."""


def bears_loss(sample: Sample) -> bool:
    """Says whether a sample counts: it was judged, and the policy ended it or used its budget up."""
    return sample.reward is not None and sample.finish in ("stopped", "length") and sample.num_sampled_tokens > 0


def group_advantages(rewards: Sequence[float | None]) -> list[float]:
    """Returns how many standard deviations (n - 1) each reward lies above the mean of its group.

    A reward of None is unknown: it gets 0 and stays out of mean and deviation. Equal rewards teach nothing:
    they get exactly 0.
    """
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2 or max(known) == min(known):
        return [0.0] * len(rewards)
    mean = sum(known) / len(known)
    variance = sum((reward - mean) ** 2 for reward in known) / (len(known) - 1)
    return [0.0 if reward is None else (reward - mean) / (variance**0.5 + EPSILON) for reward in rewards]


def with_advantages(group: Group) -> Group:
    """Returns the group with each sample's advantage on all of its sampled tokens."""
    advantages = group_advantages([sample.reward for sample in group.samples])
    pairs = zip(group.samples, advantages, strict=True)
    return group.with_samples([sample.with_token_advantage(advantage) for sample, advantage in pairs])


def token_weights(groups: Sequence[Group]) -> dict[SampleKey, float]:
    """Returns the weight of each token by sample: the mean over samples of the mean over a sample's tokens."""
    lengths = {
        (g, s): sample.num_sampled_tokens
        for g, group in enumerate(groups)
        for s, sample in enumerate(group.samples)
        if bears_loss(sample)
    }
    return {key: 1 / (len(lengths) * length) for key, length in lengths.items()}


def teaching(groups: Sequence[Group], weights: Mapping[SampleKey, float]) -> dict[SampleKey, float]:
    """Returns the weights of samples whose advantage is not 0: the others have no gradient.

    They stay in the denominators, and where none is left the optimizer rests instead of coasting on its momentum.
    """
    return {
        (g, s): weight
        for (g, s), weight in weights.items()
        if any(row.advantages.any() for row in groups[g].samples[s].rows)
    }


def clipped_loss(inputs: LossInputs) -> LossOutputs:
    """Sums weight * -min(ratio * A, clip(ratio) * A) over the N sampled tokens of a micro-batch.

    The weights are fixed over the whole batch, so that however it is cut into micro-batches, their sums add up to
    the loss of the batch.
    """
    ratio_N = torch.exp(inputs.new_logprobs_N - inputs.old_logprobs_N)
    plain_N = ratio_N * inputs.advantages_N
    clipped_N = ratio_N.clamp(1 - CLIP, 1 + CLIP) * inputs.advantages_N
    return LossOutputs(-(inputs.weights_N * torch.minimum(plain_N, clipped_N)).sum())


def train_step(session: Session, num_prompts: int) -> list[Group]:
    """Runs one step and returns its groups; none at the end of the data."""
    groups = session.reward(session.sample(session.prompts(num_prompts)))
    if not groups:
        return []
    groups = [with_advantages(group) for group in groups]
    session.forward_backward(groups, loss=clipped_loss, weights=teaching(groups, token_weights(groups)))
    report = session.optimizer_step()
    if report.applied:
        session.publish()
    else:
        print(f"  no update: {report.reason}")
    return groups


def train(session: Session, num_steps: int) -> None:
    """Runs steps until there are enough or the data end, and tells of each in a line."""
    for step in range(1, num_steps + 1):
        groups = train_step(session, session.config.rollout.prompts_per_step)
        if not groups:
            return
        print(f"step {step}: {describe(groups)}")


def describe(groups: Sequence[Group]) -> str:
    """Returns the mean reward, its reach, and how long the samples are."""
    rewards = [reward for group in groups for reward in group.valid_rewards]
    lengths = [sample.num_sampled_tokens for group in groups for sample in group.samples]
    spread = f"{min(rewards):.2f} to {max(rewards):.2f}" if rewards else "none"
    mean = sum(rewards) / len(rewards) if rewards else float("nan")
    return f"reward {mean:.3f} ({spread}), {sum(lengths) / len(lengths):.1f} tokens a sample"


def main(arguments: Sequence[str]) -> None:
    """Trains as the run file says."""
    is_file_given = bool(arguments) and "=" not in arguments[0]
    run_file = Path(arguments[0]) if is_file_given else DEFAULT_RUN_FILE
    config = strop.load_config(run_file, arguments[1:] if is_file_given else arguments)
    with strop.open_session(config) as session:
        train(session, config.run.steps)
        if config.evaluation is not None:
            for evaluation in session.evaluate():
                print(f"held out, {evaluation.label}: accuracy {accuracy(evaluation.groups):.1%}")


def accuracy(groups: Sequence[Group]) -> float:
    """Returns the share of samples with the full reward."""
    solved = [sample.reward is not None and sample.reward >= 1 for group in groups for sample in group.samples]
    return sum(solved) / len(solved)


if __name__ == "__main__":
    main(sys.argv[1:])
