"""The proof on the real training engine and the real sampler, with a tiny model."""

import asyncio
from collections.abc import Iterable

import numpy as np
import pytest
import torch

from strop.config.rollout import RolloutConfig
from strop.errors import SyncError
from strop.metrics import Metrics
from strop.records import WeightChunk, WeightReceipt
from strop.rollout.native.engine import NativeEngine
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.transfer import InProcessTransfer
from strop.weight_sync import LocalGate, ProbeSettings, Publisher, Replica, WeightProof, default_bound
from support.tiny import tiny_model
from support.training import tiny_engine

FAMILIES = ("llama", "qwen3", "gemma3")


class Pairing:
    """A training engine and a sampler that starts from other weights."""

    def __init__(self, family: str, engine_type: type[NativeEngine] = NativeEngine) -> None:
        self.policy: Fsdp2Engine = tiny_engine(family)
        self.sampler = engine_type(tiny_model(family, seed=9), RolloutConfig())
        proof = WeightProof(
            ProbeSettings(np.arange(5, 15), 24, seed=0),
            lambda token_ids: self.policy.score_tokens([token_ids])[0],
            default_bound(torch.float32),
        )
        transfer = InProcessTransfer(self.policy.export_weights)
        self.publisher = Publisher([Replica("sampler", self.sampler)], transfer, proof, LocalGate())

    def start(self) -> Metrics:
        return asyncio.run(self.publisher.start(self.policy.version))

    def step_and_publish(self, size: float) -> Metrics:
        generator = torch.Generator().manual_seed(self.policy.version)
        with torch.no_grad():
            for parameter in self.policy.causal_lm.parameters():
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
