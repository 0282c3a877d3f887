"""The proof of weight sync: does every sampler compute with the weights that were published?

    trainer --score--> p   \\
                             judge, for each replica and each of the two readings --> verdict
    replica --read---> s   /

The last proven version is what movement is measured against. While the weights move less than can be seen, it
stays where it is, so that many invisible steps add up to one that can be judged. A probe that the policy has left is
written anew, right after it proved every replica: rounding grows as its tokens become unlikely.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from strop.errors import SyncError
from strop.metrics import Metrics, maximum, mean, merge, minimum
from strop.protocols import RolloutEngine
from strop.records import Completion, FinishState
from strop.weight_sync.judgement import Judgement, Pair, Verdict, judge
from strop.weight_sync.probe import (
    Probe,
    ProbeScorer,
    SamplerReading,
    TrainerReading,
    read_sampler,
    read_trainer,
    sample_probe,
)

_STATE_NAME = "proof.json"
_LEAST_NOISE_SHARE = 0.01
"""Noise is taken to be at least this share of the absolute bound: two identical kernels may differ by 0 at first."""

_OUTWORN_SHARE = 0.25
"""A probe is given up where rounding uses more than this share of the bound: the next steps might pass it."""

_STATE_CODES = {Verdict.FAILED: -1, Verdict.INDISTINGUISHABLE: 0, Verdict.PROVEN: 1}


def default_bound(*dtypes: torch.dtype) -> float:
    """Returns the largest |s - p| in nats between right implementations of these types."""
    bounds = {torch.float64: 1e-4, torch.float32: 1e-4, torch.bfloat16: 0.05}
    unknown = [dtype for dtype in dtypes if dtype not in bounds]
    if unknown or not dtypes:
        raise ValueError(f"no bound is known for {unknown}: set weight_sync.max_logprob_difference")
    return max(bounds[dtype] for dtype in dtypes)


@dataclass(frozen=True, slots=True)
class Replica:
    """A rollout engine and the name by which errors call it."""

    name: str
    engine: RolloutEngine


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What the proof says of one replica."""

    name: str
    whole: Judgement
    """Reading (a): the sequence scored without cache."""
    cached: Judgement
    """Reading (b): one token generated through the cache."""

    @property
    def failure(self) -> str | None:
        """Why the replica failed; None where it did not."""
        readings = (("scored without cache", self.whole), ("generated through the cache", self.cached))
        reasons = [f"{how}, {one.reason}" for how, one in readings if one.verdict is Verdict.FAILED]
        return f"{self.name}: {'; '.join(reasons)}" if reasons else None

    @property
    def metrics(self) -> Metrics:
        """The numbers of both readings; over replicas, the worst is kept."""
        return _metrics("sync/", self.whole) | _metrics("sync/cache_", self.cached)


def _metrics(prefix: str, judgement: Judgement) -> Metrics:
    share = judgement.tracked_share
    return {
        f"{prefix}logprob_difference": maximum(judgement.largest_difference, "nats"),
        f"{prefix}tracked_share": mean(0, 0) if share is None else mean(share, 1),
        f"{prefix}state": minimum(_STATE_CODES[judgement.verdict], "-1 failed, 0 indistinguishable, 1 proven"),
    }


