"""What ends a run of its own accord."""

from typing import Self

from strop.errors import StropError
from strop.trainers.statistics import first_error
from strop.trainers.step import Collected


class NoSignalError(StropError):
    """Dynamic sampling found no group worth training on within its bound."""

    @classmethod
    def of(cls, collected: Collected, step: int) -> Self:
        """The error of a step whose samples are stored and taught nothing."""
        rewards = [reward for group in collected.generated for reward in group.valid_rewards]
        mean_reward = f"{sum(rewards) / len(rewards):.3g}" if rewards else "none"
        return cls(
            f"a step must find at least one group whose rewards differ, got none in {collected.num_rounds} rounds "
            f"({len(collected.generated)} groups, mean reward {mean_reward})",
            f"Look at them as step {step} of `strop samples`. Choose prompts of another difficulty, a larger "
            "rollout.group_size, or set algorithm.drop_zero_signal=false.",
        )


class NoRewardError(StropError):
    """No sample of several steps in a row could be judged."""

    @classmethod
    def of(cls, collected: Collected, num_steps: int) -> Self:
        """The error of the last of these steps."""
        found = first_error(collected.generated)
        cause = "none raised an error: the rewards were None" if found is None else f"the first error: {found}"
        return cls(
            f"a run must be able to judge its samples, got no valid reward in {num_steps} steps; {cause}",
            "Mend the reward, then go on with --resume, or begin anew with --overwrite.",
        )
