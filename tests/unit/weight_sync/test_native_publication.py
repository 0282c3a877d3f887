"""The proof on the real training engine and the real sampler, with a tiny model."""

import asyncio
import copy
from collections.abc import Iterable, Iterator

import numpy as np
import pytest
import torch

from strop.config.model import LoraConfig
from strop.config.rollout import RolloutConfig
from strop.errors import SyncError
from strop.metrics import Metrics
from strop.models.lora import attach_adapters
from strop.models.weights import weight_chunks
from strop.records import WeightChunk, WeightReceipt
from strop.rollout.native.engine import NativeEngine
from strop.rollout.native.weights import HeldWeight
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.transfer import InProcessTransfer, weight_checksum
from strop.transfer.source import Weights
from strop.weight_sync import LocalGate, ProbeSettings, Publisher, Replica, WeightProof, default_bound
from support.tiny import tiny_model
from support.training import tiny_engine

FAMILIES = ("llama", "qwen3", "gemma3")


class Pairing:
    """A training engine and a sampler that starts from other weights."""

    def __init__(
        self,
        family: str,
        engine_type: type[NativeEngine] = NativeEngine,
        *,
        further: int = 0,
        policy: Fsdp2Engine | None = None,
        weights: Weights | None = None,
    ) -> None:
        """`further` right samplers stand beside the one that is broken; `weights` replaces the trainer's stream."""
        self.policy: Fsdp2Engine = tiny_engine(family) if policy is None else policy
        self.sampler = engine_type(tiny_model(family, seed=9), RolloutConfig())
        proof = WeightProof(
            ProbeSettings(np.arange(5, 15), 24, seed=0),
            lambda token_ids: self.policy.score_tokens([token_ids])[0],
            default_bound(torch.float32),
        )
        transfer = InProcessTransfer(self.policy.export_weights if weights is None else weights)
        right = [NativeEngine(tiny_model(family, seed=8), RolloutConfig()) for _ in range(further)]
        replicas = [Replica("sampler", self.sampler)] + [Replica(f"right {i}", one) for i, one in enumerate(right)]
        self.publisher = Publisher(replicas, transfer, proof, LocalGate())

    def start(self) -> Metrics:
        return asyncio.run(self.publisher.start(self.policy.version))

    def step_and_publish(self, size: float) -> Metrics:
        generator = torch.Generator().manual_seed(self.policy.version)
        with torch.no_grad():
            for parameter in self.policy.causal_lm.parameters():
                if not parameter.requires_grad:
                    continue
                parameter += size * torch.randn(parameter.shape, generator=generator)
        self.policy.set_version(self.policy.version + 1)
        return asyncio.run(self.publisher.publish(self.policy.version))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_real_sampler_is_proven_after_small_and_large_steps(family: str) -> None:
    pairing = Pairing(family)
    pairing.start()
    for size in (1e-2, 1e-3, 1e-4):
        metrics = pairing.step_and_publish(size)
        assert metrics["sync/state"].result == 1
        assert metrics["sync/tracked_share"].result == pytest.approx(1, abs=0.05)
        assert metrics["sync/logprob_difference"].result < 2e-5
        assert metrics["sync/cache_logprob_difference"].result < 2e-5


class StaleHead(NativeEngine):
    """Takes everything, then holds the head of the start again, as an engine with a forgotten packed copy does."""

    is_stale = False
    head = torch.zeros(0)

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        chunks = list(chunks)
        receipt = await super().receive_weights(chunks, version)
        if self.is_stale:
            self._network.weights._held["lm_head.weight"].write(self.head)
        else:
            self.head = next(chunk.tensor.clone() for chunk in chunks if chunk.name == "lm_head.weight")
        return receipt


@pytest.mark.parametrize(("size", "reason"), [(1e-2, "log-probs differ"), (1e-5, "it followed")])
def test_a_stale_head_of_a_real_sampler_is_found(size: float, reason: str) -> None:
    pairing = Pairing("qwen3", StaleHead)
    pairing.start()
    pairing.sampler.is_stale = True
    with pytest.raises(SyncError, match=f"sampler: .*{reason}"):
        pairing.step_and_publish(size)


