"""Records are what flows through the house: prompts, samples, groups, packed batches, weight chunks.

They hold data and answer questions about it; they never call an engine, read a config or touch a device.
"""

from strop.records.conversation import Continuation
from strop.records.generation import Completion, GroupRequest, SamplingParams, StreamKey
from strop.records.packed import PackedBatch, Segment
from strop.records.plan import MicroBatchPlan
from strop.records.prompts import Message, Prompt
from strop.records.samples import FinishState, Group, RewardPart, Row, Sample
from strop.records.weights import WeightChunk, WeightReceipt

__all__ = [
    "Completion",
    "Continuation",
    "FinishState",
    "Group",
    "GroupRequest",
    "Message",
    "MicroBatchPlan",
    "PackedBatch",
    "Prompt",
    "RewardPart",
    "Row",
    "Sample",
    "SamplingParams",
    "Segment",
    "StreamKey",
    "WeightChunk",
    "WeightReceipt",
]