@dataclass
class _Track:
    """What is remembered of one reading of one replica."""

    noise: float
    proven: Pair
    token_id: int | None = None
    """The token of reading (b)."""

    def judge(self, now: Pair, token_id: int | None, bound: float) -> Judgement:
        before = self.proven if token_id == self.token_id else None
        judgement = judge(now, before, noise=self.noise, bound=bound)
        if judgement.verdict is Verdict.PROVEN:
            self.noise = max(self.noise, now.noise)
        if judgement.verdict is Verdict.PROVEN or before is None:
            self.proven, self.token_id = now, token_id
        return judgement


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Where the probe comes from."""

    prompt_token_ids: "np.typing.NDArray[np.int64]"
    """A rendered prompt of the run; the probe begins as it does."""
    num_tokens: int
    """Length of the probe."""
    seed: int


@dataclass
class WeightProof:
    """Keeps the probe and what was proven; a `protocols.CheckpointPart`, so that a resumed run goes on with both."""

    settings: ProbeSettings
    score: ProbeScorer
    bound: float
    """Largest allowed |s - p| in nats."""
    probe: Probe | None = None
    _tracks: dict[str, tuple[_Track, _Track]] = field(default_factory=dict)

    async def prepare(self, engine: RolloutEngine) -> None:
        """Lets the policy write the probe, where there is none yet."""
        if self.probe is None:
            settings = self.settings
            self.probe = await sample_probe(engine, settings.prompt_token_ids, settings.num_tokens, settings.seed)

    def is_outworn(self, reports: Sequence[ReplicaReport]) -> bool:
        """Whether the policy has moved away from the probe: its tokens became unlikely, and rounding shows in them.

        Only a probe by which every replica was just proven may be given up: the next one starts from right weights.
        """
        is_proven = all(report.whole.verdict is Verdict.PROVEN for report in reports)
        return is_proven and max(report.whole.largest_difference for report in reports) > _OUTWORN_SHARE * self.bound

    def forget(self) -> None:
        """Gives up the probe and what was measured by it; `prepare` has a new one written."""
        self.probe = None
        self._tracks = {}

    async def read(self, replica: Replica) -> SamplerReading:
        """Takes both readings of one replica."""
        return await read_sampler(replica.engine, self._prepared())

    def judge(self, readings: Mapping[str, SamplerReading]) -> list[ReplicaReport]:
        """Scores the probe with the trainer and judges every replica's readings."""
        token_ids = sorted({reading.next_token_id for reading in readings.values()})
        trainer = read_trainer(self.score, self._prepared(), token_ids)
        return [self._judge_replica(name, reading, trainer) for name, reading in readings.items()]

    def save(self, folder: Path) -> None:
        """Writes the probe and what was proven last."""
        (folder / _STATE_NAME).write_text(json.dumps(self._state()), encoding="utf-8")

    def load(self, folder: Path) -> None:
        """Takes the probe and what was proven from a checkpoint."""
        state = json.loads((folder / _STATE_NAME).read_text(encoding="utf-8"))
        self.probe = None if state["probe"] is None else _probe_from_json(state["probe"])
        self._tracks = {
            name: (_track_from_json(whole), _track_from_json(cached))
            for name, (whole, cached) in state["tracks"].items()
        }

    def _prepared(self) -> Probe:
        if self.probe is None:
            raise SyncError("the probe must be sampled before the first reading", "Call Publisher.start first.")
        return self.probe

    def _judge_replica(self, name: str, reading: SamplerReading, trainer: TrainerReading) -> ReplicaReport:
        whole, cached = trainer.pairs_with(reading)
        if name not in self._tracks:
            return self._first_report(name, whole, cached, reading.next_token_id)
        whole_track, cached_track = self._tracks[name]
        return ReplicaReport(
            name,
            whole_track.judge(whole, None, self.bound),
            cached_track.judge(cached, reading.next_token_id, self.bound),
        )

    def _first_report(self, name: str, whole: Pair, cached: Pair, token_id: int) -> ReplicaReport:
        """Judges a replica by the absolute bound only, and learns its noise from it."""
        judgements = [judge(pair, None, noise=0.0, bound=self.bound) for pair in (whole, cached)]
        report = ReplicaReport(name, *judgements)
        if report.failure is None:
            noise = max(whole.noise, _LEAST_NOISE_SHARE * self.bound)
            self._tracks[name] = (_Track(noise, whole), _Track(max(noise, cached.noise), cached, token_id))
        return report

    def _state(self) -> dict[str, Any]:
        tracks = {name: [_track_to_json(track) for track in pair] for name, pair in self._tracks.items()}
        return {"probe": None if self.probe is None else _probe_to_json(self.probe), "tracks": tracks}


def metrics_of(reports: Sequence[ReplicaReport]) -> Metrics:
    """Returns the metrics over all replicas."""
    return merge(report.metrics for report in reports)


def _probe_to_json(probe: Probe) -> dict[str, Any]:
    return {
        "prompt_token_ids": probe.prompt_token_ids.tolist(),
        "token_ids": probe.sampled.token_ids.tolist(),
        "logprobs": probe.sampled.logprobs.tolist(),
        "policy_versions": probe.sampled.policy_versions.tolist(),
    }


def _probe_from_json(state: Mapping[str, Any]) -> Probe:
    sampled = Completion(
        token_ids=np.array(state["token_ids"], dtype=np.int64),
        logprobs=np.array(state["logprobs"], dtype=np.float32),
        policy_versions=np.array(state["policy_versions"], dtype=np.int64),
        finish=FinishState.ABORTED,
    )
    return Probe(np.array(state["prompt_token_ids"], dtype=np.int64), sampled)


def _track_to_json(track: _Track) -> dict[str, Any]:
    proven = {"sampler": track.proven.sampler_N.tolist(), "trainer": track.proven.trainer_N.tolist()}
    return {"noise": track.noise, "token_id": track.token_id, **proven}


def _track_from_json(state: Mapping[str, Any]) -> _Track:
    return _Track(state["noise"], Pair(np.array(state["sampler"]), np.array(state["trainer"])), state["token_id"])
