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
    FieldSpec("old_logprobs", Alignment.TOKEN, torch.float32, 0.0, optional=True),
    FieldSpec("reference_logprobs", Alignment.TOKEN, torch.float32, 0.0, optional=True),
    FieldSpec("token_rewards", Alignment.TOKEN, torch.float32, 0.0, optional=True),
    FieldSpec("collisions", Alignment.TOKEN, torch.float32, 0.0, optional=True),
    FieldSpec("values", Alignment.TOKEN, torch.float32, 0.0, optional=True),
    FieldSpec("returns", Alignment.TOKEN, torch.float32, 0.0, optional=True),
    FieldSpec("teacher_logprobs", Alignment.TOKEN, torch.float32, 0.0, optional=True),
    FieldSpec("candidate_ids", Alignment.TOKEN, torch.int64, 0, optional=True),
    FieldSpec("teacher_top_logprobs", Alignment.TOKEN, torch.float32, -float("inf"), optional=True),
)
"""The token-aligned fields of a `Row` that follow its sampled tokens into `PackedBatch.fields_N`.

token_rewards: what a token earns beside the reward of its sample. collisions: sum of the squared probabilities of the
token's distribution. values, returns: a critic's value of the state before the token, and what it should have been.
candidate_ids, teacher_top_logprobs: [K] a token, a teacher's most likely ids there, and their log-probs.
"""
