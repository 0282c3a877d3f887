"""The check at the start of a run: does this model, packed, compute what it computes plainly?

Two short random sequences with a shared prefix run packed, through the decoder and the head as training and sampling
use them, and each alone through the model's own forward with transformers' eager attention. This catches models that
do not ask the attention interface, that say part of their attention elsewhere, and heads that are not understood.
"""

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import torch
from transformers import PreTrainedModel

from strop.errors import ModelError
from strop.models.attention.interface import LAYOUT_KEYWORD
from strop.models.attention.layer_kinds import supports_shared_prefix
from strop.models.attention.tree import TreeLayout
from strop.models.head import LogitsHead
from strop.records import Segment

PREFIX_TOKENS: Final = 12
BRANCH_TOKENS: Final = (9, 5)
PLAIN_IMPLEMENTATION: Final = "eager"
"""The one implementation of transformers that honours soft-caps and sinks in every model."""
MAX_RELATIVE_DIFFERENCE: Final = {torch.float32: 1e-4, torch.float64: 1e-4}
"""Bound on |packed - plain| / |plain| over the logits of one sequence, each token's centred over the vocabulary."""
MAX_RELATIVE_DIFFERENCE_LOW_PRECISION: Final = 0.1


def check_packed_attention(hf_model: PreTrainedModel) -> None:
    """Raises ModelError where packed logits differ from plain ones; leaves the model as it was.

    `hf_model` is a causal language model loaded with the packed attention.
    """
    _require_open_keywords(hf_model)
    shares_prefix = supports_shared_prefix(hf_model.config)
    sequences = _sequences(hf_model)
    with _evaluating(hf_model), torch.no_grad():
        packed = _shared(hf_model, sequences) if shares_prefix else [_alone(hf_model, ids) for ids in sequences]
        with _plain_attention(hf_model):
            plain = [hf_model(input_ids=ids[None], use_cache=False).logits[0] for ids in sequences]
    for packed_TV, plain_TV in zip(packed, plain, strict=True):
        _compare(hf_model, packed_TV, plain_TV)


def _sequences(hf_model: PreTrainedModel) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    vocabulary_size = hf_model.config.get_text_config().vocab_size
    ids = [torch.randint(vocabulary_size, (length,), generator=generator) for length in (PREFIX_TOKENS, *BRANCH_TOKENS)]
    return [torch.cat([ids[0], branch]).to(hf_model.device) for branch in ids[1:]]


def _shared(hf_model: PreTrainedModel, sequences: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns [T, V] logits of each sequence, its prefix computed once."""
    first, second = (PREFIX_TOKENS + length for length in BRANCH_TOKENS)
    stop = first + second - PREFIX_TOKENS
    layout = TreeLayout(
        [Segment(0, PREFIX_TOKENS, None, stop), Segment(PREFIX_TOKENS, first, 0, first), Segment(first, stop, 0, stop)]
    )
    logits_TV = _logits(hf_model, torch.cat([sequences[0], sequences[1][PREFIX_TOKENS:]]), layout)
    return [logits_TV[:first], torch.cat([logits_TV[:PREFIX_TOKENS], logits_TV[first:]])]


def _alone(hf_model: PreTrainedModel, token_ids_T: torch.Tensor) -> torch.Tensor:
    return _logits(hf_model, token_ids_T, TreeLayout.from_lengths([len(token_ids_T)]))


def _logits(hf_model: PreTrainedModel, token_ids_T: torch.Tensor, layout: TreeLayout) -> torch.Tensor:
    decoder = hf_model.get_decoder()  # type: ignore[no-untyped-call]
    positions_T = layout.ordinals().to(token_ids_T.device)
    outputs = decoder(
        input_ids=token_ids_T[None], position_ids=positions_T[None], use_cache=False, **{LAYOUT_KEYWORD: layout}
    )
    return LogitsHead.from_model(hf_model).logits(outputs.last_hidden_state[0])


def _compare(hf_model: PreTrainedModel, packed_TV: torch.Tensor, plain_TV: torch.Tensor) -> None:
    packed, plain = (x.double() - x.double().mean(-1, keepdim=True) for x in (packed_TV, plain_TV))
    difference = (packed - plain).abs()
    relative = float(difference.norm() / plain.norm().clamp_min(torch.finfo(torch.float64).tiny))
    bound = MAX_RELATIVE_DIFFERENCE.get(hf_model.dtype, MAX_RELATIVE_DIFFERENCE_LOW_PRECISION)
    if not relative <= bound:
        token = int(difference.amax(-1).argmax())
        raise ModelError(
            f"packed logits of {type(hf_model).__name__} must equal plain ones within {bound:g} (relative norm), got "
            f"{relative:.3g}; the largest difference is {float(difference.max()):.3g}, at token {token}",
            "This model says part of its attention or of its head in a way that packing does not see: choose another.",
        )


def _require_open_keywords(hf_model: PreTrainedModel) -> None:
    decoder = hf_model.get_decoder()  # type: ignore[no-untyped-call]
    parameters = inspect.signature(decoder.forward).parameters.values()
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        raise ModelError(
            f"{type(hf_model).__name__} must hand keywords down to its attention, got a forward with fixed arguments",
            "This model does not use transformers' attention interface: choose another.",
        )


@contextmanager
def _plain_attention(hf_model: PreTrainedModel) -> Iterator[None]:
    config = hf_model.config
    before = {name: getattr(config, name)._attn_implementation for name in config.sub_configs if getattr(config, name)}
    before[""] = config._attn_implementation
    hf_model.set_attn_implementation(PLAIN_IMPLEMENTATION)
    try:
        yield
    finally:
        hf_model.set_attn_implementation(before)


@contextmanager
def _evaluating(hf_model: PreTrainedModel) -> Iterator[None]:
    was_training = hf_model.training
    hf_model.train(False)
    try:
        yield
    finally:
        hf_model.train(was_training)
