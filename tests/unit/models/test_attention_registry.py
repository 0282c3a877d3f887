"""What the registered attention function does with every keyword, and that transformers builds no masks for it."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

from strop.models.attention import (
    ATTENTION_NAME,
    AttentionCall,
    TreeLayout,
    UnsupportedAttentionError,
    register_attention,
)
from strop.models.attention.registry import HARMLESS_KEYWORDS, REFUSED_KEYWORDS, packed_attention_forward
from support.tiny import FAMILIES, SLIDING_WINDOW, tiny_config, tiny_model

TENSORS = torch.randn(3, 1, 2, 4, 8, generator=torch.Generator().manual_seed(0))


class Layer(nn.Module):
    """As much of an attention layer as the function looks at."""

    def __init__(self, layer_idx: int = 1, is_causal: bool = True, config: object = None) -> None:
        super().__init__()
        self.layer_idx, self.is_causal, self.config = layer_idx, is_causal, config


class RecordingLayout:
    """Keeps the calls and attends as a tree."""

    def __init__(self, num_tokens: int) -> None:
        self.tree = TreeLayout.from_lengths([num_tokens])
        self.calls: list[AttentionCall] = []

    def attend(self, call: AttentionCall) -> torch.Tensor:
        self.calls.append(call)
        return self.tree.attend(call)


def attend(
    module: nn.Module | None = None, attention_mask: torch.Tensor | None = None, **keywords: Any
) -> torch.Tensor:
    keywords = {"strop_layout": TreeLayout.from_lengths([4]), "scaling": 0.5, "dropout": 0.0, **keywords}
    return packed_attention_forward(module or Layer(), *TENSORS, attention_mask, **keywords)[0]


def test_registering_twice_changes_nothing() -> None:
    register_attention()
    first = AttentionInterface()[ATTENTION_NAME]
    register_attention()
    assert AttentionInterface()[ATTENTION_NAME] is first
    assert ATTENTION_NAME not in AttentionMaskInterface()


def test_every_implemented_keyword_reaches_the_layout() -> None:
    layout, sinks = RecordingLayout(4), torch.zeros(2)
    output, weights = packed_attention_forward(
        Layer(3), *TENSORS, None, scaling=0.25, dropout=0.0, sliding_window=2, softcap=5.0, s_aux=sinks,
        is_causal=True, strop_layout=layout,
    )  # fmt: skip
    (call,) = layout.calls
    assert (call.layer_index, call.scaling, call.sliding_window, call.softcap) == (3, 0.25, 2, 5.0)
    assert call.sinks is sinks
    assert output.shape == (1, 4, 2, 8)
    assert weights is None


def test_a_missing_scaling_is_that_of_transformers() -> None:
    torch.testing.assert_close(attend(scaling=None), attend(scaling=8**-0.5))


@pytest.mark.parametrize("keyword", sorted(HARMLESS_KEYWORDS))
def test_harmless_keywords_change_nothing(keyword: str) -> None:
    assert torch.equal(attend(**{keyword: torch.arange(4)}), attend())


@pytest.mark.parametrize("keyword", sorted(set(REFUSED_KEYWORDS) - {"dropout", "attention_mask"}))
@pytest.mark.parametrize("value", [True, torch.ones(2)])
def test_keywords_that_would_change_attention_are_refused_by_name(keyword: str, value: object) -> None:
    with pytest.raises(UnsupportedAttentionError, match=f"^{keyword} must not be passed to attention, got it in Layer"):
        attend(**{keyword: value})
    assert torch.equal(attend(**{keyword: None}), attend())


def test_a_mask_dropout_and_unknown_keywords_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedAttentionError, match=r"^attention_mask must not be passed"):
        attend(attention_mask=torch.zeros(1, 1, 4, 4))
    with pytest.raises(UnsupportedAttentionError, match=r"^dropout must not be passed.*set attention_dropout to 0"):
        attend(dropout=0.1)
    with pytest.raises(UnsupportedAttentionError, match=r"^alibi_slopes must not be passed.*unknown"):
        attend(alibi_slopes=torch.ones(2))


def test_bidirectional_attention_is_refused_by_keyword_and_by_module() -> None:
    with pytest.raises(UnsupportedAttentionError, match="is_causal must be True"):
        attend(is_causal=False)
    with pytest.raises(UnsupportedAttentionError, match="is_causal must be True"):
        attend(Layer(is_causal=False))
    attend(Layer(is_causal=False), is_causal=True)


def test_chunked_layers_are_refused_though_they_pass_no_keyword() -> None:
    config = SimpleNamespace(layer_types=["full_attention", "chunked_attention"])
    attend(Layer(0, config=config))
    with pytest.raises(UnsupportedAttentionError, match="layer 1 of Layer is chunked_attention"):
        attend(Layer(1, config=config))


def test_windows_that_are_told_through_masks_only_are_refused() -> None:
    class WindowConfig:
        sliding_window: int | None = None

    config = WindowConfig()
    attend(Layer(config=config))
    config.sliding_window = 8
    attend(Layer(config=config), sliding_window=8)
    with pytest.raises(UnsupportedAttentionError, match="must pass its sliding_window of 8"):
        attend(Layer(config=config))
    typed = SimpleNamespace(layer_types=["sliding_attention"], sliding_window=8)
    with pytest.raises(UnsupportedAttentionError, match="must pass its sliding_window of 8"):
        attend(Layer(0, config=typed), sliding_window=None)


def test_a_layer_without_a_number_is_refused() -> None:
    with pytest.raises(UnsupportedAttentionError, match="Linear must have a layer_idx"):
        attend(nn.Linear(1, 1))


def test_a_model_called_without_a_layout_says_how_to_call_it() -> None:
    with pytest.raises(
        UnsupportedAttentionError, match=r"use_cache=False, strop_layout=TreeLayout.from_batch\(batch\)"
    ):
        tiny_model("llama")(input_ids=torch.zeros(1, 3, dtype=torch.int64))


@pytest.mark.parametrize("family", [*FAMILIES, "qwen3_next"])
def test_no_mask_is_built_and_every_layer_asks_for_what_its_config_says(family: str) -> None:
    model, layout = tiny_model(family), RecordingLayout(20)
    with torch.no_grad():
        model(torch.arange(8, 28)[None], use_cache=False, strop_layout=layout)
    # A mask that had been built would have been refused by the function.
    kinds = model.config.layer_types if hasattr(model.config, "layer_types") else ["full_attention"] * 2
    windows = {index: SLIDING_WINDOW if kind == "sliding_attention" else None for index, kind in enumerate(kinds)}
    expected = [(index, windows[index]) for index, kind in enumerate(kinds) if kind != "linear_attention"]
    assert [(call.layer_index, call.sliding_window) for call in layout.calls] == expected


@pytest.mark.parametrize("family", FAMILIES)
def test_both_kinds_of_mask_leave_early_for_packed_attention_and_not_for_eager(family: str) -> None:
    config = tiny_config(family)
    config.sliding_window = SLIDING_WINDOW
    arguments = {"inputs_embeds": torch.zeros(1, 20, 32), "attention_mask": None, "past_key_values": None}
    for make_mask in (create_causal_mask, create_sliding_window_causal_mask):
        config._attn_implementation = ATTENTION_NAME
        assert make_mask(config=config, **arguments) is None
        config._attn_implementation = "eager"
        assert make_mask(config=config, **arguments) is not None
