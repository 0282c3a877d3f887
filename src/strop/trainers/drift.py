"""How far the policy has moved from where it began, measured on tokens that the first policy sampled.

Without a reference model in memory this is what tells of drift: KL(first policy || policy), estimated as the mean
of log p_first - log p_now over a few samples drawn before the first step. It costs one scoring of those samples an
evaluation.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strop.metrics import Metrics, mean
from strop.records import Group

ScoreTokens = Callable[[Sequence[NDArray[np.int64]]], list[NDArray[np.float32]]]
"""Log-probs of tokens 1, 2, ... of each sequence at temperature 1."""

NUM_SAMPLES = 4
_FILE = "drift.json"


class DriftGauge:
    """Keeps samples of the first policy and their log-probs; a `protocols.CheckpointPart`."""

    def __init__(self, score: ScoreTokens) -> None:
        self._score = score
        self._rows: list[tuple[NDArray[np.int64], int]] = []
        self._first_logprobs: list[NDArray[np.float64]] = []

    @property
    def is_set(self) -> bool:
        """Whether samples of the first policy are kept."""
        return bool(self._rows)

    def begin(self, groups: Sequence[Group]) -> None:
        """Keeps a few of the samples that the first policy drew."""
        samples = [sample for group in groups for sample in group.samples[:1] if sample.num_sampled_tokens]
        rows = [sample.rows[0] for sample in samples[:NUM_SAMPLES]]
        self._rows = [(row.token_ids, row.num_sampled_tokens) for row in rows]
        self._first_logprobs = self._sampled_logprobs()

    def measure(self) -> Metrics:
        """Returns `kl/first_policy`, the mean over the kept tokens."""
        pairs = zip(self._first_logprobs, self._sampled_logprobs(), strict=True)
        gaps = [float((first - now).sum()) for first, now in pairs]
        return {"kl/first_policy": mean(sum(gaps), sum(count for _, count in self._rows), "nats")}

    def save(self, folder: Path) -> None:
        """Writes tokens and first log-probs, exactly."""
        rows = [
            {"token_ids": ids.tolist(), "num_sampled": count, "logprobs": logprobs.tolist()}
            for (ids, count), logprobs in zip(self._rows, self._first_logprobs, strict=True)
        ]
        (folder / _FILE).write_text(json.dumps(rows), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Takes tokens and first log-probs from a checkpoint."""
        rows = json.loads((folder / _FILE).read_text(encoding="utf-8"))
        self._rows = [(np.array(row["token_ids"], dtype=np.int64), int(row["num_sampled"])) for row in rows]
        self._first_logprobs = [np.array(row["logprobs"], dtype=np.float64) for row in rows]

    def _sampled_logprobs(self) -> list[NDArray[np.float64]]:
        scored = self._score([ids for ids, _ in self._rows]) if self._rows else []
        pairs = zip(scored, self._rows, strict=True)
        return [np.asarray(logprobs, np.float64)[-count:] for logprobs, (_, count) in pairs]
