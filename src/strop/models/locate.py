"""Where a model's files lie: every way to name a model ends in a local folder.

    package:NAME          -> the GGUF file that the distribution ships -> dequantised cache folder
    folder + gguf_file    -> dequantised cache folder
    folder                -> itself
    hub id (+ gguf_file)  -> snapshot in the Hugging Face cache (-> dequantised cache folder)

What looks like a local path is never looked up on the hub.
"""

import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from huggingface_hub import constants, hf_hub_download, snapshot_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from strop.config.model import ModelConfig
from strop.errors import ModelError
from strop.models.gguf import PACKAGE_PREFIX, dequantised_folder, find_in_package

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_SMALL_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "*.py")
_SAFETENSORS = ("*.safetensors",)
_PICKLES = ("pytorch_model*.bin",)


def locate(section: ModelConfig, *, weights: bool = True) -> Path:
    """Returns the local folder of the model; without `weights` a hub model's config and tokenizer are enough."""
    if section.path.startswith(PACKAGE_PREFIX):
        if section.revision is not None:
            raise ModelError("model.revision must be left out for a package, which has one version")
        return dequantised_folder(find_in_package(section.path, section.gguf_file))
    local = Path(section.path).expanduser()
    if local.exists() or _looks_local(section.path):
        return _local_folder(local, section)
    if section.gguf_file is not None:
        return dequantised_folder(_hub_file(section, section.gguf_file))
    return _hub_folder(section, weights=weights)


def _looks_local(path: str) -> bool:
    """Whether a path that does not exist can only be meant as a local one."""
    if _HUB_ID.fullmatch(path) is None:
        return True
    parent = Path(path).parent
    return parent != Path() and parent.is_dir() and not _in_hub_cache(path)


def _in_hub_cache(repo_id: str) -> bool:
    return (Path(constants.HF_HUB_CACHE) / f"models--{repo_id.replace('/', '--')}").is_dir()


def _local_folder(folder: Path, section: ModelConfig) -> Path:
    if not folder.exists():
        raise _missing_path(folder)
    if section.revision is not None:
        raise ModelError(f"model.revision must be left out for a local folder, got {section.revision!r} with {folder}")
    if folder.is_file():
        raise ModelError(
            f"model.path must be a folder, got the file {folder}",
            f"Set model.path to {folder.parent} and, for a GGUF file, model.gguf_file to {folder.name}.",
        )
    if section.gguf_file is not None:
        return dequantised_folder(folder / section.gguf_file)
    if not (folder / "config.json").is_file():
        raise _no_config(folder)
    return folder


def _missing_path(folder: Path) -> ModelError:
    parent = folder.parent
    if not parent.is_dir():
        return ModelError(f"model.path must be an existing folder or a hub id, got {folder}: {parent} does not exist")
    near = get_close_matches(folder.name, sorted(entry.name for entry in parent.iterdir()), n=3)
    hint = f" Did you mean {', '.join(str(parent / name) for name in near)}?" if near else ""
    return ModelError(
        f"model.path must be an existing folder or a hub id, got {folder}: {parent.resolve()} has no {folder.name!r}",
        f"Correct the path.{hint} A hub id of that name is only taken where no local folder {str(parent)!r} exists.",
    )


def _no_config(folder: Path) -> ModelError:
    gguf_files = sorted(file.name for file in folder.glob("*.gguf"))
    if gguf_files:
        return ModelError(
            f"the model folder {folder} has no config.json but GGUF files: {', '.join(gguf_files)}",
            f"Set model.gguf_file, for example to {gguf_files[0]!r}.",
        )
    adapter = (folder / "adapter_config.json").is_file()
    remedy = "It holds an adapter: merge it into its base model first." if adapter else "Name a model folder."
    return ModelError(f"the model folder {folder} must have a config.json, got none", remedy)


def _hub_folder(section: ModelConfig, *, weights: bool) -> Path:
    folder = _snapshot(section, _SMALL_FILES)
    if weights:
        folder = _snapshot(section, (*_SMALL_FILES, *_SAFETENSORS))
        if not list(folder.glob("*.safetensors")):
            folder = _snapshot(section, (*_SMALL_FILES, *_PICKLES))
    if not (folder / "config.json").is_file():
        raise _no_config(folder)
    return folder


def _snapshot(section: ModelConfig, patterns: Sequence[str]) -> Path:
    try:
        return Path(snapshot_download(section.path, revision=section.revision, allow_patterns=list(patterns)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise _hub_error(section, error) from error


def _hub_file(section: ModelConfig, file_name: str) -> Path:
    try:
        return Path(hf_hub_download(section.path, file_name, revision=section.revision))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OfflineModeIsEnabled, OSError) as error:
        raise _hub_error(section, error) from error


def _hub_error(section: ModelConfig, error: Exception) -> ModelError:
    name = f"{section.path!r}" + (f" at revision {section.revision!r}" if section.revision else "")
    match error:
        case GatedRepoError():
            return ModelError(f"the hub model {name} is gated", "Accept its terms on the hub and run: hf auth login")
        case RepositoryNotFoundError():
            return ModelError(
                f"there is no local folder and no hub model {name}",
                "Correct model.path; for a private model run: hf auth login",
            )
        case RevisionNotFoundError():
            return ModelError(f"the hub model {section.path!r} has no revision {section.revision!r}")
        case LocalEntryNotFoundError() | OfflineModeIsEnabled():
            return ModelError(
                f"there is no local folder {name}, it is not in the hub cache, and the hub cannot be reached: {error}",
                "Correct model.path, or go online once, or copy the model folder here.",
            )
        case EntryNotFoundError():
            return ModelError(f"the hub model {name} has no file {section.gguf_file!r}", "Correct model.gguf_file.")
        case _:
            return ModelError(f"the hub model {name} cannot be fetched: {error}")
