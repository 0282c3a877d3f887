"""The proof on the real training engine and on vLLM, and the ways in which vLLM's weights can be wrong."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from strop.errors import SyncError
from strop.metrics import Metrics
from strop.models.weights import weight_chunks
from strop.records import WeightChunk, WeightReceipt
from strop.rollout.vllm.engine import EngineState, VllmEngine
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.transfer import InProcessTransfer, checksums_agree, discrepancies, weight_checksum
from strop.weight_sync import LocalGate, ProbeSettings, Publisher, Replica, WeightProof, default_bound
from support.rollout import make_request, plain_logprobs, serve
from support.tiny import tiny_model
from support.training import tiny_engine
from support.vllm_engines import break_worker, breakable_engine, needs_vllm, vllm_engine

pytestmark = needs_vllm
TIED, UNTIED = "llama_wide", "qwen3_wide"


class Pairing:
    """A training engine and vLLM."""

    def __init__(self, family: str, sampler: VllmEngine, probe_tokens: int | None = None) -> None:
        self.policy: Fsdp2Engine = tiny_engine(family)
        self.proof = WeightProof(
            ProbeSettings(np.arange(5, 15), probe_tokens or sampler.least_probe_tokens, seed=0),
            lambda token_ids: self.policy.score_tokens([token_ids])[0],
            default_bound(torch.float32),
        )
        transfer = InProcessTransfer(self.policy.export_weights)
        self.publisher = Publisher([Replica("sampler", sampler)], transfer, self.proof, LocalGate())

    def start(self) -> Metrics:
        return asyncio.run(self.publisher.start(self.policy.version))

    def step_and_publish(self, size: float) -> Metrics:
        generator = torch.Generator().manual_seed(self.policy.version)
        with torch.no_grad():
            for parameter in self.policy.causal_lm.parameters():
                parameter += size * torch.randn(parameter.shape, generator=generator)
        self.policy.set_version(self.policy.version + 1)
        return asyncio.run(self.publisher.publish(self.policy.version))


@pytest.mark.parametrize("family", [UNTIED, TIED])
def test_vllm_is_proven_after_small_and_large_steps(family: str) -> None:
    pairing = Pairing(family, vllm_engine(family))
    pairing.start()
    for size in (1e-2, 1e-3, 1e-4):
        metrics = pairing.step_and_publish(size)
        assert metrics["sync/state"].result == 1
        assert metrics["sync/tracked_share"].result == pytest.approx(1, abs=0.05)
        assert metrics["sync/logprob_difference"].result < 2e-5
        assert metrics["sync/cache_logprob_difference"].result < 2e-5


@pytest.mark.parametrize("family", [UNTIED, TIED])
def test_the_receipt_accounts_for_every_weight_once_by_its_checkpoint_name(family: str) -> None:
    sent = list(weight_chunks(tiny_model(family, seed=3), 5))
    engine = vllm_engine(family)
    received = asyncio.run(engine.receive_weights(iter(sent), 5))
    books = WeightReceipt(5, tuple(one.name for one in sent), tuple(weight_checksum(one.tensor) for one in sent))
    assert discrepancies(books, received) == []
    assert set(engine.weight_names) == {one.name for one in sent}


def test_a_weights_memory_may_be_used_for_the_next_one_as_soon_as_that_is_asked_for() -> None:
    engine = vllm_engine(UNTIED)
    sent = list(weight_chunks(tiny_model(UNTIED, seed=3), 5))
    memory = torch.empty(max(one.tensor.numel() for one in sent))

    def lent() -> Iterator[WeightChunk]:
        for one in sent:
            part = memory[: one.tensor.numel()].view(one.tensor.shape)
            yield replace(one, tensor=part.copy_(one.tensor))

    received = asyncio.run(engine.receive_weights(lent(), 5))
    assert all(
        checksums_agree(weight_checksum(one.tensor), held) for one, held in zip(sent, received.checksums, strict=True)
    )


def test_a_weight_that_does_not_arrive_is_named_by_vllms_books() -> None:
    sent = list(weight_chunks(tiny_model(UNTIED), 1))
    dropped = next(one.name for one in sent if "k_proj" in one.name)
    with pytest.raises(ValueError, match=f"missing: {dropped}"):
        asyncio.run(vllm_engine(UNTIED).receive_weights([one for one in sent if one.name != dropped], 1))


@pytest.fixture
def broken(request: pytest.FixtureRequest) -> Any:
    """An engine that was proven, and whose worker then receives weights wrongly; mended afterwards."""
    fault, family = request.param
    engine = breakable_engine(family)
    pairing = Pairing(family, engine)
    pairing.start()
    break_worker(engine, fault)
    yield pairing
    break_worker(engine, None)


@pytest.mark.parametrize(
    ("broken", "size", "reason"),
    [
        (("nothing", TIED), 1e-2, "log-probs differ"),
        (("nothing", TIED), 1e-6, "it followed -?0.0"),
        (("reload", TIED), 1e-2, "log-probs differ"),
        (("reload", TIED), 1e-5, "log-probs differ"),
    ],
    indirect=["broken"],
)
def test_the_proof_finds_weights_that_products_do_not_use(broken: Pairing, size: float, reason: str) -> None:
    """At a step of 1e-6 every log-prob is within the absolute bound; only the share of the movement tells."""
    with pytest.raises(SyncError, match=f"sampler: .*{reason}"):
        broken.step_and_publish(size)


@pytest.mark.parametrize("broken", [("naive", TIED)], indirect=True)
def test_plain_load_weights_is_refused_by_vllm_where_linear_weights_were_packed(broken: Pairing) -> None:
    with pytest.raises(SyncError, match="weight_loader"):
        broken.step_and_publish(1e-2)


@pytest.mark.parametrize("size", [1e-1, 1e-3, 1e-6])
def test_the_worker_itself_names_a_packed_head_that_computes_with_older_weights(size: float) -> None:
    """What vLLM's own reload leaves behind in a tied model: a checksum of the plain weight alone would be right.

    At a step of 1e-6 the proof cannot see it: the head bears little of the movement.
    """
    engine = breakable_engine(TIED)
    sent = list(weight_chunks(tiny_model(TIED), 1))
    asyncio.run(engine.receive_weights(sent, 1))
    generator = torch.Generator().manual_seed(0)
    moved = [
        replace(one, tensor=one.tensor + size * torch.randn(one.tensor.shape, generator=generator)) for one in sent
    ]
    break_worker(engine, "reload, looked at")
    with pytest.raises(ValueError, match=r"got not taken over: model\.embed_tokens\.weight$"):
        asyncio.run(engine.receive_weights(moved, 1))
    break_worker(engine, None)
    asyncio.run(engine.receive_weights(moved, 1))


class KeepsCache(VllmEngine):
    """Goes on after a publication without dropping the prefix cache."""

    async def _end_update(self, version: int) -> None:
        await self._host.llm.update_weight_version(str(version))
        if self.state is EngineState.SERVING:
            await self._host.llm.resume_generation()


def keeping_cache(family: str) -> VllmEngine:
    engine = vllm_engine(family)
    return KeepsCache(engine._host, engine._vocabulary_size, engine._max_length)


def test_a_prefix_cache_that_was_not_dropped_is_found_by_a_probe_of_the_least_length() -> None:
    pairing = Pairing(UNTIED, keeping_cache(UNTIED))
    with pytest.raises(SyncError, match="cache"):
        pairing.start()


def test_a_shorter_probe_fills_no_block_and_cannot_see_the_cache() -> None:
    """Why `least_probe_tokens` is what a run with vLLM must use."""
    pairing = Pairing(UNTIED, keeping_cache(UNTIED), probe_tokens=24)
    pairing.start()


def test_a_prefix_cache_that_does_not_report_success_is_an_error() -> None:
    engine = vllm_engine(UNTIED)
    host = engine._host

    class Refusing:
        """vLLM, whose cache stays."""

        def __getattr__(self, name: str) -> Any:
            return getattr(host.llm, name)

        async def reset_prefix_cache(self, **how: Any) -> bool:
            return False

    class Host:
        llm = Refusing()
        call, on_workers, call_and_wait = host.call, host.on_workers, host.call_and_wait

    refusing = VllmEngine(Host(), engine._vocabulary_size, engine._max_length)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="did not drop its prefix cache"):
        asyncio.run(refusing.receive_weights(weight_chunks(tiny_model(UNTIED), 1), 1))
    asyncio.run(host.call(host.llm.resume_generation()))
    with pytest.raises(RuntimeError, match="receive a full set"):
        serve(refusing, make_request(np.arange(5, 9)))


def test_scores_never_read_the_prefix_cache() -> None:
    engine = keeping_cache(UNTIED)
    prompt = np.arange(8, 8 + 3 * 32)
    serve(engine, make_request(prompt, max_new_tokens=2))
    asyncio.run(engine.receive_weights(weight_chunks(tiny_model(UNTIED, seed=1), 1), 1))
    (score,) = asyncio.run(engine.score([prompt]))
    np.testing.assert_allclose(score, plain_logprobs(UNTIED, prompt, seed=1), atol=1e-4)


def test_prompts_are_read_from_the_prefix_cache_until_a_publication() -> None:
    """Blocks of 32 tokens: of 96 the last is computed anew, so that two are read."""
    engine = vllm_engine(UNTIED)
    prompt = np.arange(8, 8 + 3 * 32)
    before = engine.counters.cached_tokens
    serve(engine, make_request(prompt, max_new_tokens=2))
    serve(engine, make_request(prompt, max_new_tokens=2))
    asyncio.run(engine.receive_weights(weight_chunks(tiny_model(UNTIED), 1), 1))
    serve(engine, make_request(prompt, 3, max_new_tokens=2))
    assert engine.counters.cached_tokens - before == 64 + 2 * 64


def test_the_samples_of_a_group_share_their_prompt_from_the_first_token_on() -> None:
    engine = vllm_engine(UNTIED)
    before = engine.counters.cached_tokens
    serve(engine, make_request(np.arange(8, 8 + 3 * 32), 4, max_new_tokens=2))
    assert engine.counters.cached_tokens - before == 3 * 64
