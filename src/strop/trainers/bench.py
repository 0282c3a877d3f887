"""Times whole steps of a fixed size: GRPO, float32, one optimizer update a step, the end of a sample is ignored.

A step is what a run does: sample, reward, update, publish and prove. Loading is not timed; the first step warms
up and is not counted.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from strop.config.data import DataConfig, JsonlSource
from strop.config.model import ModelConfig
from strop.config.rollout import RolloutConfig
from strop.config.root import Config
from strop.config.run import RunConfig
from strop.config.training import TrainingConfig
from strop.data import (
    DataReport,
    DataRow,
    Duplicates,
    PromptTable,
    RenderedRow,
    SourceReport,
    SourceRows,
    build_renderer,
)
from strop.metrics.timing import PhaseClock
from strop.models.load import load_policy
from strop.protocols import Sampler
from strop.records import Completion, Group, GroupRequest
from strop.trainers.build import Run, build_run
from strop.trainers.inputs import Inputs
from strop.trainers.samplers import sleep
from strop.trainers.step import collect, prepare_update, update

PHASES = ("rollout", "update", "publish")


@dataclass(frozen=True)
class Work:
    """What one step does."""

    model: str
    prompts: int
    group_size: int
    prompt_tokens: int
    new_tokens: int
    shortest: int
    """Budgets are drawn uniformly from `shortest` to `new_tokens`; equal numbers make all samples equally long."""
    steps: int
    threads: int
    micro_batch_tokens: int


@dataclass(frozen=True)
class BenchReport:
    """Seconds of each counted step and its phases."""

    work: Work
    step_seconds: list[float]
    phase_seconds: dict[str, list[float]]
    sampled_tokens: list[int]
    computed_tokens: list[int]
    """Tokens that went through the model in training."""
    peak_memory_bytes: int

    def as_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(asdict(self))

    def __str__(self) -> str:
        work = self.work
        lines = [
            f"{work.model}: {work.prompts} prompts of {work.prompt_tokens} tokens x {work.group_size} samples of "
            f"{work.new_tokens} tokens, {work.threads or 'all'} threads",
            f"  {'step':8} {_median(self.step_seconds):7.2f} s",
        ]
        lines += [f"  {name:8} {_median(seconds):7.2f} s" for name, seconds in self.phase_seconds.items()]
        sampling = sum(self.sampled_tokens) / max(1e-9, sum(self.phase_seconds["rollout"]))
        training = sum(self.computed_tokens) / max(1e-9, sum(self.phase_seconds["update"]))
        lines.append(f"  {sampling:.0f} sampled and {training:.0f} trained tokens/s in their phases")
        lines.append(f"  peak memory {self.peak_memory_bytes / 1e9:.2f} GB")
        return "\n".join(lines)


def bench_step(work: Work) -> BenchReport:
    """Runs one step to warm up and `work.steps` counted ones."""
    run = _build(work)
    run.cluster.run(run.publisher.start(0, canary=False))
    clock = PhaseClock()
    seconds: list[dict[str, float]] = []
    sampled: list[int] = []
    computed: list[int] = []
    for step in range(work.steps + 1):
        clock.take()
        groups, num_computed = _step(run, clock, step + 1)
        seconds.append({name: metric.value for name, metric in clock.take().items()})
        sampled.append(sum(sample.num_sampled_tokens for group in groups for sample in group.samples))
        computed.append(num_computed)
    run.cluster.close()
    counted = seconds[1:]
    return BenchReport(
        work,
        [one["timing/step_seconds"] for one in counted],
        {phase: [one[f"timing/{phase}_seconds"] for one in counted] for phase in PHASES},
        sampled[1:],
        computed[1:],
        run.device.peak_memory_bytes(),
    )


def _step(run: Run, clock: PhaseClock, version: int) -> tuple[list[Group], int]:
    with clock.phase("rollout"):
        collected = run.cluster.run(collect(run.roles, run.step))
    with clock.phase("update"):
        prepared = prepare_update(run.roles, run.step, collected.kept)
        run.cluster.run(sleep(run.samplers, drop_weights=True))
        updated = update(run.roles, run.step, prepared)
    with clock.phase("publish"):
        run.policy.set_version(version)
        run.cluster.run(run.publisher.publish(version))
    return collected.generated, int(updated.metrics["tokens/computed"].value)


def _build(work: Work) -> Run:
    config = Config(
        run=RunConfig(threads=work.threads),
        model=ModelConfig(path=work.model),
        data=DataConfig(source=JsonlSource(path="generated"), task="columns", instruction=""),
        rollout=RolloutConfig(
            prompts_per_step=work.prompts, group_size=work.group_size, max_new_tokens=work.new_tokens
        ),
        training=TrainingConfig(learning_rate=1e-5, micro_batch_tokens=work.micro_batch_tokens),
    )
    inputs = _inputs(config, work)
    run = build_run(config, inputs)
    sampler = _Budgeted(run.roles.sampler, work) if work.shortest < work.new_tokens else run.roles.sampler
    step = replace(run.step, sampling=replace(run.step.sampling, ignore_stop=True))
    return replace(run, roles=replace(run.roles, judge=_judge, sampler=sampler), step=step)


def _inputs(config: Config, work: Work) -> Inputs:
    """Prompts of random tokens, exactly as long as asked, without any file."""
    loaded = load_policy(config.model)
    generator = np.random.default_rng(0)
    vocabulary = [token for token in range(len(loaded.tokenizer)) if token not in loaded.stops.token_ids]
    rows = tuple(DataRow(f"row-{index}", {}, "generated") for index in range(work.prompts * (work.steps + 1)))
    rendered = [RenderedRow(row, (), generator.choice(vocabulary, work.prompt_tokens), "columns") for row in rows]
    table = PromptTable(tuple(rendered))
    source = SourceReport.of(SourceRows("generated", rows), "columns", (), rendered, table)
    report = DataReport((source,), Duplicates(0, 0), None, ())
    renderer = build_renderer(loaded.tokenizer, config.data)
    return Inputs(loaded.tokenizer, renderer, {}, loaded.stops, loaded.max_length, table, report, None, None)


async def _judge(group: Group) -> Group:
    """Rewards that always differ, so that every sample is trained on."""
    count = len(group.samples)
    return group.with_samples([replace(sample, reward=sample.index / count) for sample in group.samples])


@dataclass(frozen=True)
class _Budgeted:
    """Gives each sample a budget of its own."""

    sampler: Sampler
    work: Work

    async def generate(self, request: GroupRequest) -> list[Completion]:
        draw = random.Random(f"{request.streams[0].prompt_id}/{request.streams[0].visit}")
        budgets = tuple(draw.randint(self.work.shortest, self.work.new_tokens) for _ in request.streams)
        return await self.sampler.generate(replace(request, budgets=budgets))


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
