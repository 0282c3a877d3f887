"""The manifest of a step folder: what it is, of which model, and what every file must look like."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from strop.checkpoint.errors import CorruptCheckpointError, FormatVersionError, WrongModelError
from strop.checkpoint.files import FileRecord, flush, problems_with
from strop.records import WeightChunk

MANIFEST_NAME = "manifest.json"
FORMAT_VERSION = 1
"""Grows when a reader of the version before could not read a folder any more."""


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """Tells models with other weight names or shapes apart."""

    digest: str
    num_weights: int
    num_parameters: int

    @classmethod
    def of(cls, chunks: Iterable[WeightChunk]) -> Self:
        """Returns the identity of a model from its weight stream; the order of the names does not matter."""
        shapes = {chunk.name: tuple(chunk.tensor.shape) for chunk in chunks}
        lines = "\n".join(f"{name} {list(shape)}" for name, shape in sorted(shapes.items()))
        num_parameters = sum(_product(shape) for shape in shapes.values())
        return cls(hashlib.sha256(lines.encode()).hexdigest(), len(shapes), num_parameters)

    def __str__(self) -> str:
        return f"{self.num_weights} weights with {self.num_parameters:,} parameters (digest {self.digest[:12]})"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a step folder says about itself."""

    step: int
    sequence: int
    """Counts saves into this folder: the newest is the last one saved, also where a run went back some steps."""
    files: Mapping[str, FileRecord]
    scores: Mapping[str, float]
    """Evaluation results at this step by metric name: what keep-best compares."""
    model: ModelIdentity | None

    @property
    def num_bytes(self) -> int:
        """The size of all files."""
        return sum(record.num_bytes for record in self.files.values())

    def write(self, folder: Path) -> None:
        """Writes the manifest into a step folder and flushes it to disk."""
        body = self._as_json()
        path = folder / MANIFEST_NAME
        path.write_text(json.dumps({"checksum": _checksum(body), **body}, indent=1), encoding="utf-8")
        flush(path)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Reads a step folder's manifest.

        Raises CorruptCheckpointError where it is missing or damaged, FormatVersionError where it is of a newer format.
        """
        path = folder / MANIFEST_NAME
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CorruptCheckpointError(f"{path} must be a readable manifest, got: {error}") from error
        if not isinstance(content, dict) or content.pop("checksum", None) != _checksum(content):
            raise CorruptCheckpointError(f"{path} must carry its own checksum, got another: it was damaged or edited")
        version = content["format_version"]
        if version != FORMAT_VERSION:
            raise FormatVersionError(
                f"{folder} is in checkpoint format {version}; this version of strop reads format {FORMAT_VERSION}",
                "Resume with the version that wrote it.",
            )
        return cls._from_json(content)

    def check_files(self, folder: Path) -> None:
        """Raises CorruptCheckpointError naming every file that is not what was written."""
        problems = problems_with(folder, self.files)
        if problems:
            raise CorruptCheckpointError("; ".join(problems))

    def check_model(self, folder: Path, expected: ModelIdentity | None) -> None:
        """Raises WrongModelError where both sides know their model and the two differ."""
        if expected is not None and self.model is not None and self.model.digest != expected.digest:
            raise WrongModelError(
                f"{folder} must hold the model of this run, {expected}, got {self.model}",
                "Set model.path to the model that was trained there, or start in another run folder.",
            )

    def _as_json(self) -> dict[str, Any]:
        model = self.model
        return {
            "format_version": FORMAT_VERSION,
            "step": self.step,
            "sequence": self.sequence,
            "scores": dict(self.scores),
            "model": None if model is None else [model.digest, model.num_weights, model.num_parameters],
            "files": {name: [record.num_bytes, record.sha256] for name, record in self.files.items()},
        }

    @classmethod
    def _from_json(cls, content: Mapping[str, Any]) -> Self:
        return cls(
            step=content["step"],
            sequence=content["sequence"],
            files={name: FileRecord(*record) for name, record in content["files"].items()},
            scores=content["scores"],
            model=None if content["model"] is None else ModelIdentity(*content["model"]),
        )


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _product(shape: Iterable[int]) -> int:
    product = 1
    for size in shape:
        product *= size
    return product
