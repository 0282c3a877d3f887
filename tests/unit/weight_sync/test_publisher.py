"""The publisher against samplers that are right, and against samplers that are broken on purpose."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from strop.errors import SyncError
from strop.metrics import Metrics
from strop.protocols import RolloutEngine
from strop.records import WeightChunk, WeightReceipt
from strop.transfer import InProcessTransfer, weight_checksum
from strop.weight_sync import LocalGate, ProbeSettings, Publisher, Replica, SyncState, WeightProof, default_bound
from support.softmax_policy import Sampler, Trainer, score

BOUND = 1e-4
PROMPT = np.arange(4)


class Rig:
    """A trainer, samplers and a publisher."""

    def __init__(self, *samplers: Sampler, timeout_seconds: float = 5.0) -> None:
        self.trainer = Trainer()
        self.samplers = samplers or (Sampler(),)
        self.gate = LocalGate()
        self.proof = WeightProof(ProbeSettings(PROMPT, 24, seed=0), self.trainer.score, BOUND)
        replicas = [Replica(f"sampler {index}", engine) for index, engine in enumerate(self.samplers)]
        self.publisher = Publisher(
            replicas,
            InProcessTransfer(self.trainer.export_weights),
            self.proof,
            self.gate,
            timeout_seconds=timeout_seconds,
        )

    def start(self, *, canary: bool = True) -> Metrics:
        return asyncio.run(self.publisher.start(self.trainer.version, canary=canary))

    def publish(self) -> Metrics:
        return asyncio.run(self.publisher.publish(self.trainer.version))

    def step_and_publish(self, size: float = 1e-2) -> Metrics:
        self.trainer.step(size)
        return self.publish()


def value(metrics: Metrics, name: str) -> float | None:
    return metrics[name].result


def test_a_right_sampler_is_proven_at_every_step() -> None:
    rig = Rig()
    started = rig.start()
    assert value(started, "sync/state") == 0
    for _ in range(5):
        metrics = rig.step_and_publish()
        assert value(metrics, "sync/state") == 1
        assert value(metrics, "sync/tracked_share") == pytest.approx(1, abs=1e-3)
        assert value(metrics, "sync/logprob_difference") == pytest.approx(0, abs=1e-6)
        assert value(metrics, "sync/cache_state") in (0, 1)
    assert rig.publisher.version == 5
    assert rig.publisher.state is SyncState.PUBLISHED


def test_the_order_is_interrupt_pause_receive_resume_and_only_then_the_probe() -> None:
    rig = Rig()
    rig.start(canary=False)
    rig.samplers[0].calls.clear()
    rig.step_and_publish()
    assert rig.samplers[0].calls == ["interrupt", "wake", "pause", "receive", "resume", "generate"]


def test_seconds_of_publication_and_proof_are_reported_apart() -> None:
    metrics = Rig().start()
    assert value(metrics, "timing/proof_seconds") > 0
    assert value(metrics, "timing/publish_seconds") > 0


class RoundsCoarsely(Sampler):
    """Scores as exactly as its numbers allow: an unlikely token is off by more than a likely one."""

    error = 0.0

    async def score(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        return [logprobs * np.float32(1 + self.error) for logprobs in await super().score(token_ids)]


def test_a_probe_that_the_policy_has_left_is_written_anew_once_it_has_proven_the_sampler() -> None:
    sampler = RoundsCoarsely()
    rig = Rig(sampler)
    rig.start()
    rig.step_and_publish()
    first = rig.proof.probe
    sampler.error = 0.5 * BOUND / float(np.abs(rig.trainer.score(first.token_ids)).max())
    assert value(rig.step_and_publish(), "sync/state") == 1
    second = rig.proof.probe
    assert second is not first
    sampler.error = 0.0
    assert value(rig.step_and_publish(), "sync/state") == 1
    assert rig.proof.probe is second


def test_a_probe_is_kept_while_the_weights_move_too_little_to_prove_anything() -> None:
    sampler = RoundsCoarsely()
    rig = Rig(sampler)
    rig.start()
    rig.step_and_publish()
    first = rig.proof.probe
    sampler.error = 0.5 * BOUND / float(np.abs(rig.trainer.score(first.token_ids)).max())
    assert value(rig.step_and_publish(1e-9), "sync/state") != 1
    assert rig.proof.probe is first


# ------------------------------------------------------------------------------------------- broken on purpose


class LoadsNothing(Sampler):
    """Takes the weights and keeps its own; says what it was sent."""

    def take(self, chunk: WeightChunk) -> None: ...

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        told = [(chunk.name, weight_checksum(chunk.tensor)) for chunk in chunks]
        self.version = version
        return WeightReceipt(version, *map(tuple, zip(*told, strict=True)))


class Breakable(Sampler):
    """Is right until it is told to break in one way."""

    fault = ""

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        chunks = list(chunks)
        stale = {name: tensor.clone() for name, tensor in self.weights.items()}
        receipt = await super().receive_weights(chunks, version)
        match self.fault:
            case "stale":
                self.weights = stale
            case "stale head":
                self.weights["head"] = stale["head"]
            case "name dropped":
                self.weights["body"] = stale["body"]
                return WeightReceipt(version, receipt.names[:1] + receipt.names[2:], receipt.checksums[:2])
            case "name doubled":
                return WeightReceipt(version, (*receipt.names, "body"), (*receipt.checksums, receipt.checksums[1]))
            case "foreign name":
                return WeightReceipt(version, (*receipt.names, "adapter"), (*receipt.checksums, 1.0))
            case "part of a tensor":
                self.weights["body"][0] = stale["body"][0]
                return self._honest(receipt)
            case "old version":
                return WeightReceipt(version - 1, receipt.names, receipt.checksums)
        return receipt

    def _honest(self, receipt: WeightReceipt) -> WeightReceipt:
        checksums = tuple(weight_checksum(self.weights[name]) for name in receipt.names)
        return WeightReceipt(receipt.version, receipt.names, checksums)

    def drop_caches(self) -> None:
        if self.fault != "caches kept":
            super().drop_caches()


def broken(fault: str) -> Rig:
    """A rig that started well and whose second sampler breaks afterwards."""
    rig = Rig(Sampler(), Breakable())
    rig.start()
    rig.step_and_publish()
    rig.samplers[1].fault = fault
    return rig


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("stale", "scored without cache, log-probs differ by up to"),
        ("stale head", "scored without cache, log-probs differ by up to"),
        ("caches kept", "generated through the cache, log-probs differ by up to"),
        ("name dropped", "body was sent and not consumed"),
        ("name doubled", "body was consumed 2 times"),
        ("foreign name", "adapter was consumed and never sent"),
        ("part of a tensor", "body has checksum"),
        ("old version", "version 2 was sent, the receiver holds 1"),
    ],
)
def test_each_fault_stops_the_run_and_names_the_replica(fault: str, reason: str) -> None:
    rig = broken(fault)
    with pytest.raises(SyncError) as failure:
        rig.step_and_publish(0.1)
    assert "sampler 1" in str(failure.value)
    assert "sampler 0" not in str(failure.value)
    assert reason in str(failure.value)
    assert rig.publisher.state is SyncState.FAILED
    assert rig.publisher.version == 1, "tokens must not count under a version that was not proven"


def test_kept_caches_are_invisible_to_scoring_without_cache() -> None:
    rig = broken("caches kept")
    with pytest.raises(SyncError) as failure:
        rig.step_and_publish(0.1)
    assert "scored without cache" not in str(failure.value)


@pytest.mark.parametrize("fault", ["stale", "stale head"])
def test_at_a_tiny_learning_rate_only_the_tracked_share_sees_stale_weights(fault: str) -> None:
    rig = broken(fault)
    rig.trainer.step(1.5e-5)
    probe = rig.proof.probe
    assert probe is not None
    differences = rig.trainer.score(probe.token_ids) - score(rig.samplers[1].weights, probe.token_ids)
    assert 1e-6 < np.abs(differences).max() < BOUND
    with pytest.raises(SyncError, match=r"sampler 1: scored without cache, it followed -?0\.\d+ of the trainer's"):
        rig.publish()


def test_stale_weights_below_the_noise_add_up_until_they_are_seen() -> None:
    rig = broken("stale")
    verdicts: list[float | None] = []

    def train_until_seen() -> None:
        while len(verdicts) < 2000:
            verdicts.append(value(rig.step_and_publish(2e-7), "sync/state"))

    with pytest.raises(SyncError, match="of the trainer's movement"):
        train_until_seen()
    assert len(verdicts) > 5
    assert set(verdicts) == {0}, "an invisible step must be called indistinguishable, never proven"


def test_a_step_that_was_skipped_is_indistinguishable() -> None:
    rig = Rig()
    rig.start()
    metrics = rig.step_and_publish(0.0)
    assert value(metrics, "sync/state") == 0
    assert value(metrics, "sync/tracked_share") is None


def test_a_sampler_that_loads_nothing_fails_at_the_start() -> None:
    with pytest.raises(SyncError, match=r"sampler 0: scored without cache"):
        Rig(LoadsNothing()).start()


def test_a_sampler_that_loads_nothing_but_began_with_the_right_weights_fails_the_canary() -> None:
    with pytest.raises(SyncError, match=r"sampler 1 did not follow the canary"):
        Rig(Sampler(), LoadsNothing(seed=0)).start()


class KeepsTheCanary(Sampler):
    """Stops taking weights at the third publication, which takes the perturbation back; its receipt lies."""

    num_received = 0

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        self.num_received += 1
        kept = dict(self.weights)
        receipt = await super().receive_weights(chunks, version)
        if self.num_received == 3:
            self.weights = kept
        return receipt


def test_a_perturbation_that_is_not_taken_back_fails() -> None:
    with pytest.raises(SyncError, match=r"sampler 0 did not come back from the canary"):
        Rig(KeepsTheCanary()).start()


class KeepsCachesFromTheStart(Sampler):
    def drop_caches(self) -> None: ...


def test_the_canary_sees_caches_that_are_never_dropped() -> None:
    with pytest.raises(SyncError, match=r"sampler 0 followed the canary only in part: .* with and without cache"):
        Rig(KeepsCachesFromTheStart(seed=0)).start()


def test_the_canary_leaves_the_trainer_s_weights_alone() -> None:
    rig = Rig()
    before = {name: tensor.clone() for name, tensor in rig.trainer.weights.items()}
    rig.start()
    assert all(torch.equal(before[name], tensor) for name, tensor in rig.trainer.weights.items())


# ------------------------------------------------------------------------------------------- errors and waits


class Raises(Sampler):
    at = ""

    async def pause(self) -> None:
        self._maybe("pause")

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        self._maybe("receive")
        return await super().receive_weights(chunks, version)

    async def resume(self) -> None:
        self._maybe("resume")

    async def score(self, token_ids: list[np.ndarray]) -> list[np.ndarray]:  # type: ignore[override]
        self._maybe("score")
        return await super().score(token_ids)

    def _maybe(self, place: str) -> None:
        if self.at == place:
            raise ConnectionError("the worker is gone")


@pytest.mark.parametrize(
    ("at", "phase"), [("pause", "holding"), ("receive", "updating"), ("resume", "updating"), ("score", "proving")]
)
def test_an_error_in_any_phase_leaves_a_defined_state_and_names_the_replica(at: str, phase: str) -> None:
    rig = Rig(Sampler(), Raises())
    rig.start()
    rig.samplers[1].at = at
    with pytest.raises(SyncError, match=f"while {phase}: sampler 1: ConnectionError: the worker is gone"):
        rig.step_and_publish()
    assert rig.publisher.state is SyncState.FAILED
    with pytest.raises(SyncError, match="got failed"):
        rig.publish()


class Hangs(Sampler):
    async def pause(self) -> None:
        await asyncio.Event().wait()


def test_a_sampler_that_never_answers_is_named_within_the_bound() -> None:
    with pytest.raises(SyncError, match=r"while holding: sampler 0: no answer within 0.05 s"):
        Rig(Hangs(), timeout_seconds=0.05).start()


def test_an_error_of_the_trainer_is_not_dressed_up_and_leaves_a_defined_state() -> None:
    rig = Rig()
    rig.start()

    def fail(token_ids: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError

    rig.proof.score = fail
    with pytest.raises(ZeroDivisionError):
        rig.step_and_publish()
    assert rig.publisher.state is SyncState.FAILED


def test_weights_of_another_version_than_the_one_that_is_published_are_refused() -> None:
    rig = Rig()
    rig.start()
    with pytest.raises(SyncError, match="must be of version 1, got 0"):
        asyncio.run(rig.publisher.publish(1))


# ------------------------------------------------------------------------------------------- the gate


class Interruptible(Sampler):
    """Holds requests inside until it is interrupted."""

    def __init__(self) -> None:
        super().__init__()
        self.interrupted = asyncio.Event()

    async def interrupt(self) -> None:
        await super().interrupt()
        self.interrupted.set()


def test_requests_inside_leave_before_the_update_and_new_ones_wait_for_the_proof() -> None:
    events: list[str] = []

    async def run() -> None:
        sampler = Interruptible()
        rig = Rig(sampler)

        async def early() -> None:
            async with rig.gate.request():
                await sampler.interrupted.wait()
            events.append("early left")

        async def late() -> None:
            async with rig.gate.request():
                events.append(f"late entered at version {rig.publisher.version}")

        first = asyncio.create_task(early())
        await asyncio.sleep(0)
        publication = asyncio.create_task(rig.publisher.start(0))
        await asyncio.sleep(0)
        second = asyncio.create_task(late())
        await asyncio.gather(first, publication, second)

    asyncio.run(run())
    assert events == ["early left", "late entered at version 0"]


def test_a_request_that_does_not_leave_is_counted_in_the_error() -> None:
    async def run() -> None:
        rig = Rig(timeout_seconds=0.05)
        async with rig.gate.request():
            await rig.publisher.start(0)

    with pytest.raises(SyncError, match=r"1 requests did not leave the samplers within 0.05 s"):
        asyncio.run(run())


def test_after_a_failure_waiting_requests_are_answered_not_left_hanging() -> None:
    async def run() -> None:
        rig = Rig(LoadsNothing())
        publication = asyncio.create_task(rig.publisher.start(0))
        await asyncio.sleep(0)

        async def ask() -> None:
            async with rig.gate.request():
                raise AssertionError("a request must not reach an unproven sampler")

        with pytest.raises(SyncError, match="no request is served any more"):
            await asyncio.wait_for(ask(), 5)
        with pytest.raises(SyncError):
            await publication

    asyncio.run(run())


# ------------------------------------------------------------------------------------------- resume and bounds


def trajectory(rig: Rig, sizes: list[float]) -> list[tuple[float | None, ...]]:
    names = ("sync/state", "sync/tracked_share", "sync/logprob_difference", "sync/cache_state")
    return [tuple(value(metrics, name) for name in names) for metrics in map(rig.step_and_publish, sizes)]


@pytest.mark.parametrize("stop_at", [1, 2, 3])
def test_a_resumed_run_proves_the_same_numbers(tmp_path: Path, stop_at: int) -> None:
    sizes = [1e-2, 1e-8, 1e-8, 1e-3, 1e-8]
    whole = Rig()
    whole.start()
    expected = trajectory(whole, sizes)

    first = Rig()
    first.start()
    trajectory(first, sizes[:stop_at])
    first.proof.save(tmp_path)
    second = Rig()
    second.trainer = first.trainer
    second.proof = WeightProof(ProbeSettings(PROMPT, 24, seed=0), first.trainer.score, BOUND)
    second.proof.load(tmp_path)
    transfer = InProcessTransfer(first.trainer.export_weights)
    second.publisher = Publisher([Replica("sampler 0", Sampler())], transfer, second.proof, LocalGate())
    second.start()
    assert trajectory(second, sizes[stop_at:]) == expected[stop_at:]


def test_the_bound_is_that_of_the_coarsest_type() -> None:
    assert default_bound(torch.float32) == 1e-4
    assert default_bound(torch.float32, torch.bfloat16) == 0.05
    with pytest.raises(ValueError, match=r"set weight_sync.max_logprob_difference"):
        default_bound(torch.float16)


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_replicas_must_have_names_of_their_own(names: list[str]) -> None:
    rig = Rig()
    replicas = [Replica(name, Sampler()) for name in names]
    with pytest.raises(ValueError, match="each must have its own name"):
        Publisher(replicas, InProcessTransfer(rig.trainer.export_weights), rig.proof, rig.gate)


def test_the_probe_is_cut_where_the_policy_was_least_sure() -> None:
    rig = Rig()
    rig.start()
    probe = rig.proof.probe
    assert probe is not None
    assert 12 <= len(probe.token_ids) <= 24
    assert probe.prompt_token_ids.tolist() == PROMPT.tolist()


def check_is_an_engine(engine: RolloutEngine) -> Callable[..., object]:
    return engine.generate


def test_the_sampler_of_these_tests_is_a_rollout_engine() -> None:
    assert check_is_an_engine(Sampler())