class ForgottenPackedHead(NativeEngine):
    """Copies weights as `load_weights` does: into the plain tensors, with no thought of packed copies."""

    def forget(self) -> None:
        held = self._network.weights._held
        head = held["model.embed_tokens.weight"]
        assert head.plain is not None, "the embedding must be tied to the head"
        assert head.packed, "a tied head must be packed"
        held["model.embed_tokens.weight"] = HeldWeight(head.plain, ())


@pytest.mark.parametrize(("size", "reason"), [(1e-2, "log-probs differ"), (1e-5, "it followed")])
def test_a_packed_tied_head_that_is_left_stale_is_found_though_the_books_balance(size: float, reason: str) -> None:
    pairing = Pairing("gemma3", ForgottenPackedHead)
    pairing.start()
    pairing.sampler.forget()
    with pytest.raises(SyncError, match=f"sampler: .*{reason}"):
        pairing.step_and_publish(size)


class LoadsNothing(NativeEngine):
    """Takes every weight from the stream and keeps its own."""

    is_deaf, tells_the_truth = False, True

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        if not self.is_deaf:
            return await super().receive_weights(chunks, version)
        told = [(chunk.name, weight_checksum(chunk.tensor)) for chunk in chunks]
        held = self._network.weights._held
        self._version = version
        names, checksums = zip(*told, strict=True)
        return WeightReceipt(
            version, names, tuple(held[name].checksum() for name in names) if self.tells_the_truth else checksums
        )


@pytest.mark.parametrize(
    ("truth", "size", "reason"),
    [(True, 1e-2, "has checksum"), (False, 1e-2, "log-probs differ"), (False, 1e-5, "it followed")],
)
def test_weights_that_are_not_loaded_are_found_by_the_books_or_else_by_the_probe(
    truth: bool, size: float, reason: str
) -> None:
    pairing = Pairing("qwen3", LoadsNothing)
    pairing.start()
    pairing.sampler.is_deaf, pairing.sampler.tells_the_truth = True, truth
    with pytest.raises(SyncError, match=f"sampler.*{reason}"):
        pairing.step_and_publish(size)


class DropsOneName(NativeEngine):
    """Leaves one name out, as a wrong name mapping does."""

    dropped = ""

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        return await super().receive_weights((one for one in chunks if one.name != self.dropped), version)


def test_a_name_that_is_dropped_is_named() -> None:
    pairing = Pairing("qwen3", DropsOneName)
    pairing.start()
    pairing.sampler.dropped = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(SyncError, match=r"sampler: .*missing: model.layers.1.mlp.up_proj.weight"):
        pairing.step_and_publish(1e-2)


@pytest.mark.parametrize(("size", "reason"), [(1e-2, "log-probs differ"), (2e-6, "it followed")])
def test_an_adapter_that_is_not_attached_is_found_though_the_books_balance(size: float, reason: str) -> None:
    """What is published is the base alone: the sampler holds exactly what was sent, and samples another policy."""
    model = tiny_model("qwen3")
    base = copy.deepcopy(model)
    attach_adapters(model, LoraConfig(rank=4))
    policy = tiny_engine(model=model)

    def base_alone() -> Iterator[WeightChunk]:
        return weight_chunks(base, policy.version)

    pairing = Pairing("qwen3", policy=policy, weights=base_alone)
    pairing.start()
    with pytest.raises(SyncError, match=f"sampler: .*{reason}"):
        pairing.step_and_publish(size)


def test_an_adapter_that_is_merged_is_proven() -> None:
    model = tiny_model("qwen3")
    attach_adapters(model, LoraConfig(rank=4))
    pairing = Pairing("qwen3", policy=tiny_engine(model=model))
    pairing.start()
    for size in (1e-2, 1e-3):
        assert pairing.step_and_publish(size)["sync/state"].result == 1


def test_of_several_real_samplers_the_wrong_one_is_named_and_no_other() -> None:
    pairing = Pairing("qwen3", StaleHead, further=2)
    pairing.start()
    pairing.sampler.is_stale = True
    with pytest.raises(SyncError) as failure:
        pairing.step_and_publish(1e-2)
    assert "sampler: scored without cache" in str(failure.value)
    assert "right" not in str(failure.value)
