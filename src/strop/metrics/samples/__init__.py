"""Every sample of every step, kept compactly in the run folder and readable without torch."""

from strop.metrics.samples.query import FoundSample, SampleQuery, find_samples
from strop.metrics.samples.records import GroupRecord, PartRecord, RowRecord, SampleRecord
from strop.metrics.samples.store import SampleStore, open_samples

__all__ = [
    "FoundSample",
    "GroupRecord",
    "PartRecord",
    "RowRecord",
    "SampleQuery",
    "SampleRecord",
    "SampleStore",
    "find_samples",
    "open_samples",
]
