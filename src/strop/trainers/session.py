"""A session: the verbs of a step, for a loop that you own.

    with strop.open_session(config) as session:
        for _ in range(10):
            groups = session.reward(session.sample(session.prompts(8)))
            groups = session.advantages(groups)
            session.forward_backward(groups)
            session.optimizer_step()
            session.publish()

Each verb does what the step of a schedule does and nothing else; any of them may be replaced by code of yours.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from strop.config.root import Config
from strop.errors import ConfigError
from strop.metrics import Metrics
from strop.protocols import LossFunction, UpdateReport
from strop.records import Group, Prompt, Sample
from strop.trainers.build import Run, build_run
from strop.trainers.evaluate import Evaluation, evaluate
from strop.trainers.inputs import Inputs, evaluation_plan, prepare_inputs
from strop.trainers.step import plan_mini_batch, sample_group, stream_keys
from strop.training.plan import plan_micro_batches


class Session:
    """A built run without a schedule and without a run folder."""

    def __init__(self, config: Config, inputs: Inputs, run: Run) -> None:
        self.config = config
        self.inputs = inputs
        self.run = run

    def prompts(self, num_prompts: int) -> list[Prompt]:
        """The next training prompts: each row once an epoch."""
        return self.run.stream.take(num_prompts)

    def sample(self, prompts: Sequence[Prompt], group_size: int | None = None) -> list[Group]:
        """Samples a group for each prompt, all at once; `group_size` defaults to the config's."""
        size = group_size or self.run.step.group_size
        settings, sampler = self.run.step, self.run.roles.sampler

        async def all_groups() -> list[Group]:
            requests = (
                sample_group(sampler, prompt, stream_keys(prompt, size, settings.seed, "train"), settings.sampling)
                for prompt in prompts
            )
            return list(await asyncio.gather(*requests))

        return self.run.cluster.run(all_groups())

    def reward(self, groups: Sequence[Group]) -> list[Group]:
        """Returns the groups with rewards on their samples."""

        async def all_groups() -> list[Group]:
            return list(await asyncio.gather(*(self.inputs.judge(group) for group in groups)))

        return self.run.cluster.run(all_groups())

    def advantages(self, groups: Sequence[Group]) -> list[Group]:
        """Returns the groups with the algorithm's advantages on every sampled token."""
        return self.run.roles.algorithm.advantages(groups)

    def forward_backward(
        self,
        groups: Sequence[Group],
        loss: LossFunction | None = None,
        weights: Mapping[tuple[int, int], float] | None = None,
    ) -> Metrics:
        """Adds the gradient of the groups, as one mini-batch.

        Args:
            groups: with advantages.
            loss: a function of `LossInputs`; the algorithm's by default.
            weights: per (group, sample) the weight of each of its tokens; the algorithm's by default.
        """
        if weights is None:
            plan = plan_mini_batch(self.run.roles, self.run.step, groups)
        else:
            step = self.run.step
            plan = plan_micro_batches(
                groups, weights, weights, max_tokens=step.micro_batch_tokens, share_prefix=step.share_prefix
            )
        return self.run.policy.forward_backward(plan, loss or self.run.roles.algorithm.loss)

    def optimizer_step(self) -> UpdateReport:
        """Clips and applies the gradient, and clears it."""
        return self.run.policy.optimizer_step()

    def publish(self) -> Metrics:
        """Brings the weights to the sampler and proves that they arrived."""
        state = self.run.state
        state.version += 1
        self.run.policy.set_version(state.version)
        return self.run.cluster.run(self.run.publisher.publish(state.version))

    def evaluate(self) -> list[Evaluation]:
        """Evaluates on the held-out prompts of the config, in each of its ways; training streams stay untouched."""
        plan = evaluation_plan(self.config, self.inputs)
        if plan is None:
            raise ConfigError("there must be an [evaluation] section to evaluate, got none")
        roles, cluster = self.run.roles, self.run.cluster
        return [cluster.run(evaluate(roles.sampler, roles.judge, plan.prompts, one)) for one in plan.settings]

    def text(self, sample: Sample) -> str:
        """What a sample says."""
        return self.inputs.text_of(sample)

    def close(self) -> None:
        """Ends what runs; the session is of no use afterwards."""
        self.run.cluster.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_session(config: Config) -> Session:
    """Builds everything that the config names, publishes the first weights and proves them."""
    inputs = prepare_inputs(config)
    run = build_run(config, inputs)
    run.cluster.run(run.publisher.start(run.state.version, canary=config.weight_sync.canary))
    return Session(config, inputs, run)
