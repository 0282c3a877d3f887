"""Evaluates a run between its steps: when it is due, in which ways, and what is kept of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from strop.cluster.interrupts import StopFlag, unless_stopped
from strop.metrics import Metrics, merge, values
from strop.records import Group
from strop.trainers.build import Run
from strop.trainers.evaluate import Evaluation, EvaluationPlan, EvaluationSettings, evaluate
from strop.trainers.report import Reporter


@dataclass(frozen=True)
class EvaluationTimes:
    """At which steps a run is evaluated."""

    every: int = 0
    """0 evaluates before and after only."""
    before: bool = False
    after: bool = False


class HeldOut:
    """The evaluations of a run; remembers when the last one was and what came out."""

    def __init__(
        self, run: Run, plan: EvaluationPlan | None, times: EvaluationTimes, reporter: Reporter, stop: StopFlag
    ) -> None:
        self._run = run
        self._plan = plan
        self._times = times
        self._reporter = reporter
        self._stop = stop
        self._evaluated_step: int | None = None
        self._scores: dict[str, float] = {}

    @property
    def is_fresh(self) -> bool:
        """Whether the policy as it stands was evaluated."""
        return self._evaluated_step == self._run.state.step

    @property
    def scores(self) -> dict[str, float]:
        """What the policy as it stands reached, by metric name; empty where it was not evaluated."""
        return self._scores if self.is_fresh else {}

    def before(self) -> Metrics:
        """Evaluates the first policy, where that is wanted."""
        return self._evaluate() if self._times.before and not self._stop.is_set else {}

    def between(self, *, is_last: bool) -> Metrics:
        """Evaluates after a step, where one is due."""
        every, step = self._times.every, self._run.state.step
        is_due = (is_last and self._times.after) or bool(every and step % every == 0)
        return self._evaluate() if is_due else {}

    def after(self) -> bool:
        """Evaluates the last policy, where that is wanted and not done yet, unless Ctrl-C ended the run."""
        is_due = self._times.after and not self.is_fresh and not self._stop.is_set and self._run.state.step > 0
        if is_due:
            self._evaluate()
        return is_due

    def _evaluate(self) -> Metrics:
        """Evaluates in each way of the plan; nothing, where the run was asked to stop before its first step."""
        if self._plan is None:
            return {}
        step = self._run.state.step
        results: list[Evaluation] = []
        with self._reporter.console.phase("eval", f"{len(self._plan.prompts)} held-out prompts"):
            for settings in self._plan.settings:
                result = self._evaluate_as(self._plan, settings)
                if result is None:
                    return {}
                results.append(result)
            drift = self._measure_drift(results[0].groups)
        self._reporter.evaluation(step, results)
        metrics = merge([drift, *(result.metrics for result in results)])
        known = {name: value for name, value in values(metrics).items() if name.startswith("eval/")}
        self._scores = {name: value for name, value in known.items() if value is not None}
        self._evaluated_step = step
        return metrics

    def _evaluate_as(self, plan: EvaluationPlan, settings: EvaluationSettings) -> Evaluation | None:
        """One way of evaluating; None where the run was asked to stop before its first step, which is repeated."""
        run = self._run
        coroutine = evaluate(run.roles.sampler, run.roles.judge, plan.prompts, settings)
        return run.cluster.run(coroutine if run.state.step else unless_stopped(coroutine, self._stop))

    def _measure_drift(self, groups: Sequence[Group]) -> Metrics:
        if self._run.state.step == 0:
            self._run.drift.begin(groups)
            return {}
        return self._run.drift.measure() if self._run.drift.is_set else {}
