"""The loop of offline training: a batch, its update, and the held-out loss when it is due.

    [evaluate]
    step:  take a batch --> plan --> forward_backward --> optimizer_step --> [evaluate] --> report --> [checkpoint]

Ctrl-C ends the run between two steps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from strop.checkpoint.store import FolderStore
from strop.cluster.interrupts import StopFlag
from strop.config.offline import OfflineEvaluationConfig
from strop.metrics import Metrics, maximum, merge, values
from strop.records import Group
from strop.trainers.offline.build import OfflineRun
from strop.trainers.offline.passes import evaluate_batch, plan_batch, with_margin
from strop.trainers.report import Reporter
from strop.trainers.run_folder import RunFolder
from strop.trainers.updates import naming_prompts, skip_note, update_metrics

HELD_OUT = "held_out"
"""Names the evaluation in the run folder."""


@dataclass(frozen=True)
class OfflineSchedule:
    """When things happen."""

    total_steps: int
    checkpoint_every: int
    """0 saves none."""
    evaluation: OfflineEvaluationConfig | None


class OfflineTrainer:
    """Drives a run; owns the order of events and nothing else."""

    def __init__(
        self,
        run: OfflineRun,
        schedule: OfflineSchedule,
        held_out: Sequence[Group],
        store: FolderStore | None,
        reporter: Reporter,
        folder: RunFolder,
        stop: StopFlag,
    ) -> None:
        self.run = run
        self._schedule = schedule
        self._held_out = held_out
        self._store = store
        self._reporter = reporter
        self._folder = folder
        self._stop = stop
        self._saved_step = run.state.step or None
        self._evaluated_step: int | None = None
        self._scores: dict[str, float] = {}

    def train(self) -> int:
        """Runs to the last step, the end of the data, or Ctrl-C; returns how many steps are complete."""
        state, total = self.run.state, self._schedule.total_steps
        self._start()
        while state.step < total and not self._stop.is_set:
            groups = self.run.stream.take(self.run.batch_size)
            if not groups:
                break
            self._step(groups)
        self._finish()
        return state.step

    def _start(self) -> None:
        evaluation = self._schedule.evaluation
        if self.run.state.step == 0:
            metrics = self._evaluate() if evaluation is not None and evaluation.before else {}
            self._reporter.step(0, self._schedule.total_steps, metrics | self._timing(), [])
        else:
            self._timing()  # loading belongs to no step

    def _step(self, groups: Sequence[Group]) -> None:
        run, state, total = self.run, self.run.state, self._schedule.total_steps
        with self._reporter.console.phase("update", f"gradients of {len(groups)} rows"):
            plan = plan_batch(run.roles, groups)
            metrics = run.roles.policy.forward_backward(plan, run.roles.method.loss)
            with naming_prompts(groups):
                report = run.roles.policy.optimizer_step()
        state.step += 1
        state.num_examples += len(groups)
        state.num_tokens += plan.num_targets
        # A version counts the changes of the weights, as it does where they are published.
        run.roles.policy.set_version(run.roles.policy.version + report.applied)
        evaluated = self._evaluate() if self._is_due(state.step) else {}
        measured = with_margin(metrics) | update_metrics([report], [plan]) | self._progress() | evaluated
        self._reporter.step(state.step, total, measured | self._timing(), [])
        for note in skip_note(report, groups):
            self._reporter.console.warn(note)
        if self._schedule.checkpoint_every and state.step % self._schedule.checkpoint_every == 0:
            self._save()

    def _is_due(self, step: int) -> bool:
        evaluation = self._schedule.evaluation
        if evaluation is None:
            return False
        is_last = step == self._schedule.total_steps
        return (is_last and evaluation.after) or bool(evaluation.every and step % evaluation.every == 0)

    def _finish(self) -> None:
        """Saves what the last step left open, and compares the held-out loss of before and after."""
        step = self.run.state.step
        if self._schedule.checkpoint_every and self._saved_step != step and step:
            self._save()
        before = self._folder.read_evaluations().get("0", {}).get(HELD_OUT)
        if before is not None and step and self._evaluated_step == step:
            old, new = before["metrics"]["eval/loss"], self._scores["eval/loss"]
            self._reporter.console.info(f"held-out loss: {old:.4f} before, {new:.4f} after {step} steps")

    def _evaluate(self) -> Metrics:
        """Returns the method's metrics over the held-out rows, a batch at a time, under `eval/`."""
        step, size = self.run.state.step, self.run.batch_size
        with self._reporter.console.phase("eval", f"{len(self._held_out)} held-out rows"):
            batches = [self._held_out[start : start + size] for start in range(0, len(self._held_out), size)]
            merged = with_margin(merge(evaluate_batch(self.run.roles, batch) for batch in batches))
        metrics: Metrics = {f"eval/{name.removeprefix('offline/')}": metric for name, metric in merged.items()}
        loss = metrics["eval/loss"].result
        if self.run.roles.method.name == "sft" and loss is not None:
            metrics["eval/perplexity"] = maximum(math.exp(min(loss, 700.0)))
        self._scores = {name: value for name, value in values(metrics).items() if value is not None}
        self._evaluated_step = step
        self._folder.write_evaluation(step, HELD_OUT, {"metrics": self._scores})
        when = "before training" if step == 0 else f"after step {step}"
        shown = ", ".join(f"{name.removeprefix('eval/')} {value:.4f}" for name, value in self._scores.items())
        self._reporter.console.info(f"evaluation {when}: {shown} ({len(self._held_out)} held-out rows)")
        return metrics

    def _progress(self) -> Metrics:
        epoch, offset = self.run.stream.position
        return {
            "offline/epoch": maximum(epoch + offset / self.run.stream.num_examples),
            "memory/peak_bytes": maximum(self.run.device.peak_memory_bytes(), "bytes"),
        }

    def _save(self) -> None:
        """Saves the step, with the scores of its evaluation where it had one."""
        if self._store is None:
            return
        step = self.run.state.step
        with self._reporter.console.phase("checkpoint", "weights, optimizer and counters to reach the disk"):
            self._store.save(step, self.run.parts, self._scores if self._evaluated_step == step else {})
        self._saved_step = step

    def _timing(self) -> Metrics:
        return self._reporter.console.clock.take()
