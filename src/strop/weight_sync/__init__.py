"""Publication of weights to the samplers, and the proof that they arrived."""

from strop.weight_sync.barrier import Barrier
from strop.weight_sync.gate import LocalGate
from strop.weight_sync.hand_over import Boundary, Cleanup, HandOver, Tenancy, WholeEngine
from strop.weight_sync.judgement import Judgement, Pair, Verdict, judge, noise_floor, tracked_share
from strop.weight_sync.probe import Probe, ProbeScorer, SamplerReading
from strop.weight_sync.proof import ProbeSettings, Replica, ReplicaReport, WeightProof, default_bound
from strop.weight_sync.publisher import Publisher, SyncState

__all__ = [
    "Barrier",
    "Boundary",
    "Cleanup",
    "HandOver",
    "Judgement",
    "LocalGate",
    "Pair",
    "Probe",
    "ProbeScorer",
    "ProbeSettings",
    "Publisher",
    "Replica",
    "ReplicaReport",
    "SamplerReading",
    "SyncState",
    "Tenancy",
    "Verdict",
    "WeightProof",
    "WholeEngine",
    "default_bound",
    "judge",
    "noise_floor",
    "tracked_share",
]
