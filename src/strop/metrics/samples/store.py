"""One file of samples a step, whole or absent."""

import gzip
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from strop.errors import DataError
from strop.metrics.samples.codec import decode_group, encode_group
from strop.metrics.samples.records import GroupRecord

FILE_PATTERN = re.compile(r"step_(\d{6,})\.jsonl\.gz")


class SampleStore:
    """Keeps `step_000012.jsonl.gz` files in a folder: one line a group, readable with `zcat`.

    Equal groups give equal bytes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, step: int, groups: Iterable[GroupRecord]) -> Path:
        """Writes the samples of a step; a file of the same step is replaced."""
        self._folder.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps(encode_group(group), ensure_ascii=False, separators=(",", ":")) for group in groups]
        path = self._path(step)
        _write_whole(path, gzip.compress("".join(line + "\n" for line in lines).encode(), compresslevel=9, mtime=0))
        return path

    def steps(self) -> list[int]:
        """The steps that are kept, in order."""
        if not self._folder.is_dir():
            return []
        matches = (FILE_PATTERN.fullmatch(path.name) for path in self._folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def read(self, step: int) -> Iterator[GroupRecord]:
        """Yields the groups of a step in the order they were written.

        Raises DataError where the step is not kept, naming the steps there are, and where the file is damaged.
        """
        path = self._path(step)
        if not path.exists():
            raise DataError(f"{self._folder} must hold samples of step {step}, got {self._described()}")
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                for line in file:
                    yield decode_group(json.loads(line))
        except (EOFError, gzip.BadGzipFile, zlib.error, ValueError, KeyError, TypeError) as error:
            raise DataError(
                f"{path} must hold one JSON group a line, got damaged content", "Remove the file."
            ) from error

    def cut_after(self, step: int) -> None:
        """Removes the steps after `step`: a resumed run writes them anew."""
        for later in self.steps():
            if later > step:
                self._path(later).unlink()

    def _path(self, step: int) -> Path:
        return self._folder / f"step_{step:06d}.jsonl.gz"

    def _described(self) -> str:
        steps = self.steps()
        return f"steps {steps[0]} to {steps[-1]}" if steps else "none: was metrics.save_samples off?"


def open_samples(run_folder: Path) -> SampleStore:
    """Returns the samples of a run; raises DataError where the folder is no run or keeps none."""
    store = SampleStore(run_folder / "samples")
    if not store.steps():
        raise DataError(
            f"{run_folder} must be the folder of a run with samples, got none in {(run_folder / 'samples').absolute()}",
            "Name a folder such as runs/my-run; a run with metrics.save_samples=false keeps none.",
        )
    return store


def _write_whole(path: Path, data: bytes) -> None:
    temporary = path.with_name(path.name + ".partial")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
