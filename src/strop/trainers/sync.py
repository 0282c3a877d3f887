"""The synchronous schedule: sample, then update, then publish, and prove each publication.

    publish v0, prove, canary
    [evaluate]
    step:  collect --groups--> update --weights--> publish and prove --> [evaluate] --> report --> [checkpoint]
    [evaluate], compare before and after

Ctrl-C drops a rollout that is under way and puts the prompt stream back to before it, so that resuming is as if the
run had never stopped; a step whose rollout is complete is finished.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NoReturn

from strop.checkpoint.store import FolderStore
from strop.cluster.interrupts import StopFlag, unless_stopped
from strop.errors import StropError
from strop.metrics import Metrics, maximum, merge, values
from strop.metrics.activity import Detail
from strop.records import Group
from strop.rollout.native.engine import NativeEngine
from strop.trainers.build import Run
from strop.trainers.evaluate import Evaluation, EvaluationPlan, EvaluationSettings, evaluate
from strop.trainers.report import Reporter
from strop.trainers.statistics import group_metrics
from strop.trainers.step import Collected, Updated, collect, prepare_update, update


class NoSignalError(StropError):
    """Dynamic sampling found no group worth training on within its bound."""


@dataclass(frozen=True)
class ScheduleSettings:
    """When things happen."""

    total_steps: int
    checkpoint_every: int
    """0 saves none."""
    evaluate_every: int
    """0 evaluates before and after only."""
    evaluate_before: bool
    evaluate_after: bool
    solved_at: float
    canary: bool
    sampler_sleeps: bool
    """Gives the sampler's memory back during updates."""
    stops_without_signal: bool
    """Ends the run where a step finds no group worth training on."""


