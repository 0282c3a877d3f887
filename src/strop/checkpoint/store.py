"""Step folders that are whole or absent.

    save:   .saving-step-00000012/        each part writes itself, every file is flushed and hashed,
              engine/ prompts/ trainer/   the manifest is written last
              manifest.json
                    |  one atomic rename makes the step visible
                    v
            step-00000012/                only now are older steps removed

Whatever moment a process dies at, the folder holds the last whole step or the one before; hidden names are
leftovers, removed when a store is next opened. A lock on the folder, which the kernel frees when a process
dies, keeps a second process from cleaning up or saving under a running save.
"""

import errno
import fcntl
import logging
import math
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from strop.checkpoint.errors import CorruptCheckpointError, DiskFullError
from strop.checkpoint.files import flush, remove_folder, seal, total_bytes
from strop.checkpoint.manifest import Manifest, ModelIdentity
from strop.errors import CheckpointError
from strop.protocols import CheckpointPart

_logger = logging.getLogger(__name__)

_STEP_NAME = re.compile(r"step-(\d{8,})")
_PART_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SAVING, _REPLACED, _REMOVING = ".saving-", ".replaced-", ".removing-"
_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_PROBE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BestRule:
    """Which checkpoint is best, and therefore never removed."""

    metric: str
    """Name of a score given to `save`, such as `eval/reward_mean`."""
    best_is: Literal["highest", "lowest"] = "highest"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A step folder whose manifest was read."""

    folder: Path
    manifest: Manifest


class FolderStore:
    """Keeps the newest `keep` checkpoints, and the best one, below one folder.

    Implements `protocols.CheckpointStore`. Counts what is on disk, so that a resumed run keeps the same number.
    """

    def __init__(
        self, folder: Path, keep: int, *, best: BestRule | None = None, model: ModelIdentity | None = None
    ) -> None:
        """Opens or creates the folder and clears away what killed saves left behind."""
        if keep < 1:
            raise ValueError(f"keep must be at least 1, got {keep}")
        self.folder = folder
        self._keep = keep
        self._best_rule = best
        self._model = model
        self._corrupt: dict[Path, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        with self._lock() as is_held:
            if is_held:
                self._clear_leftovers()

    def save(self, step: int, parts: Mapping[str, CheckpointPart], scores: Mapping[str, float] | None = None) -> Path:
        """Writes a step and returns its folder; a step that is there already is replaced once the new one is whole.

        Each part writes itself into a folder of its name. `scores` are evaluation results by metric name.
        Raises DiskFullError where space runs out and CheckpointError where another process saves here.
        """
        _check_part_names(parts)
        with self._lock() as is_held:
            if not is_held:
                raise CheckpointError(f"another process is saving into {self.folder}", "Give each run its own folder.")
            target = self.folder / f"step-{step:08d}"
            temporary = self.folder / f"{_SAVING}{target.name}"
            try:
                self._write(temporary, step, parts, scores or {})
            except BaseException as error:
                self._abandon(temporary, error)
                raise
            self._make_visible(temporary, target)
            self._remove_old(target)
        return target

    def latest(self) -> Path | None:
        """Returns the newest whole step, verified by checksums; None where nothing was ever saved.

        A damaged step is passed over with a warning that names the file. Raises CheckpointError where steps
        are there and none of them is whole: starting afresh must be a decision.
        """
        found = self._newest_whole()
        return None if found is None else found.folder

    def best(self) -> Path | None:
        """Returns the whole step with the best score, verified by checksums; None where no step has the score."""
        found = self._best_of(self._readable())
        if found is None:
            return None
        found.manifest.check_files(found.folder)
        return found.folder

    def restore(self, parts: Mapping[str, CheckpointPart]) -> Checkpoint | None:
        """Loads each part from the newest whole step and returns that step; None where nothing was ever saved.

        The model is compared before any part is loaded: raises WrongModelError. Raises CheckpointError where
        the step lacks one of the parts.
        """
        found = self._newest_whole()
        if found is None:
            return None
        self.load(found, parts)
        return found

    def load(self, checkpoint: Checkpoint, parts: Mapping[str, CheckpointPart]) -> None:
        """Loads parts from a step that was verified before."""
        checkpoint.manifest.check_model(checkpoint.folder, self._model)
        missing = [name for name in parts if not (checkpoint.folder / name).is_dir()]
        if missing:
            held = sorted(path.name for path in checkpoint.folder.iterdir() if path.is_dir())
            raise CheckpointError(f"{checkpoint.folder} must hold the parts {missing}, got {held}")
        for name, part in parts.items():
            part.load(checkpoint.folder / name)

    def checkpoints(self) -> list[Checkpoint]:
        """Returns the steps with a readable manifest, oldest save first; checksums of files are not looked at."""
        return self._readable()

    # ----------------------------------------------------------------------------------------- writing

    def _write(
        self, temporary: Path, step: int, parts: Mapping[str, CheckpointPart], scores: Mapping[str, float]
    ) -> None:
        temporary.mkdir()
        for name, part in parts.items():
            (temporary / name).mkdir()
            part.save(temporary / name)
        sequence = 1 + max((one.manifest.sequence for one in self._readable()), default=0)
        Manifest(step, sequence, seal(temporary), dict(scores), self._model).write(temporary)
        flush(temporary)

    def _abandon(self, temporary: Path, error: BaseException) -> None:
        """Removes a save that failed; raises DiskFullError where space was the reason."""
        written = [path for path in temporary.rglob("*") if path.is_file() and not path.is_symlink()]
        written_bytes = total_bytes(written)
        free_bytes = shutil.disk_usage(self.folder).free
        is_full = isinstance(error, Exception) and (_says_full(error) or not all(map(_can_grow, written)))
        shutil.rmtree(temporary, ignore_errors=True)
        if not is_full:
            return
        earlier = [one.manifest.num_bytes for one in self._readable()]
        needed = f"the last checkpoint took {earlier[-1]:,} bytes" if earlier else "the size is not known yet"
        raise DiskFullError(
            f"no space for a checkpoint in {self.folder}: {needed}, {written_bytes:,} bytes were written and "
            f"{free_bytes:,} were free when it failed ({error}). Earlier checkpoints are untouched",
            "Free space, lower checkpoint.keep, or set run.output_dir to a larger disk.",
        ) from error

    def _make_visible(self, temporary: Path, target: Path) -> None:
        if target.exists():
            replaced = self.folder / f"{_REPLACED}{target.name}"
            target.rename(replaced)
            temporary.rename(target)
            flush(self.folder)
            shutil.rmtree(replaced)
        else:
            temporary.rename(target)
            flush(self.folder)
        self._corrupt.pop(target, None)

    def _remove_old(self, newest: Path) -> None:
        """Removes all but the newest `keep` whole steps and the best; damaged steps count for nothing."""
        readable = [one for one in self._readable() if one.folder not in self._corrupt]
        kept = {one.folder for one in readable[-self._keep :]} | {newest}
        best = self._best_of(readable)
        if best is not None:
            kept.add(best.folder)
        for folder in self._visible():
            if folder not in kept:
                remove_folder(folder, f"{_REMOVING}{folder.name}")

    # ----------------------------------------------------------------------------------------- reading

    def _visible(self) -> list[Path]:
        return sorted(path for path in self.folder.iterdir() if path.is_dir() and _STEP_NAME.fullmatch(path.name))

    def _readable(self) -> list[Checkpoint]:
        found = []
        for folder in self._visible():
            try:
                found.append(Checkpoint(folder, Manifest.read(folder)))
            except CorruptCheckpointError as error:
                self._pass_over(folder, error)
        return sorted(found, key=lambda one: one.manifest.sequence)

    def _newest_whole(self) -> Checkpoint | None:
        for candidate in reversed(self._readable()):
            try:
                candidate.manifest.check_files(candidate.folder)
            except CorruptCheckpointError as error:
                self._pass_over(candidate.folder, error)
            else:
                return candidate
        visible = self._visible()
        if visible:
            reasons = "; ".join(self._corrupt[folder] for folder in visible)
            raise CheckpointError(
                f"{self.folder} holds {len(visible)} checkpoints and none is whole: {reasons}",
                "Move them away to start from the beginning.",
            )
        return None

    def _pass_over(self, folder: Path, error: CorruptCheckpointError) -> None:
        if folder not in self._corrupt:
            _logger.warning("DAMAGED CHECKPOINT, falling back to the one before: %s", error)
        self._corrupt[folder] = str(error)

    def _best_of(self, checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
        """The first to reach the best score; NaN is no score."""
        rule = self._best_rule
        if rule is None:
            return None
        scored = [one for one in checkpoints if not math.isnan(one.manifest.scores.get(rule.metric, math.nan))]
        if not scored:
            return None
        choose = max if rule.best_is == "highest" else min
        return choose(scored, key=lambda one: one.manifest.scores[rule.metric])

    # ----------------------------------------------------------------------------------------- order

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Says whether this process alone may change the folder now."""
        with (self.folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def _clear_leftovers(self) -> None:
        for path in sorted(self.folder.iterdir()):
            target = self.folder / path.name.removeprefix(_REPLACED)
            if path.name.startswith(_REPLACED) and not target.exists():
                path.rename(target)
            elif path.name.startswith((_SAVING, _REMOVING, _REPLACED)):
                shutil.rmtree(path)


def _check_part_names(parts: Mapping[str, CheckpointPart]) -> None:
    for name in parts:
        if not _PART_NAME.fullmatch(name):
            raise ValueError(f"a part's name must be lower-case letters, digits and underscores, got {name!r}")


def _says_full(error: BaseException) -> bool:
    """Whether an error or what led to it says that space ran out, by error number or by its text."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _FULL_ERRNOS:
            return True
        if any(os.strerror(number) in str(cause) for number in _FULL_ERRNOS):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _can_grow(path: Path) -> bool:
    """Whether a file of a failed save could take more bytes: torch.save hides the error that ended its writing."""
    try:
        with path.open("ab") as file:
            file.write(bytes(_PROBE_BYTES))
    except OSError as error:
        return error.errno not in _FULL_ERRNOS
    return True
