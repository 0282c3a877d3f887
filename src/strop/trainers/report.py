"""What leaves a run for people and tools: the console, the metric sinks, the stored samples, the evaluations."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from strop.metrics import Metrics, values
from strop.metrics.console import Console
from strop.metrics.samples import GroupRecord, PartRecord, RowRecord, SampleRecord, SampleStore
from strop.metrics.score import Score
from strop.metrics.table import Answer
from strop.metrics.watch import Watch
from strop.records import Group, Row, Sample
from strop.trainers.evaluate import Evaluation
from strop.trainers.judgements import reward_warnings
from strop.trainers.run_folder import PER_PROMPT, RunFolder
from strop.trainers.statistics import first_error

NUM_SHOWN_ANSWERS = 4
TextOf = Callable[[Sample], str]


class Sink(Protocol):
    """Takes the metrics of a step somewhere."""

    def log(self, step: int, metrics: Metrics) -> None:
        """Writes the metrics of one step."""

    def close(self) -> None:
        """Flushes and closes."""


class Reporter:
    """Tells of a run; everything it is told is on disk before it returns."""

    def __init__(
        self, console: Console, sinks: Sink, samples: SampleStore | None, folder: RunFolder, text_of: TextOf
    ) -> None:
        self.console = console
        self._sinks = sinks
        self._samples = samples
        self._folder = folder
        self._text_of = text_of
        self._watch = Watch(str(folder.path))
        self._told: set[str] = set()
        """Kinds of reward warnings that were given: each once in a run."""

    def step(self, step: int, total_steps: int, metrics: Metrics, groups: Sequence[Group]) -> None:
        """Prints and stores the metrics of a step, and warns in plain language where something is wrong."""
        self._sinks.log(step, metrics)
        if step == 0:
            return
        self.console.step(step, total_steps, metrics)
        for warning in self._watch.observe(values(metrics), first_error(groups)):
            self.console.warn(warning)
        for kind, warning in reward_warnings(groups).items():
            if kind not in self._told:
                self.console.warn(warning)
                self._told.add(kind)

    def samples(self, step: int, generated: Sequence[Group], trained: Sequence[Group]) -> None:
        """Stores every sample of a step, with the advantages of those that were trained on."""
        if self._samples is None:
            return
        by_prompt = {(group.prompt.prompt_id, group.prompt.visit): group for group in trained}
        records = []
        for group in generated:
            found = by_prompt.get((group.prompt.prompt_id, group.prompt.visit))
            records.append(self._group_record(found or group, trained=found is not None))
        self._samples.write(step, records)

    def evaluation(self, step: int, evaluations: Sequence[Evaluation]) -> None:
        """Prints the scores of an evaluation and stores them with some answers."""
        scores = {name: score for one in evaluations for name, score in one.scores.items()}
        self.console.evaluation("before training" if step == 0 else f"after step {step}", scores)
        for one in evaluations:
            self._folder.write_evaluation(step, one.label, self._stored(one))

    def comparison(self, last_step: int) -> None:
        """Prints the table of the first and the last evaluation, and some answers of both."""
        stored = self._folder.read_evaluations()
        before, after = stored.get("0"), stored.get(str(last_step))
        if before is None or after is None or last_step == 0:
            return
        self.console.comparison(_scores(before), _scores(after), "held-out prompts, before and after training")
        label = next(iter(after))
        pairs = zip(before[label]["answers"], after[label]["answers"], strict=True)
        self.console.answers([Answer(old["prompt"], old["text"], new["text"]) for old, new in pairs])

    def close(self) -> None:
        """Closes console and sinks."""
        with ExitStack() as stack:
            stack.callback(self._sinks.close)
            stack.callback(self.console.close)

    def _stored(self, evaluation: Evaluation) -> dict[str, Any]:
        scores = evaluation.scores
        return {
            "metrics": values(evaluation.metrics),
            "scores": {name: [score.mean, score.standard_error, score.num_prompts] for name, score in scores.items()},
            PER_PROMPT: {name: dict(score.per_prompt) for name, score in scores.items()},
            "answers": [
                {
                    "prompt": prompt_text(group),
                    "text": self._text_of(group.samples[0]),
                    "reward": group.samples[0].reward,
                }
                for group in evaluation.groups[:NUM_SHOWN_ANSWERS]
            ],
        }

    def _group_record(self, group: Group, *, trained: bool) -> GroupRecord:
        prompt = group.prompt
        samples = tuple(self._sample_record(sample) for sample in group.samples)
        return GroupRecord(
            prompt.prompt_id, prompt.visit, prompt_text(group), prompt.token_ids, samples, prompt.task, trained
        )

    def _sample_record(self, sample: Sample) -> SampleRecord:
        parts = {name: PartRecord(part.value, part.weight, part.error) for name, part in sample.reward_parts.items()}
        rows = tuple(_row_record(row) for row in sample.rows)
        return SampleRecord(
            sample.index, sample.finish.value, sample.reward, self._text_of(sample), rows, parts, sample.error
        )


def _row_record(row: Row) -> RowRecord:
    return RowRecord(row.token_ids, row.loss_mask, row.rollout_logprobs, row.policy_versions, row.advantages)


def _scores(stored: dict[str, Any]) -> dict[str, Score]:
    return {
        name: Score(average, error, num_prompts, one.get(PER_PROMPT, {}).get(name, {}))
        for one in stored.values()
        for name, (average, error, num_prompts) in one["scores"].items()
    }


def prompt_text(group: Group) -> str:
    """The last turn of the prompt, which holds the question."""
    return group.prompt.messages[-1]["content"] if group.prompt.messages else ""


def sampled_tokens(sample: Sample) -> NDArray[np.int64]:
    """All tokens of a sample that the policy drew."""
    drawn = [row.token_ids[row.loss_mask] for row in sample.rows]
    return np.concatenate([np.empty(0, np.int64), *drawn])