class SyncTrainer:
    """Drives a run; owns the order of events and nothing else."""

    def __init__(
        self,
        run: Run,
        settings: ScheduleSettings,
        evaluation: EvaluationPlan | None,
        store: FolderStore | None,
        reporter: Reporter,
        stop: StopFlag,
    ) -> None:
        self.run = run
        self.settings = settings
        self.evaluation = evaluation
        self.reporter = reporter
        self._store = store
        self._stop = stop
        self._saved_step = run.state.step if run.state.step else None
        self._evaluated_step: int | None = None
        self._scores: dict[str, float | None] = {}

    def train(self) -> int:
        """Runs to the last step, the end of the data, or Ctrl-C; returns how many steps are complete."""
        state = self.run.state
        self._start()
        while state.step < self.settings.total_steps and not self._stop.is_set:
            if not self._step():
                break
        self._finish()
        return state.step

    # ----------------------------------------------------------------------------------------- the story

    def _start(self) -> None:
        run, state = self.run, self.run.state
        run.policy.set_version(state.version)
        with self._phase("publish", "the first weights to reach the sampler"):
            metrics = run.cluster.run(run.publisher.start(state.version, canary=self.settings.canary))
        if state.step == 0:
            if self.settings.evaluate_before and not self._stop.is_set:
                metrics = merge([metrics, self._evaluate()])
            self.reporter.step(0, self.settings.total_steps, metrics | self._timing(), [])
        else:
            self._timing()  # loading belongs to no step

    def _step(self) -> bool:
        """One step; False where the run must end before it was trained."""
        run = self.run
        collected = self._collect()
        if collected is None or not self._is_trainable(collected):
            return False
        with self._phase("update", f"gradients of {len(collected.kept)} groups"):
            prepared = prepare_update(run.roles, run.step, collected.kept)
            self._make_room(prepared.num_targets)
            updated = update(run.roles, run.step, prepared)
        run.state.step += 1
        published = self._publish(updated)
        evaluated = self._evaluate() if self._is_evaluation_due() else {}
        self._report(collected, updated, merge([published, evaluated]))
        if self.settings.checkpoint_every and run.state.step % self.settings.checkpoint_every == 0:
            self._save()
        return True

    def _finish(self) -> None:
        """Evaluates and saves what the last step left open; evaluation is left out after Ctrl-C."""
        step = self.run.state.step
        is_due = self.settings.evaluate_after and self._evaluated_step != step and not self._stop.is_set and step > 0
        if is_due:
            self._evaluate()
        if self.settings.checkpoint_every and (self._saved_step != step or is_due):
            self._save()
        if self._evaluated_step == step:
            self.reporter.comparison(step)

    # ----------------------------------------------------------------------------------------- its parts

    def _collect(self) -> Collected | None:
        """Collects a batch; None, and no prompt taken, where the run was asked to stop meanwhile."""
        run, before = self.run, self.run.stream.state()
        run.cluster.run(_with_empty_cache(run.engine))
        with self._phase("rollout", self._rollout_detail):
            collected = run.cluster.run(unless_stopped(collect(run.roles, run.step), self._stop))
        if collected is None:
            run.stream.restore(before)
        return collected

    def _is_trainable(self, collected: Collected) -> bool:
        """Whether there is something to train on."""
        if not collected.generated:
            self.reporter.console.info("the data are used up: every prompt was served `data.epochs` times")
            return False
        if not collected.kept and self.settings.stops_without_signal:
            if collected.data_ended and self.run.state.step > 0:
                self.reporter.console.info("the data are used up: the last groups had rewards that are all equal")
                return False
            self._stop_without_signal(collected)
        return True

    def _stop_without_signal(self, collected: Collected) -> NoReturn:
        """Keeps what was trained, and the samples that nothing can be learned from for a person to look at."""
        step = self.run.state.step + 1
        self.reporter.samples(step, collected.generated, [])
        self._save()
        rewards = [reward for group in collected.generated for reward in group.valid_rewards]
        mean_reward = f"{sum(rewards) / len(rewards):.3g}" if rewards else "none"
        raise NoSignalError(
            f"a step must find at least one group whose rewards differ, got none in {collected.num_rounds} rounds "
            f"({len(collected.generated)} groups, mean reward {mean_reward})",
            f"Look at them as step {step} of `strop samples`. Choose prompts of another difficulty, a larger "
            "rollout.group_size, or set algorithm.drop_zero_signal=false.",
        )

    def _make_room(self, num_targets: int) -> None:
        """Lets the sampler sleep while gradients are computed: the publication brings its weights anew."""
        if self.settings.sampler_sleeps and num_targets:
            self.run.cluster.run(self.run.engine.sleep(drop_weights=True))

    def _publish(self, updated: Updated) -> Metrics:
        """Publishes and proves where the weights changed, or where the sampler gave its own back."""
        run, state = self.run, self.run.state
        is_changed = any(report.applied for report in updated.reports)
        if not is_changed and run.engine.version is not None:
            return {}
        state.version += is_changed
        run.policy.set_version(state.version)
        with self._phase("publish", "the proof of weight sync"):
            return run.cluster.run(run.publisher.publish(state.version))

    def _is_evaluation_due(self) -> bool:
        every, step = self.settings.evaluate_every, self.run.state.step
        is_last = step == self.settings.total_steps and self.settings.evaluate_after
        return is_last or bool(every and step % every == 0)

    def _evaluate(self) -> Metrics:
        if self.evaluation is None:
            return {}
        step = self.run.state.step
        results: list[Evaluation] = []
        with self._phase("eval", f"{len(self.evaluation.prompts)} held-out prompts"):
            for settings in self.evaluation.settings:
                result = self._evaluate_as(settings)
                if result is None:
                    return {}
                results.append(result)
            drift = self._measure_drift(results[0].groups)
        self._evaluated_step = step
        self.reporter.evaluation(step, results)
        metrics = merge([drift, *(result.metrics for result in results)])
        self._scores = values(metrics)
        return metrics

    def _evaluate_as(self, settings: EvaluationSettings) -> Evaluation | None:
        """One way of evaluating; None where the run was asked to stop before its first step, which is repeated."""
        run, plan = self.run, self.evaluation
        assert plan is not None, "only called where there is a plan"
        coroutine = evaluate(run.roles.sampler, run.roles.judge, plan.prompts, settings)
        return run.cluster.run(coroutine if run.state.step else unless_stopped(coroutine, self._stop))

    def _measure_drift(self, groups: Sequence[Group]) -> Metrics:
        if self.run.state.step == 0:
            self.run.drift.begin(groups)
            return {}
        return self.run.drift.measure() if self.run.drift.is_set else {}

    def _report(self, collected: Collected, updated: Updated, further: Metrics) -> None:
        run, state = self.run, self.run.state
        metrics = group_metrics(
            collected.generated,
            num_kept=len(collected.kept),
            num_rounds=collected.num_rounds,
            solved_at=self.settings.solved_at,
        )
        timing = self._timing()
        if "timing/rollout_seconds" in timing:
            rollout_seconds = timing["timing/rollout_seconds"].value - collected.reward_seconds
            timing["timing/rollout_seconds"] = maximum(rollout_seconds, "s")
            timing["timing/reward_seconds"] = maximum(collected.reward_seconds, "s")
        state.tokens_sampled += int(metrics["tokens/sampled"].value)
        state.samples_rewarded += sum(len(group.samples) for group in collected.generated)
        memory = {
            "memory/peak_bytes": maximum(run.device.peak_memory_bytes(), "bytes"),
            "memory/released_bytes": maximum(run.engine.counters.released_bytes, "bytes"),
        }
        self.reporter.samples(state.step, collected.generated, updated.groups)
        everything = metrics | updated.metrics | further | timing | memory
        self.reporter.step(state.step, self.settings.total_steps, everything, collected.generated)
        for note in updated.notes:
            self.reporter.console.warn(note)

    def _save(self) -> None:
        """Saves the step, with the scores of its evaluation where it had one."""
        if self._store is None:
            return
        scores = self._scores if self._evaluated_step == self.run.state.step else {}
        known = {name: value for name, value in scores.items() if value is not None and name.startswith("eval/")}
        with self._phase("checkpoint", "weights, optimizer and counters to reach the disk"):
            self._store.save(self.run.state.step, self.run.parts, known)
        self._saved_step = self.run.state.step

    def _timing(self) -> Metrics:
        return self.reporter.console.clock.take()

    def _rollout_detail(self) -> str:
        return f"{self.run.engine.counters.decoded_tokens} tokens decoded so far"

    def _phase(self, name: str, detail: Detail = "") -> AbstractContextManager[None]:
        return self.reporter.console.phase(name, detail)


async def _with_empty_cache(engine: NativeEngine) -> None:
    """Frees the cache, so that its shapes, and with them rounding, do not depend on what ran before."""
    await engine.sleep()
    await engine.wake()
