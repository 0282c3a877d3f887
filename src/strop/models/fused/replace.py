"""Replaces layers of a loaded model by fused ones, each only after it gave the same output as the original.

    one forward over a few random tokens --> every call of every layer, with its output
    layer of a known shape --> candidate that shares its parameters --> same outputs for the same calls --> replaced

No class is trusted by its name: families differ in details (1 + weight in a norm, interleaved or partial rotary
positions, gates), and a layer that differs in any of them keeps its original. Parameters, their names and the
checkpoint stay as they are.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from strop.models.attention.interface import LAYOUT_KEYWORD, AttentionCall
from strop.models.attention.layer_kinds import supports_shared_prefix
from strop.models.attention.tree import TreeLayout
from strop.models.fused.attention import AttentionOptions, FusedAttention
from strop.models.fused.norm import FusedRMSNorm

NUM_TOKENS: Final = 9
MAX_RELATIVE_DIFFERENCE: Final = {torch.float32: 3e-6, torch.float64: 1e-6}
"""Bound on |fused - original| / |original| of a layer's output (norms and angles are in float32 in all models);
models of other dtypes keep their layers."""
FAR_POSITION: Final = 100_000
"""Stands for the maximum of models that name none."""
EPS_NAMES: Final = ("variance_epsilon", "eps")
PROJECTIONS: Final = frozenset({"q_proj", "k_proj", "v_proj", "o_proj"})
HEAD_NORMS: Final = frozenset({"q_norm", "k_norm"})


@dataclass(slots=True)
class LayerCalls:
    """How the model called one layer, what it gave, and what it asked of the layout meanwhile."""

    module: nn.Module
    inputs: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    asked: list[AttentionCall] = field(default_factory=list)


@torch.no_grad()
def fuse_layers(hf_model: PreTrainedModel) -> dict[str, int]:
    """Replaces what it can in place; returns how many layers of each of the model's classes were replaced.

    `hf_model` is a causal language model on the CPU, loaded with the packed attention and in evaluation mode. Models
    of other dtypes, on other devices, or with layers that carry a state (they are sampled from through transformers'
    own cache) are left as they are.
    """
    bound = MAX_RELATIVE_DIFFERENCE.get(hf_model.dtype)
    if bound is None or hf_model.device.type != "cpu" or not supports_shared_prefix(hf_model.config):
        return {}
    layers = _record(hf_model)
    replaced: dict[str, int] = {}
    for candidates in (_norms, _attentions):  # heads' norms stand inside of attention
        for name, calls in layers.items():
            candidate = next((one for one in candidates(calls) if _agrees(one, calls, bound)), None)
            if candidate is not None:
                parent, _, child = name.rpartition(".")
                setattr(hf_model.get_submodule(parent), child, candidate)
                kind = type(calls.module).__name__
                replaced[kind] = replaced.get(kind, 0) + 1
    return replaced


def _norms(calls: LayerCalls) -> Iterator[nn.Module]:
    """Yields candidates for a module of a weight and an eps that is called with one tensor and nothing else."""
    module = calls.module
    if any(len(arguments) != 1 or keywords for arguments, keywords in calls.inputs):
        return
    parameters = dict(module.named_parameters())
    eps = next((vars(module)[name] for name in EPS_NAMES if name in vars(module)), None)
    if list(parameters) == ["weight"] and eps is not None and not any(module.children()):
        yield from (FusedRMSNorm(parameters["weight"], eps, offset) for offset in (0.0, 1.0))


def _attentions(calls: LayerCalls) -> Iterator[nn.Module]:
    """Yields the candidate for a module of four projections, maybe with norms of its heads."""
    children = dict(calls.module.named_children())
    if set(children) not in (PROJECTIONS, PROJECTIONS | HEAD_NORMS) or len(calls.asked) != len(calls.inputs):
        return
    asked = calls.asked[0]
    head_size = asked.query.shape[-1]
    has_own = any(True for _ in calls.module.parameters(recurse=False))
    if has_own or asked.sinks is not None or not _turns_whole_heads(calls, head_size):
        return
    options = AttentionOptions(asked.scaling, asked.sliding_window, asked.softcap)
    norm_sizes = {weight.numel() for name in HEAD_NORMS & set(children) for weight in children[name].parameters()}
    if norm_sizes <= {head_size}:
        yield FusedAttention(children, head_size, asked.layer_index, options)


def _turns_whole_heads(calls: LayerCalls, head_size: int) -> bool:
    angles = [keywords.get("position_embeddings") for _, keywords in calls.inputs]
    shape = (1, NUM_TOKENS, head_size)
    return all(one is not None and one[0].shape == one[1].shape == shape for one in angles)


def _agrees(candidate: nn.Module, calls: LayerCalls, bound: float) -> bool:
    """Whether the candidate gives what the layer gave, for every call."""
    candidate.train(calls.module.training)
    for (arguments, keywords), wanted in zip(calls.inputs, calls.outputs, strict=True):
        got = _tensor(candidate(*arguments, **keywords))
        if got is None or got.shape != wanted.shape or not (got - wanted).norm() <= bound * wanted.norm():
            return False
    return True


def _record(hf_model: PreTrainedModel) -> dict[str, LayerCalls]:
    """Runs a few random tokens and returns, by name, the layers that were called and gave a tensor."""
    layers = {name: LayerCalls(module) for name, module in hf_model.named_modules()}
    layout = _Recorder()
    hooks = []
    for calls in layers.values():
        hooks += _hook(calls, layout)
    generator = torch.Generator().manual_seed(0)
    vocabulary_size = hf_model.config.get_text_config().vocab_size
    token_ids = torch.randint(vocabulary_size, (1, NUM_TOKENS), generator=generator)
    decoder: Any = hf_model.get_decoder()  # type: ignore[no-untyped-call]
    positions = torch.linspace(0, _longest(hf_model) - 1, NUM_TOKENS).long()
    decoder(token_ids, position_ids=positions[None], use_cache=False, **{LAYOUT_KEYWORD: layout})
    for hook in hooks:
        hook.remove()
    return {name: calls for name, calls in layers.items() if calls.inputs}


def _longest(hf_model: PreTrainedModel) -> int:
    """Returns the model's maximum: some layers scale by position, which shows at far positions only."""
    return int(hf_model.config.get_text_config().to_dict().get("max_position_embeddings") or FAR_POSITION)


class _Recorder:
    """Attends causally, and keeps what was asked."""

    def __init__(self) -> None:
        self.asked: list[AttentionCall] = []
        self._inner = TreeLayout.from_lengths([NUM_TOKENS])

    def attend(self, call: AttentionCall) -> Tensor:
        self.asked.append(call)
        return self._inner.attend(call)


def _hook(calls: LayerCalls, layout: _Recorder) -> list[RemovableHandle]:
    """Notes each call of a layer, with what was asked of the layout between its start and its end."""
    starts: list[int] = []

    def before(module: nn.Module, arguments: Any) -> None:
        starts.append(len(layout.asked))

    def after(module: nn.Module, arguments: Any, keywords: dict[str, Any], output: Any) -> None:
        asked = layout.asked[starts.pop() :]
        tensor = _tensor(output)
        if tensor is not None:
            calls.inputs.append((arguments, keywords))
            calls.outputs.append(tensor)
            calls.asked += asked

    return [
        calls.module.register_forward_pre_hook(before),
        calls.module.register_forward_hook(after, with_kwargs=True),
    ]


def _tensor(output: Any) -> Tensor | None:
    """Returns a layer's output, the first of several."""
    first = output[0] if isinstance(output, tuple) else output
    return first if isinstance(first, Tensor) else None
