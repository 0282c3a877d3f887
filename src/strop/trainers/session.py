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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from types import TracebackType

from strop.config.root import Config
from strop.errors import ConfigError
from strop.metrics import Metrics, merge
from strop.protocols import LossFunction, UpdateReport
from strop.records import Group, MicroBatchPlan, Prompt, Sample
from strop.trainers.build import Run, build_run
from strop.trainers.evaluate import Evaluation, evaluate
from strop.trainers.inputs import Inputs, evaluation_plan, prepare_inputs
from strop.trainers.passes import plan_mini_batch, ready, score_rows
from strop.trainers.sampling import judge_for_training, sample_for_training
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.plan import plan_micro_batches


class Session(AbstractContextManager["Session"]):
    """A built run without a schedule and without a run folder."""

    def __init__(self, config: Config, inputs: Inputs, run: Run) -> None:
        self.config = config
        self.inputs = inputs
        self.run = run
        self._has_moved = False

    def prompts(self, num_prompts: int) -> list[Prompt]:
        """The next training prompts: each row once an epoch."""
        return self.run.stream.take(num_prompts)

    def sample(self, prompts: Sequence[Prompt], group_size: int | None = None) -> list[Group]:
        """Samples a group for each prompt, all at once; `group_size` defaults to the config's."""
        settings = replace(self.run.step, group_size=group_size or self.run.step.group_size)

        async def all_groups() -> list[Group]:
            requests = (sample_for_training(self.run.roles, settings, prompt) for prompt in prompts)
            return list(await asyncio.gather(*requests))

        return self.run.cluster.run(all_groups())

    def reward(self, groups: Sequence[Group]) -> list[Group]:
        """Returns the groups with rewards on their samples, truncation counted as the algorithm says."""

        async def all_groups() -> list[Group]:
            return list(await asyncio.gather(*(judge_for_training(self.run.roles, group) for group in groups)))

        return self.run.cluster.run(all_groups())

    def advantages(self, groups: Sequence[Group]) -> list[Group]:
        """Returns the groups with the algorithm's advantages on every sampled token, scored before where it asks."""
        scored, _ = score_rows(self.run.roles, self.run.step, groups)
        return self.run.roles.algorithm.advantages(scored)

    def forward_backward(
        self,
        groups: Sequence[Group],
        loss: LossFunction | None = None,
        weights: Mapping[tuple[int, int], float] | None = None,
    ) -> Metrics:
        """Adds the gradient of the groups, as one mini-batch.

        Old log-probs are the new ones where the weights are those that sampled the groups, so that the ratio is
        exactly 1; after an update, they are the sampler's.

        Args:
            groups: with advantages.
            loss: a function of `LossInputs`; the algorithm's by default.
            weights: per (group, sample) the weight of each of its tokens; the algorithm's by default.

        Raises ConfigError where the algorithm's loss is wanted and no sample has an advantage set.
        """
        rows = [row for group in groups for sample in group.samples for row in sample.rows]
        if loss is None and rows and all(row.advantages is None for row in rows):
            raise ConfigError(
                "the groups of forward_backward must have advantages, got none",
                "Call session.reward and session.advantages first, and go on with the groups that they return.",
            )
        plan = self._plan(groups, weights)
        if self._is_off_policy(groups):
            plan = plan.with_field("old_logprobs", [batch.fields_N["rollout_logprobs"] for batch in plan.micro_batches])
        if loss is None:
            plan, metrics = ready(self.run.roles, plan, is_first=False)
            return merge([metrics, self.run.policy.forward_backward(plan, self.run.roles.algorithm.loss)])
        policy = self.run.policy
        with _of_any_gradient(policy) if isinstance(policy, Fsdp2Engine) else nullcontext():
            return policy.forward_backward(plan, loss)

    def _plan(self, groups: Sequence[Group], weights: Mapping[tuple[int, int], float] | None) -> MicroBatchPlan:
        step = self.run.step
        if weights is None:
            return plan_mini_batch(self.run.roles, step, groups)
        return plan_micro_batches(
            groups, weights, weights, max_tokens=step.micro_batch_tokens, share_prefix=step.share_prefix
        )

    def _is_off_policy(self, groups: Sequence[Group]) -> bool:
        """Whether any token was sampled by other weights than those that are trained now."""
        rows = [row for group in groups for sample in group.samples for row in sample.rows]
        version = self.run.policy.version
        return self._has_moved or any(bool((row.policy_versions[row.loss_mask] != version).any()) for row in rows)

    def optimizer_step(self) -> UpdateReport:
        """Clips and applies the gradient, and clears it."""
        report = self.run.policy.optimizer_step()
        self._has_moved = self._has_moved or report.applied
        return report

    def publish(self) -> Metrics:
        """Brings the weights to the sampler and proves that they arrived."""
        state = self.run.state
        state.version += 1
        self.run.policy.set_version(state.version)
        metrics = self.run.cluster.run(self.run.publisher.publish(state.version))
        self._has_moved = False
        return metrics

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
        self.run.samplers.close()
        self.run.cluster.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _of_any_gradient(policy: Fsdp2Engine) -> Iterator[None]:
    """Lets a loss that is not the algorithm's have whatever gradient it has, also on the first update."""
    needs, policy.needs = policy.needs, replace(policy.needs, on_policy_gradient_known=False)
    try:
        yield
    finally:
        policy.needs = needs


def open_session(config: Config) -> Session:
    """Builds everything that the config names, publishes the first weights and proves them."""
    inputs = prepare_inputs(config)
    run = build_run(config, inputs)
    run.cluster.run(run.publisher.start(run.state.version, canary=config.weight_sync.canary))
    return Session(config, inputs, run)
