"""Looks at the weight files of a model folder before they are loaded: whole or not, within milliseconds."""

import json
from pathlib import Path

from strop.errors import ModelError

_INDEX = "model.safetensors.index.json"
_HEADER_LENGTH_BYTES = 8


def check_checkpoint_files(folder: Path) -> None:
    """Raises ModelError naming the file that is missing, truncated or not a checkpoint."""
    files = weight_files(folder)
    if not files:
        raise ModelError(
            f"the model folder {folder} must hold weights, got no .safetensors and no pytorch_model*.bin",
            "Fetch the model anew; a Git clone without LFS brings pointers only.",
        )
    for file in files:
        if not file.is_file():
            raise ModelError(f"the checkpoint is incomplete: {file} is missing", "Fetch the missing shard.")
        if file.suffix == ".safetensors":
            _check_safetensors(file)


def weight_files(folder: Path) -> list[Path]:
    """Returns the files that hold the weights of a model folder, whether they are there or not."""
    index = folder / _INDEX
    if index.is_file():
        try:
            weight_map: dict[str, str] = json.loads(index.read_text())["weight_map"]
        except (json.JSONDecodeError, KeyError) as error:
            raise ModelError(f"{index} must be a JSON object with a weight_map, got {error}") from error
        return sorted({folder / name for name in weight_map.values()})
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))


def _check_safetensors(file: Path) -> None:
    """Compares the size that the header promises with the size of the file."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        prefix = stream.read(_HEADER_LENGTH_BYTES)
        header_length = int.from_bytes(prefix, "little")
        if len(prefix) < _HEADER_LENGTH_BYTES or _HEADER_LENGTH_BYTES + header_length > size:
            raise _broken(file, f"{size} bytes, too few for its header")
        header = stream.read(header_length)
    try:
        tensors = json.loads(header)
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise _broken(file, "a header that is not JSON") from None
    ends = [facts["data_offsets"][1] for name, facts in tensors.items() if name != "__metadata__"]
    promised = _HEADER_LENGTH_BYTES + header_length + max(ends, default=0)
    if size != promised:
        raise _broken(file, f"{size} bytes where its header promises {promised}")


def _broken(file: Path, found: str) -> ModelError:
    return ModelError(f"{file} must be a whole safetensors file, got {found}", "Fetch the file anew.")
