"""Weights received in place: every name once, packed copies never stale, caches never of other weights."""

import asyncio
from collections.abc import Callable, Iterable

import numpy as np
import pytest
import torch

from strop.config.rollout import RolloutConfig
from strop.models.weights import weight_chunks
from strop.records import Completion, WeightChunk
from strop.rollout.native import NativeEngine
from strop.rollout.native.linears import PackedLinear
from support.rollout import make_request, serve, turns
from support.tiny import random_ids, tiny_model

PROBE = random_ids(np.random.default_rng(0), 24)


def make_engine(family: str = "llama", *, packed_linears: bool = True, seed: int = 0) -> NativeEngine:
    return NativeEngine(tiny_model(family, seed), RolloutConfig(packed_linears=packed_linears))


def score(engine: NativeEngine) -> np.ndarray:
    return asyncio.run(engine.score([PROBE]))[0]


def chunks(family: str = "llama", seed: int = 1, version: int = 1) -> list[WeightChunk]:
    return list(weight_chunks(tiny_model(family, seed), version))


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3_moe", "gemma3"])
@pytest.mark.parametrize("packed_linears", [False, True])
def test_received_weights_are_what_scores_and_samples_come_from(family: str, packed_linears: bool) -> None:
    engine = make_engine(family, packed_linears=packed_linears)
    before = score(engine)
    serve(engine, make_request(PROBE, 2))
    sent = chunks(family)
    receipt = asyncio.run(engine.receive_weights(iter(sent), 1))
    fresh = make_engine(family, packed_linears=packed_linears, seed=1)
    assert np.abs(score(engine) - before).max() > 0.1
    np.testing.assert_allclose(score(engine), score(fresh), atol=1e-6)
    (completions,), (expected,) = serve(engine, make_request(PROBE, 2)), serve(fresh, make_request(PROBE, 2))
    for completion, other in zip(completions, expected, strict=True):
        assert completion.token_ids.tolist() == other.token_ids.tolist()
        assert set(completion.policy_versions) == {1}
    assert (receipt.version, receipt.names) == (1, tuple(chunk.name for chunk in sent))
    sums = [chunk.tensor.double().abs().sum().item() for chunk in sent]
    np.testing.assert_allclose(receipt.checksums, sums, rtol=1e-12)
    assert set(engine.weight_names) == set(receipt.names)


def without(name: str) -> Callable[[list[WeightChunk]], Iterable[WeightChunk]]:
    return lambda sent: [chunk for chunk in sent if chunk.name != name]


NORM = "model.norm.weight"
FAULTS = {
    "unknown: spare.weight": lambda sent: [*sent, WeightChunk("spare.weight", torch.zeros(2), 1)],
    "tied to model.embed_tokens.weight": lambda sent: [*sent, WeightChunk("lm_head.weight", sent[0].tensor, 1)],
    f"doubled: {NORM}": lambda sent: [*sent, *[chunk for chunk in sent if chunk.name == NORM]],
    f"missing: {NORM}": without(NORM),
    rf"wrong shape: {NORM} must be \(32,\), got \(3,\)": lambda sent: [
        *without(NORM)(sent),
        WeightChunk(NORM, torch.zeros(3), 1),
    ],
    f"wrong version: {NORM} must be of version 1, got 0": lambda sent: [
        *without(NORM)(sent),
        WeightChunk(NORM, torch.zeros(32), 0),
    ],
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_faulty_set_is_refused_by_name_and_the_mixture_is_not_sampled_from(message: str) -> None:
    engine = make_engine()
    with pytest.raises(ValueError, match=message):
        asyncio.run(engine.receive_weights(FAULTS[message](chunks()), 1))
    with pytest.raises(RuntimeError, match="receive a full set"):
        score(engine)
    with pytest.raises(RuntimeError, match="receive a full set"):
        serve(engine, make_request(PROBE))
    asyncio.run(engine.receive_weights(chunks(), 1))
    np.testing.assert_allclose(score(engine), score(make_engine(seed=1)), atol=1e-6)


def test_a_packed_copy_that_was_forgotten_shows_in_the_scores() -> None:
    engine = make_engine(packed_linears=True)
    sent = chunks()
    head = next(chunk for chunk in sent if chunk.name == "model.embed_tokens.weight")
    asyncio.run(engine.receive_weights(sent, 1))
    fresh = score(engine)
    model = tiny_model("llama", 1)
    stale = NativeEngine(model, RolloutConfig(packed_linears=True))
    with torch.no_grad():
        model.get_input_embeddings().weight.copy_(head.tensor * 1.5)
    assert isinstance(model.get_output_embeddings(), PackedLinear)
    assert np.abs(score(stale) - fresh).max() > 1e-3


def test_running_samples_go_on_under_new_weights_as_a_resumed_sample_would() -> None:
    async def switch_while_running() -> list[Completion]:
        engine = make_engine()
        job = asyncio.create_task(engine.generate(make_request(PROBE, 2, max_new_tokens=16)))
        await turns(6)
        await engine.pause()
        await engine.receive_weights(chunks(), 1)
        await engine.resume()
        return await job

    async def stop_and_start_anew() -> list[Completion]:
        engine = make_engine()
        job = asyncio.create_task(engine.generate(make_request(PROBE, 2, max_new_tokens=16)))
        await turns(6)
        await engine.interrupt()
        first = await job
        fresh = NativeEngine(tiny_model("llama", 1), RolloutConfig(), version=1)
        return await fresh.generate(make_request(PROBE, 2, max_new_tokens=16, partial=tuple(first)))

    switched, resumed = asyncio.run(switch_while_running()), asyncio.run(stop_and_start_anew())
    for one, other in zip(switched, resumed, strict=True):
        versions = one.policy_versions.tolist()
        assert versions == sorted(versions)
        assert set(versions) == {0, 1}
        assert versions == other.policy_versions.tolist()
        assert one.token_ids.tolist() == other.token_ids.tolist()
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_packing_keeps_no_plain_copy_of_a_weight_that_is_not_shared() -> None:
    model = tiny_model("llama")
    NativeEngine(model, RolloutConfig(packed_linears=True))
    assert not [name for name, _ in model.named_parameters() if "_proj" in name]
    assert "model.embed_tokens.weight" in dict(model.named_parameters())
