"""The field schema: packing, padding, splitting and transport are derived from it, so no field is forgotten."""

from dataclasses import dataclass
from enum import StrEnum

import torch


class Alignment(StrEnum):
    """What a field has one entry for."""

    TOKEN = "token"
    SAMPLE = "sample"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """How one field is aligned, stored and padded."""

    name: str
    alignment: Alignment
    dtype: torch.dtype
    pad: float
    """What padding holds where an engine needs rectangles."""
    optional: bool = False
    """Whether rows may lack it (then all rows of a batch must)."""


ROW_FIELDS: tuple[FieldSpec, ...] = (
    FieldSpec("rollout_logprobs", Alignment.TOKEN, torch.float32, 0.0),
    FieldSpec("policy_versions", Alignment.TOKEN, torch.int64, -1),
    FieldSpec("advantages", Alignment.TOKEN, torch.float32, 0.0, optional=True),
)
"""The token-aligned fields of a `Row` that follow its sampled tokens into `PackedBatch.fields_N`."""
