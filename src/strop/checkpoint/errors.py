"""What can go wrong with a checkpoint, each with a name of its own."""

from strop.errors import CheckpointError


class CorruptCheckpointError(CheckpointError):
    """A checkpoint's files are not those that were written."""


class DiskFullError(CheckpointError):
    """The disk, a quota or a file size limit ended a save; what was there before is untouched."""


class WrongModelError(CheckpointError):
    """The checkpoint is of a model with other weight names or shapes."""


class FormatVersionError(CheckpointError):
    """The checkpoint was written in a format that this version cannot read."""
