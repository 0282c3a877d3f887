"""A failure injected at each point of a publication: both sides end in a defined state, and the replica is named."""

import asyncio
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from strop.config.rollout import RolloutConfig
from strop.errors import SyncError
from strop.models.weights import weight_chunks
from strop.records import Completion, GroupRequest, WeightChunk, WeightReceipt
from strop.rollout.native import NativeEngine
from strop.transfer import InProcessTransfer
from strop.weight_sync import LocalGate, ProbeSettings, Publisher, Replica, SyncState, WeightProof
from strop.weight_sync.hand_over import HandOver, Tenancy
from support.rollout import make_request
from support.softmax_policy import Sampler, Trainer
from support.tiny import tiny_model

PROMPT = np.arange(4)
BOUNDARIES = {
    "interrupt": "holding",
    "wake": "holding",
    "pause": "holding",
    "receive": "updating",
    "half": "updating",
    "resume": "updating",
    "generate": "proving",
    "score": "proving",
}
"""Each point with the state in which it lies."""


class Breaks(Sampler):
    """Raises at one point."""

    at = ""

    def reach(self, point: str) -> None:
        if self.at == point:
            raise ConnectionError("the worker is gone")

    async def interrupt(self) -> None:
        self.reach("interrupt")
        await super().interrupt()

    async def wake(self) -> None:
        self.reach("wake")
        await super().wake()

    async def pause(self) -> None:
        self.reach("pause")
        await super().pause()

    async def resume(self) -> None:
        self.reach("resume")
        await super().resume()

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        self.reach("receive")
        return await super().receive_weights(chunks, version)

    def take(self, chunk: WeightChunk) -> None:
        if chunk.name == "body":
            self.reach("half")
        super().take(chunk)

    async def generate(self, request: GroupRequest) -> list[Completion]:
        self.reach("generate")
        return await super().generate(request)

    async def score(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        self.reach("score")
        return await super().score(token_ids)


class Rig:
    """A trainer and two samplers, the second of which breaks."""

    def __init__(self, *, with_turns: bool = False) -> None:
        self.trainer, self.samplers, self.gate = Trainer(), {"right": Sampler(), "broken": Breaks()}, LocalGate()
        proof = WeightProof(ProbeSettings(PROMPT, 24, seed=0), self.trainer.score, 1e-4)
        self.device = Device(self.samplers["broken"])
        self.turns = HandOver(self.device, self.device, self.device, self.device.barrier) if with_turns else None
        self.publisher = Publisher(
            [Replica(name, engine) for name, engine in self.samplers.items()],
            InProcessTransfer(self.trainer.export_weights),
            proof,
            self.gate,
            turns=self.turns,
            timeout_seconds=5,
        )
        asyncio.run(self.publisher.start(0))

    def step_and_publish(self) -> None:
        self.trainer.step(1e-2)
        asyncio.run(self.publisher.publish(self.trainer.version))


class NoBarrier:
    """Stands for other ranks; none are late."""

    def __init__(self, calls: list[str]) -> None:
        self._calls = calls

    async def wait(self, purpose: str) -> None:
        self._calls.append("barrier")


class Device:
    """A shared device; notes what is done beside what the sampler is asked."""

    def __init__(self, sampler: Sampler) -> None:
        self.calls = sampler.calls
        self.barrier = NoBarrier(self.calls)

    def offload(self) -> None:
        self.calls.append("offload")

    def onload(self) -> None:
        self.calls.append("onload")

    def empty_cache(self) -> None:
        self.calls.append("empty cache")

    def memory_bytes(self) -> int:
        return 0

    async def wake_weights(self) -> None:
        self.calls.append("wake weights")

    async def wake_cache(self) -> None:
        self.calls.append("wake cache")

    async def sleep(self) -> None:
        self.calls.append("sleep")


@pytest.mark.parametrize("at", sorted(BOUNDARIES))
def test_wherever_a_sampler_breaks_the_state_is_failed_and_the_version_the_last_proven(at: str) -> None:
    rig = Rig()
    rig.step_and_publish()
    rig.samplers["broken"].at = at
    with pytest.raises(SyncError, match=f"while {BOUNDARIES[at]}: broken: ConnectionError: the worker is gone"):
        rig.step_and_publish()
    assert rig.publisher.state is SyncState.FAILED
    assert rig.publisher.version == 1, "tokens must not count under a version that was not proven"

    async def ask() -> None:
        async with rig.gate.request():
            raise AssertionError("nothing may be sampled after a failure")

    with pytest.raises(SyncError, match="no request is served any more"):
        asyncio.run(asyncio.wait_for(ask(), 1))
    for later in (rig.step_and_publish, lambda: asyncio.run(rig.publisher.start(9))):
        with pytest.raises(SyncError, match="got failed"):
            later()


def test_a_trainer_that_breaks_half_way_is_told_apart_from_its_samplers() -> None:
    rig = Rig()

    def stream() -> Iterable[WeightChunk]:
        yield from list(rig.trainer.export_weights())[:2]
        raise MemoryError("no memory for the third")

    rig.publisher._transfer = InProcessTransfer(stream)
    with pytest.raises(SyncError, match="MemoryError: no memory for the third"):
        rig.step_and_publish()
    assert rig.publisher.state is SyncState.FAILED


# ------------------------------------------------------------------------------------------- a shared device


def test_on_a_shared_device_weights_come_before_the_barrier_and_caches_and_the_proof_after_it() -> None:
    rig = Rig(with_turns=True)
    asyncio.run(rig.turns.to_trainer())
    rig.samplers["broken"].calls.clear()
    rig.step_and_publish()
    assert rig.samplers["broken"].calls == [
        "interrupt", "offload", "empty cache", "wake weights", "pause", "receive",
        "empty cache", "barrier", "wake cache", "resume", "generate",
    ]  # fmt: skip


@pytest.mark.parametrize("at", sorted(set(BOUNDARIES) - {"wake", "interrupt"}))
def test_on_a_shared_device_a_failure_leaves_no_sampler_half_awake(at: str) -> None:
    rig = Rig(with_turns=True)
    asyncio.run(rig.turns.to_trainer())
    rig.samplers["broken"].at = at
    with pytest.raises(SyncError, match=f"while {BOUNDARIES[at]}: broken"):
        rig.step_and_publish()
    assert rig.turns.tenancy is Tenancy.NOBODY
    assert rig.samplers["broken"].calls[-2:] == ["sleep", "empty cache"]


# ------------------------------------------------------------------------------------------- real engines


class Halfway(NativeEngine):
    """A real engine whose stream ends early, or whose resumption fails."""

    at = ""

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        if self.at == "receive":
            raise ConnectionError("gone")
        whole = list(chunks)
        return await super().receive_weights(whole[: len(whole) // 2] if self.at == "half" else whole, version)

    async def resume(self) -> None:
        if self.at == "resume":
            raise ConnectionError("gone")
        await super().resume()


@pytest.mark.parametrize(("at", "version"), [("receive", 0), ("half", None), ("resume", 1)])
def test_a_real_engine_holds_the_old_or_the_new_weights_whole_or_refuses_to_sample(
    at: str, version: int | None
) -> None:
    engine, prompt = Halfway(tiny_model("qwen3"), RolloutConfig()), np.arange(5, 12)
    engine.at = at
    sent = tiny_model("qwen3", seed=3)
    transfer = InProcessTransfer(lambda: weight_chunks(sent, 1))

    def fail(token_ids: NDArray[np.int64]) -> NDArray[np.floating]:
        raise AssertionError("nothing must be proven")

    proof = WeightProof(ProbeSettings(prompt, 8, seed=0), fail, 1e-4)
    with pytest.raises(SyncError, match="sampler"):
        asyncio.run(Publisher([Replica("sampler", engine)], transfer, proof, LocalGate()).start(1))
    assert engine.version == version
    if version is None:
        with pytest.raises(RuntimeError, match="mixture after a failed publication"):
            asyncio.run(engine.generate(make_request(prompt)))
        return
    expected = NativeEngine(tiny_model("qwen3", seed=3 if version else 0), RolloutConfig())
    scores = [asyncio.run(one.score([prompt]))[0] for one in (engine, expected)]
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)


# ------------------------------------------------------------------------------------------- replicas that come and go


def test_a_replica_that_was_started_anew_is_brought_to_the_proven_weights_while_others_sample_on() -> None:
    rig = Rig()
    rig.step_and_publish()
    fresh, asked = Sampler(seed=11), len(rig.samplers["right"].calls)
    metrics = asyncio.run(rig.publisher.admit(Replica("broken", fresh)))
    assert metrics["sync/logprob_difference"].result < 1e-6
    assert len(rig.samplers["right"].calls) == asked, "the other replica must not be interrupted"
    assert all(torch.equal(fresh.weights[name], tensor) for name, tensor in rig.trainer.weights.items())
    rig.step_and_publish()
    assert fresh.version == 2


def test_a_replica_that_cannot_be_proven_is_not_admitted_and_the_others_go_on() -> None:
    rig = Rig()

    class TakesNothing(Sampler):
        def take(self, chunk: WeightChunk) -> None: ...

    with pytest.raises(SyncError, match="fresh does not hold what was sent"):
        asyncio.run(rig.publisher.admit(Replica("fresh", TakesNothing())))
    assert rig.publisher.state is SyncState.PUBLISHED
    rig.step_and_publish()
    assert rig.publisher.version == 1


def test_a_replica_is_admitted_only_between_publications_and_while_the_trainer_holds_that_version() -> None:
    rig = Rig()
    rig.trainer.step(1e-2)
    with pytest.raises(SyncError, match="must be of version 0, got 1"):
        asyncio.run(rig.publisher.admit(Replica("fresh", Sampler())))
    rig.samplers["broken"].at = "pause"
    with pytest.raises(SyncError):
        rig.step_and_publish()
    with pytest.raises(SyncError, match="between two publications, got failed"):
        asyncio.run(rig.publisher.admit(Replica("fresh", Sampler())))


def test_a_replica_that_is_gone_is_published_to_no_more_but_the_last_one_must_stay() -> None:
    rig = Rig()
    rig.samplers["broken"].at = "pause"
    rig.publisher.leave_out("broken")
    rig.step_and_publish()
    assert rig.publisher.version == 1
    with pytest.raises(SyncError, match="the last one is gone: right"):
        rig.publisher.leave_out("right")
