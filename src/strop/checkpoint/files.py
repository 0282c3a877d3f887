"""Bytes on disk: checksums, flushing to the platter, and removal that a kill cannot leave half done."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_NUM_THREADS = 4
"""Hashing and flushing leave the interpreter lock, so that one file is hashed while another is flushed."""


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What a file must look like."""

    num_bytes: int
    sha256: str


def record_of(path: Path) -> FileRecord:
    """Returns size and checksum of a file, read in blocks."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return FileRecord(os.fstat(file.fileno()).st_size, digest)


def flush(path: Path) -> None:
    """Waits until a file or a folder's entries are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def files_below(folder: Path) -> list[Path]:
    """Returns the files below a folder, sorted. Raises ValueError for anything that is neither file nor folder."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ValueError(
                f"a checkpoint may hold only files and folders, got {path}: write a copy instead of a link"
            )
        if path.is_file():
            found.append(path)
    return found


def seal(folder: Path) -> dict[str, FileRecord]:
    """Flushes everything below a folder to disk and returns a record of each file by its path inside the folder."""
    files = files_below(folder)
    with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="seal") as pool:
        flushes = [pool.submit(flush, path) for path in files]
        records = list(pool.map(record_of, files))
        for done in flushes:
            done.result()
    for path in sorted((path for path in folder.rglob("*") if path.is_dir()), reverse=True):
        flush(path)
    flush(folder)
    return {path.relative_to(folder).as_posix(): record for path, record in zip(files, records, strict=True)}


def problems_with(folder: Path, expected: Mapping[str, FileRecord]) -> list[str]:
    """Returns one line for each file that is missing, of another size or of another checksum."""
    with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="verify") as pool:
        found = pool.map(lambda item: _problem_with(folder / item[0], item[1]), expected.items())
        return [problem for problem in found if problem is not None]


def _problem_with(path: Path, expected: FileRecord) -> str | None:
    if not path.is_file():
        return f"{path} is missing"
    num_bytes = path.stat().st_size
    if num_bytes != expected.num_bytes:
        return f"{path} must have {expected.num_bytes} bytes, got {num_bytes}"
    sha256 = record_of(path).sha256
    if sha256 != expected.sha256:
        return f"{path} must have SHA-256 {expected.sha256[:12]}..., got {sha256[:12]}..."
    return None


def total_bytes(paths: Iterable[Path]) -> int:
    """Returns the sum of the sizes of files."""
    return sum(path.stat().st_size for path in paths)


def remove_folder(folder: Path, hidden_name: str) -> None:
    """Removes a folder under a hidden name, so that a kill half-way never leaves a folder that looks whole."""
    hidden = folder.with_name(hidden_name)
    if hidden.exists():
        shutil.rmtree(hidden)
    folder.rename(hidden)
    flush(hidden.parent)
    shutil.rmtree(hidden)
