"""Trainer and sampler take turns on a device: order, defined states, measurements."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from strop.config.rollout import RolloutConfig
from strop.errors import SyncError
from strop.models.weights import weight_chunks
from strop.rollout.native import NativeEngine
from strop.weight_sync.barrier import Barrier
from strop.weight_sync.hand_over import CLEANUPS, Boundary, Cleanup, HandOver, Tenancy, WholeEngine
from support.rollout import make_request, serve
from support.tiny import tiny_model

ROUND = [
    "offload", "empty_cache", "wake weights",
    "empty_cache", "barrier: memory is given back", "wake cache",
    "sleep", "empty_cache", "barrier: samplers are asleep", "onload",
]  # fmt: skip


class World:
    """Both tenants, the memory and the barrier, in one list of calls; each may fail."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails_at = ""
        self.held_bytes = 1000

    def note(self, call: str) -> None:
        self.calls.append(call)
        if call == self.fails_at:
            raise ConnectionError(call)

    def offload(self) -> None:
        self.note("offload")
        self.held_bytes -= 600

    def onload(self) -> None:
        self.note("onload")
        self.held_bytes += 600

    def empty_cache(self) -> None:
        self.note("empty_cache")
        self.held_bytes -= 10

    def memory_bytes(self) -> int:
        return self.held_bytes

    async def wake_weights(self) -> None:
        self.note("wake weights")

    async def wake_cache(self) -> None:
        self.note("wake cache")

    async def sleep(self) -> None:
        self.note("sleep")


class NotedBarrier(Barrier):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    async def wait(self, purpose: str) -> None:
        self._world.note(f"barrier: {purpose}")


def hand_over(world: World, **options: object) -> HandOver:
    return HandOver(world, world, world, NotedBarrier(world), **options)


async def whole_round(one: HandOver) -> None:
    await one.to_weights()
    await one.to_cache()
    await one.to_trainer()


def test_a_round_keeps_to_the_order_and_comes_back() -> None:
    world = World()
    one = hand_over(world)
    asyncio.run(whole_round(one))
    assert world.calls == ROUND
    assert one.tenancy is Tenancy.TRAINER


def test_every_boundary_reports_its_seconds_and_the_bytes_that_it_released() -> None:
    world = World()
    one = hand_over(world)
    asyncio.run(whole_round(one))
    metrics = one.take_metrics()
    for boundary in Boundary:
        assert metrics[f"timing/hand_over_{boundary}_seconds"].result >= 0
    released = {boundary: metrics[f"memory/hand_over_{boundary}_released_bytes"].result for boundary in Boundary}
    assert released == {
        Boundary.TRAINER_OFFLOADED: 610,
        Boundary.WEIGHTS_AWAKE: 0,
        Boundary.WEIGHTS_SENT: 10,
        Boundary.CACHE_AWAKE: 0,
        Boundary.SAMPLER_ASLEEP: 10,
    }
    assert "timing/hand_over_barrier_seconds" in metrics
    assert one.take_metrics() == {}


def test_cleanups_are_done_where_they_are_declared() -> None:
    world = World()
    nothing = dict.fromkeys(Boundary, Cleanup.NONE)
    asyncio.run(whole_round(hand_over(world, cleanups=nothing | {Boundary.CACHE_AWAKE: Cleanup.EMPTY_CACHE})))
    assert world.calls == [call for call in ROUND[:6] if call != "empty_cache"] + ["empty_cache"] + [
        call for call in ROUND[6:] if call != "empty_cache"
    ]
    with pytest.raises(ValueError, match=r"each boundary must have its cleanup, got none for \['weights_sent'\]"):
        hand_over(world, cleanups={key: value for key, value in CLEANUPS.items() if key != Boundary.WEIGHTS_SENT})


def test_garbage_is_collected_only_where_streaming_left_it() -> None:
    assert [boundary for boundary, cleanup in CLEANUPS.items() if cleanup is Cleanup.COLLECT_AND_EMPTY_CACHE] == [
        Boundary.WEIGHTS_SENT
    ]


