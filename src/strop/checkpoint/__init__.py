"""Checkpoints: step folders that are whole or absent, and the groups that were collected but not yet trained."""

from strop.checkpoint.errors import (
    CorruptCheckpointError,
    DiskFullError,
    FormatVersionError,
    WrongModelError,
)
from strop.checkpoint.groups import GroupsPart, load_groups, save_groups
from strop.checkpoint.manifest import Manifest, ModelIdentity
from strop.checkpoint.parts import StatePart, read_state
from strop.checkpoint.store import BestRule, Checkpoint, FolderStore

__all__ = [
    "BestRule",
    "Checkpoint",
    "CorruptCheckpointError",
    "DiskFullError",
    "FolderStore",
    "FormatVersionError",
    "GroupsPart",
    "Manifest",
    "ModelIdentity",
    "StatePart",
    "WrongModelError",
    "load_groups",
    "read_state",
    "save_groups",
]
