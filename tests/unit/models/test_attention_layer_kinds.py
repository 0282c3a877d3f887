"""Which models may share prefixes, told from their config alone."""

import pytest
from transformers import (
    BambaConfig,
    FalconH1Config,
    Gemma3Config,
    JambaConfig,
    Lfm2Config,
    Llama4TextConfig,
    LlamaConfig,
    Mamba2Config,
    MiniMaxConfig,
    PreTrainedConfig,
    RecurrentGemmaConfig,
    RwkvConfig,
    ZambaConfig,
)

from strop.errors import ModelError
from strop.models.attention import describe_layers, supports_shared_prefix
from support.tiny import FAMILIES, HYBRID_FAMILIES, tiny_config


@pytest.mark.parametrize("family", FAMILIES)
def test_softmax_attention_everywhere_shares_prefixes(family: str) -> None:
    assert supports_shared_prefix(tiny_config(family))


@pytest.mark.parametrize("family", HYBRID_FAMILIES)
def test_tiny_hybrids_do_not_share(family: str) -> None:
    assert not supports_shared_prefix(tiny_config(family))


RECURRENT_CONFIGS = (
    BambaConfig,
    FalconH1Config,
    JambaConfig,
    Lfm2Config,
    Mamba2Config,
    MiniMaxConfig,
    RecurrentGemmaConfig,
    RwkvConfig,
    ZambaConfig,
)


@pytest.mark.parametrize("config_type", RECURRENT_CONFIGS)
def test_families_with_a_recurrent_state_do_not_share(config_type: type[PreTrainedConfig]) -> None:
    assert not supports_shared_prefix(config_type())


def test_the_text_part_of_a_multimodal_model_decides() -> None:
    kinds = describe_layers(Gemma3Config())
    assert set(kinds.names) == {"sliding_attention", "full_attention"}
    assert kinds.model_type == "gemma3_text"


def test_one_linear_layer_among_many_is_enough() -> None:
    config = LlamaConfig()
    config.layer_types = ["full_attention"] * 31 + ["linear_attention"]
    assert not supports_shared_prefix(config)


@pytest.mark.parametrize("kind", ["indexed_attention", "a_kind_of_next_year"])
def test_layer_kinds_that_nobody_computes_are_refused_by_name(kind: str) -> None:
    config = LlamaConfig()
    config.layer_types = ["full_attention", kind]
    with pytest.raises(ModelError, match=rf"got \['{kind}'\] in llama"):
        describe_layers(config)


def test_chunked_attention_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"got \['chunked_attention'\] in llama4_text"):
        supports_shared_prefix(Llama4TextConfig())