@pytest.mark.parametrize("index", range(len(ROUND)))
def test_a_failure_at_any_point_leaves_nobody_on_the_device_and_both_ways_open(index: int) -> None:
    world = World()
    one = hand_over(world)
    world.fails_at = ROUND[index]
    if ROUND[index] in ("empty_cache", "sleep", "offload"):
        world.calls.clear()
        with pytest.raises(ConnectionError):
            asyncio.run(whole_round(one))
        assert one.tenancy is Tenancy.FAILED, "clearing out needs the same call, which fails again"
        with pytest.raises(SyncError, match="got failed"):
            asyncio.run(one.to_trainer())
        return
    with pytest.raises(ConnectionError):
        asyncio.run(whole_round(one))
    assert one.tenancy is Tenancy.NOBODY
    world.fails_at = ""
    assert "sleep" in world.calls, "the sampler must not stay half awake"
    world.calls.clear()
    asyncio.run(one.to_trainer())
    assert world.calls[-1] == "onload"
    asyncio.run(whole_round(one))
    assert one.tenancy is Tenancy.TRAINER


def test_a_failed_publication_takes_the_sampler_off_the_device() -> None:
    async def run() -> None:
        world = World()
        one = hand_over(world)
        await one.to_weights()
        await one.give_up()
        assert one.tenancy is Tenancy.NOBODY
        assert world.calls[-2:] == ["sleep", "empty_cache"]
        await one.give_up()
        assert world.calls[-2:] == ["sleep", "empty_cache"], "twice is once"
        await one.to_weights()
        assert one.tenancy is Tenancy.WEIGHTS

    asyncio.run(run())


Verb = Callable[[HandOver], Awaitable[None]]


@pytest.mark.parametrize(
    ("verb", "complaint"),
    [(HandOver.to_cache, "to sampler from weights, got trainer"), (HandOver.to_trainer, "to trainer from")],
)
def test_nobody_enters_out_of_turn(verb: Verb, complaint: str) -> None:
    world = World()
    one = hand_over(world)
    with pytest.raises(SyncError, match=complaint):
        asyncio.run(verb(one))
    assert world.calls == []
    assert one.tenancy is Tenancy.TRAINER


def test_weights_may_be_streamed_again_while_the_cache_is_awake() -> None:
    """A canary does."""

    async def run() -> None:
        world = World()
        one = hand_over(world)
        await one.to_weights()
        await one.to_cache()
        world.calls.clear()
        await one.to_weights()
        assert world.calls == ["empty_cache", "wake weights"], "the trainer is off already"
        await one.to_cache()
        world.calls.clear()
        await one.to_cache()
        assert world.calls == []

    asyncio.run(run())


def test_a_rank_without_a_sampler_gives_back_and_waits_all_the_same() -> None:
    world = World()
    asyncio.run(whole_round(HandOver(world, None, world, NotedBarrier(world))))
    assert world.calls == [call for call in ROUND if call not in ("wake weights", "wake cache", "sleep")]


def test_without_other_ranks_the_barrier_is_skipped() -> None:
    barrier = Barrier(timeout_seconds=0.001)
    assert not barrier.is_needed
    asyncio.run(barrier.wait("nothing"))


def test_a_native_engine_takes_its_turn_and_refuses_to_sample_before_its_weights_came() -> None:
    model = tiny_model("qwen3")
    engine = NativeEngine(tiny_model("qwen3"), RolloutConfig())
    prompt = np.arange(5, 12)
    (before,) = serve(engine, make_request(prompt))
    world = World()
    one = HandOver(world, WholeEngine(engine), world, Barrier())

    async def there_and_back() -> None:
        await one.to_weights()
        await one.to_cache()
        await one.to_trainer()
        await one.to_weights()
        with pytest.raises(RuntimeError, match="receive a full set first"):
            await engine.generate(make_request(prompt))
        await engine.receive_weights(weight_chunks(model, 1), 1)
        await one.to_cache()

    asyncio.run(there_and_back())
    (after,) = serve(engine, make_request(prompt))
    assert before[0].token_ids.tolist() == after[0].token_ids.tolist()
