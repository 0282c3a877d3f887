"""Packed experts and one tensor an expert are the same numbers; the oracle is the export of transformers."""

from collections.abc import Iterator

import pytest
import torch
import transformers

from strop.errors import SyncError
from strop.models.checkpoint_names import to_checkpoint_names
from strop.models.weights import weight_chunks
from strop.records import WeightChunk
from strop.transfer.layouts import EXPERT_NAMES, pack_experts, split_experts

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 24,
    "moe_intermediate_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts_per_tok": 2,
}
NUM_EXPERTS = 3
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
FAMILIES = {
    "deepseek_v2": LATENT | {"n_routed_experts": NUM_EXPERTS, "first_k_dense_replace": 1},
    "deepseek_v3": LATENT
    | {"n_routed_experts": NUM_EXPERTS, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    "glm4_moe": {"n_routed_experts": NUM_EXPERTS, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1},
    "mixtral": {"num_local_experts": NUM_EXPERTS},
    "olmoe": {"num_experts": NUM_EXPERTS},
    "qwen2_moe": {"num_experts": NUM_EXPERTS, "shared_expert_intermediate_size": 8},
    "qwen3_moe": {"num_experts": NUM_EXPERTS},
    "qwen3_next": {"num_experts": NUM_EXPERTS, "shared_expert_intermediate_size": 8},
    "gpt_oss": {"num_local_experts": NUM_EXPERTS},
}


def model_of(family: str) -> transformers.PreTrainedModel:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **SIZES, **FAMILIES[family])
    return transformers.AutoModelForCausalLM.from_config(config)


def chunks_of(*named: tuple[str, torch.Tensor]) -> list[WeightChunk]:
    return [WeightChunk(name, tensor, 5) for name, tensor in named]


def test_every_family_of_the_table_is_tried() -> None:
    assert set(EXPERT_NAMES) - set(FAMILIES) == {"llama4", "llama4_text"}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_split_experts_are_those_of_the_published_checkpoint(family: str) -> None:
    model = model_of(family)
    held = {chunk.name: chunk.tensor for chunk in weight_chunks(model)}
    published = {name: tensor for name, tensor in to_checkpoint_names(model, held).items() if ".experts." in name}
    split = {chunk.name: chunk.tensor for chunk in split_experts(weight_chunks(model), family)}
    experts = {name: tensor for name, tensor in split.items() if ".experts." in name}
    assert experts.keys() == published.keys()
    assert len(experts) > 3
    assert all(torch.equal(tensor, published[name]) for name, tensor in experts.items())


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_way_there_and_back_is_bit_equal_and_leaves_the_rest_alone(family: str) -> None:
    sent = list(weight_chunks(model_of(family), version=5))
    back = list(pack_experts(split_experts(sent, family), family, NUM_EXPERTS))
    assert [chunk.name for chunk in back] == [chunk.name for chunk in sent]
    for one, other in zip(sent, back, strict=True):
        assert torch.equal(one.tensor, other.tensor)
        assert other.version == 5
        assert (one is other) == (".experts." not in one.name or EXPERT_NAMES[family] is None)


def test_gate_lies_above_up_and_views_are_not_copied() -> None:
    packed = torch.arange(2 * 4 * 3.0).view(2, 4, 3)
    down = torch.arange(2 * 3 * 2.0).view(2, 3, 2)
    chunks = chunks_of(("layers.0.mlp.experts.gate_up_proj", packed), ("layers.0.mlp.experts.down_proj", down))
    split = {chunk.name: chunk.tensor for chunk in split_experts(chunks, "qwen3_moe")}
    assert split["layers.0.mlp.experts.1.gate_proj.weight"].tolist() == packed[1, :2].tolist()
    assert split["layers.0.mlp.experts.1.up_proj.weight"].tolist() == packed[1, 2:].tolist()
    assert split["layers.0.mlp.experts.1.down_proj.weight"].tolist() == down[1].tolist()
    assert split["layers.0.mlp.experts.0.gate_proj.weight"].data_ptr() == packed.data_ptr()


def test_an_expert_after_the_other_packs_as_well_as_a_part_after_the_other() -> None:
    """Published files go by expert, split tensors by part."""
    sent = list(weight_chunks(model_of("qwen3_moe")))
    split = list(split_experts(sent, "qwen3_moe"))
    by_expert = sorted(split, key=lambda chunk: chunk.name)
    back = {chunk.name: chunk.tensor for chunk in pack_experts(by_expert, "qwen3_moe", NUM_EXPERTS)}
    assert all(torch.equal(back[chunk.name], chunk.tensor) for chunk in sent)


def test_at_most_one_packed_tensor_is_asked_for_ahead() -> None:
    taken: list[str] = []

    def stream() -> Iterator[WeightChunk]:
        for chunk in weight_chunks(model_of("qwen3_moe")):
            taken.append(chunk.name)
            yield chunk

    for chunk in split_experts(stream(), "qwen3_moe"):
        if ".experts.0.gate_proj" in chunk.name:
            assert taken[-1] == chunk.name.replace("0.gate_proj.weight", "gate_up_proj")


@pytest.mark.parametrize("family", ["qwen4_moe", "unheard_of"])
def test_a_packed_tensor_of_an_unknown_family_is_an_error_and_plain_weights_are_not(family: str) -> None:
    plain = chunks_of(("layers.0.mlp.up_proj.weight", torch.zeros(2, 2)))
    assert list(split_experts(plain, family)) == plain
    packed = chunks_of(("layers.0.mlp.experts.down_proj", torch.zeros(2, 2, 2)))
    with pytest.raises(SyncError, match=f"layers.0.mlp.experts.down_proj must be known to be split, got .*{family}"):
        list(split_experts(packed, family))


def single(expert: int, part: str, rows: int = 2, layer: int = 0) -> tuple[str, torch.Tensor]:
    return f"layers.{layer}.mlp.experts.{expert}.{part}_proj.weight", torch.zeros(rows, 2)


@pytest.mark.parametrize(
    ("named", "complaint"),
    [
        ([single(0, "down"), single(0, "down")], "experts must come once, got layers.0.mlp.experts.0.down_proj.weight"),
        ([single(0, "down"), single(2, "down")], "each of 2 experts must come once, got .*experts.2.down_proj"),
        ([single(0, "down"), single(1, "down", rows=3)], r"must be \(2, 2\), got \(3, 2\)"),
        ([single(0, "gate"), single(0, "up", rows=3)], r"must be \(2, 2\), got \(3, 2\)"),
        (
            [single(0, "down")],
            "all experts of layers.0 must come before the next layer, missing: 0.gate_proj and 4 more",
        ),
        ([single(0, "down"), single(0, "down", layer=1)], "all experts of layers.0 must come before the next layer"),
    ],
)
def test_every_gap_in_a_layer_is_named(named: list[tuple[str, torch.Tensor]], complaint: str) -> None:
    with pytest.raises(SyncError, match=complaint):
        list(pack_experts(chunks_of(*named), "qwen3_moe", 2))


def test_an_odd_number_of_rows_is_no_pair_of_gate_and_up() -> None:
    packed = chunks_of(("layers.0.mlp.experts.gate_up_proj", torch.zeros(2, 3, 2)))
    with pytest.raises(SyncError, match="must hold gate and up one above the other"):
        list(split_experts(packed, "qwen3_moe"))
