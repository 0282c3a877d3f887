"""Writes a model as a Hugging Face folder that plain transformers loads, one shard of weights in memory at a time."""

import copy
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from strop.errors import ModelError
from strop.models.checkpoint_names import to_checkpoint_names
from strop.models.folders import check_export_folder
from strop.records import WeightChunk

MAX_SHARD_BYTES = 5_000_000_000

_LAYER_PREFIX = re.compile(r".*?\.\d+\.")


def export_folder(
    folder: Path,
    chunks: Iterable[WeightChunk],
    hf_model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> Path:
    """Writes weights, config, generation config and tokenizer; the folder is whole or absent.

    Names of `chunks` are those of `hf_model`'s parameters (tied ones once, adapters merged); they are stored
    under the names of its published checkpoint. Only the config of `hf_model` is read, not its weights.
    Raises ModelError where the folder holds something already.
    """
    check_export_folder(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        write_model_files(unfinished, chunks, hf_model, tokenizer, max_shard_bytes)
        unfinished.chmod(0o755)
        unfinished.replace(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def write_model_files(
    folder: Path,
    chunks: Iterable[WeightChunk],
    hf_model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase | None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> None:
    """Writes the files of a model into an existing folder."""
    dtypes = _write_weights(folder, _published(chunks, hf_model), max_shard_bytes)
    config = copy.deepcopy(hf_model.config)
    config.architectures = [type(hf_model).__name__]
    if len(dtypes) == 1:
        config.dtype = dtypes.pop()
    config.save_pretrained(folder)
    if hf_model.generation_config is not None:
        hf_model.generation_config.to_json_file(folder / "generation_config.json")
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)


def _published(chunks: Iterable[WeightChunk], hf_model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    """Renames layer by layer: a tensor that a checkpoint stores fused or split has its parts in one layer."""
    for _, layer in groupby(chunks, key=lambda chunk: _layer_of(chunk.name)):
        yield from to_checkpoint_names(hf_model, {chunk.name: chunk.tensor.detach() for chunk in layer}).items()


def _layer_of(name: str) -> str:
    match = _LAYER_PREFIX.match(name)
    return match.group() if match else name


def _write_weights(folder: Path, weights: Iterable[tuple[str, torch.Tensor]], max_shard_bytes: int) -> set[torch.dtype]:
    """Writes shards as they fill up, then names them by their number; returns the dtypes seen."""
    shards: list[list[str]] = []
    dtypes: set[torch.dtype] = set()
    total_bytes = 0
    for shard in _shards(weights, max_shard_bytes):
        file = folder / f"shard-{len(shards)}"
        save_file(shard, file, metadata={"format": "pt"})
        file.chmod(0o644)
        shards.append(list(shard))
        dtypes |= {tensor.dtype for tensor in shard.values()}
        total_bytes += sum(tensor.nbytes for tensor in shard.values())
    if len(shards) == 1:
        (folder / "shard-0").rename(folder / "model.safetensors")
        return dtypes
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards):
        file_name = f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (folder / f"shard-{number}").rename(folder / file_name)
        weight_map |= dict.fromkeys(names, file_name)
    index = {"metadata": {"total_size": total_bytes}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return dtypes


def _shards(weights: Iterable[tuple[str, torch.Tensor]], max_shard_bytes: int) -> Iterator[dict[str, torch.Tensor]]:
    shard: dict[str, torch.Tensor] = {}
    num_bytes = 0
    for name, tensor in weights:
        if shard and num_bytes + tensor.nbytes > max_shard_bytes:
            yield shard
            shard, num_bytes = {}, 0
        shard[name] = tensor.cpu().contiguous()
        num_bytes += tensor.nbytes
    if not shard:
        raise ModelError("an export must hold at least one weight, got an empty stream")
    yield shard
