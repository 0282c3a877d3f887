"""The synchronous schedule: sample, then update, then publish, and prove each publication.

    publish v0, prove, canary
    [evaluate]
    step:  collect --groups--> update --weights--> publish and prove --> [evaluate] --> report --> [checkpoint]
    [evaluate], compare before and after

Ctrl-C drops a rollout that is under way and puts the prompt stream back to before it, so that resuming is as if the
run had never stopped; a step whose rollout is complete is finished.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NoReturn

from strop.checkpoint.store import FolderStore
from strop.cluster.interrupts import StopFlag, unless_stopped
from strop.metrics import Metrics, merge
from strop.metrics.activity import Detail
from strop.trainers.build import Run
from strop.trainers.errors import NoRewardError, NoSignalError
from strop.trainers.evaluate import EvaluationPlan
from strop.trainers.held_out import EvaluationTimes, HeldOut
from strop.trainers.judgements import UnjudgedSteps
from strop.trainers.report import Reporter
from strop.trainers.samplers import empty_caches, have_weights, sleep
from strop.trainers.step import Collected, Updated, collect, prepare_update, update
from strop.trainers.step_report import memory_metrics, step_metrics, with_rewards_apart


@dataclass(frozen=True)
class ScheduleSettings:
    """When things happen."""

    total_steps: int
    checkpoint_every: int
    """0 saves none."""
    evaluations: EvaluationTimes
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
        self.held_out = HeldOut(run, evaluation, settings.evaluations, reporter, stop)
        self.reporter = reporter
        self._store = store
        self._stop = stop
        self._unjudged = UnjudgedSteps()
        self._saved_step = run.state.step if run.state.step else None

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
            metrics = merge([metrics, self.held_out.before()])
            self.reporter.step(0, self.settings.total_steps, metrics | self._timing(), [])
        else:
            self._timing()  # loading belongs to no step

    def _step(self) -> bool:
        """One step; False where the run must end before it was trained."""
        run = self.run
        collected = self._collect()
        self._leave_out_lost()
        if collected is None or not self._is_trainable(collected):
            return False
        with self._phase("update", f"gradients of {len(collected.kept)} groups"):
            prepared = prepare_update(run.roles, run.step, collected.kept)
            self._make_room(prepared.num_targets)
            updated = update(run.roles, run.step, prepared)
        run.state.step += 1
        published = self._publish(updated)
        evaluated = self.held_out.between(is_last=run.state.step == self.settings.total_steps)
        self._report(collected, updated, merge([published, evaluated]))
        if self.settings.checkpoint_every and run.state.step % self.settings.checkpoint_every == 0:
            self._save()
        self._unjudged.count(collected.generated)
        is_last = run.state.step == self.settings.total_steps
        if self._unjudged.ends_run or (is_last and self._unjudged.was_all):
            raise NoRewardError.of(collected, self._unjudged.num_last)
        return True

    def _finish(self) -> None:
        """Evaluates and saves what the last step left open."""
        step = self.run.state.step
        is_evaluated_now = self.held_out.after()
        if self.settings.checkpoint_every and (self._saved_step != step or is_evaluated_now):
            self._save()
        if self.held_out.is_fresh:
            self.reporter.comparison(step)

    # ----------------------------------------------------------------------------------------- its parts

    def _collect(self) -> Collected | None:
        """Collects a batch; None, and no prompt taken, where the run was asked to stop meanwhile."""
        self._leave_out_lost()
        run, before = self.run, self.run.stream.state()
        run.cluster.run(empty_caches(run.samplers))
        with self._phase("rollout", run.samplers.detail):
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
        raise NoSignalError.of(collected, step)

    def _make_room(self, num_targets: int) -> None:
        """Lets the sampler sleep while gradients are computed: the publication brings its weights anew."""
        if self.settings.sampler_sleeps and num_targets:
            self.run.cluster.run(sleep(self.run.samplers, drop_weights=True))

    def _leave_out_lost(self) -> None:
        """Goes on without samplers that are gone, whose requests the others have redone."""
        run = self.run
        lost = {**run.router.lost, **run.cluster.run(run.samplers.gone())}
        for name in [name for name in lost if name in run.samplers.engines]:
            if len(run.samplers.engines) == 1:
                raise lost[name]
            run.router.leave_out(name, lost[name])
            run.samplers.leave_out(name)
            run.publisher.leave_out(name)
            self.reporter.console.warn(f"{name} is gone: its requests were redone by the others, which go on alone")

    def _publish(self, updated: Updated) -> Metrics:
        """Publishes and proves where the weights changed, or where the sampler gave its own back."""
        self._leave_out_lost()
        run, state = self.run, self.run.state
        is_changed = any(report.applied for report in updated.reports)
        if not is_changed and run.cluster.run(have_weights(run.samplers)):
            return {}
        state.version += is_changed
        run.policy.set_version(state.version)
        with self._phase("publish", "the proof of weight sync"):
            return run.cluster.run(run.publisher.publish(state.version))

    def _report(self, collected: Collected, updated: Updated, further: Metrics) -> None:
        run, step = self.run, self.run.state.step
        measured = step_metrics(collected, updated, self.settings.solved_at)
        run.state.count(collected.generated)
        timing = with_rewards_apart(self._timing(), collected.reward_seconds)
        self.reporter.samples(step, collected.generated, updated.groups)
        everything = measured | further | timing | memory_metrics(run) | run.router.take_metrics()
        self.reporter.step(step, self.settings.total_steps, everything, collected.generated)
        for note in updated.notes:
            self.reporter.console.warn(note)

    def _save(self) -> None:
        """Saves the step, with the scores of its evaluation where it had one."""
        if self._store is None:
            return
        with self._phase("checkpoint", "weights, optimizer and counters to reach the disk"):
            self._store.save(self.run.state.step, self.run.parts, self.held_out.scores)
        self._saved_step = self.run.state.step

    def _timing(self) -> Metrics:
        return self.reporter.console.clock.take()

    def _phase(self, name: str, detail: Detail = "") -> AbstractContextManager[None]:
        return self.reporter.console.phase(name, detail)
