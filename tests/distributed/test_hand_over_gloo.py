"""Ranks that share devices: no cache is mapped before every rank has given its memory back."""

import asyncio
import json
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from strop.errors import SyncError
from strop.weight_sync.barrier import Barrier
from strop.weight_sync.hand_over import HandOver, Tenancy

DELAYS = {2: (0.0, 0.6), 4: (0.1, 0.7, 0.0, 0.4)}
LATE_SECONDS = 3.0
LIMIT_SECONDS = 0.5


class Rank:
    """One rank's tenants; letting go takes its own time, and everything is noted with the clock of the machine."""

    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.times: dict[str, float] = {}

    def note(self, what: str) -> None:
        self.times[what] = time.monotonic()

    def offload(self) -> None:
        self.note("offloaded")

    def onload(self) -> None:
        self.note("onloaded")

    def empty_cache(self) -> None:
        time.sleep(self.delay)
        self.note("released")

    def memory_bytes(self) -> int:
        return 0

    async def wake_weights(self) -> None:
        self.note("weights awake")

    async def wake_cache(self) -> None:
        self.note("cache awake")

    async def sleep(self) -> None:
        self.note("asleep")


async def _tick(counted: list[int]) -> None:
    while True:
        counted[0] += 1
        await asyncio.sleep(0.01)


async def take_over(rank: int, delay: float, barrier: Barrier) -> dict[str, float]:
    """One hand-over; counts the turns of the event loop while it waits."""
    tenants, counted = Rank(delay), [0]
    hand_over = HandOver(tenants, tenants if rank == 0 else None, tenants, barrier)
    ticking = asyncio.create_task(_tick(counted))
    await hand_over.to_weights()
    await hand_over.to_cache()
    ticking.cancel()
    assert hand_over.tenancy is Tenancy.SAMPLER
    return tenants.times | {"turns": counted[0]}


async def fail(rank: int, barrier: Barrier) -> dict[str, object]:
    """The last rank comes too late; what the others are told, and where they end."""
    tenants = Rank(0.0)
    hand_over = HandOver(tenants, tenants, tenants, barrier)
    await hand_over.to_weights()
    started = time.monotonic()
    if rank == 1:
        await asyncio.sleep(LATE_SECONDS)
    try:
        await hand_over.to_cache()
    except SyncError as error:
        waited = time.monotonic() - started
        return {
            "error": str(error),
            "seconds": waited,
            "tenancy": hand_over.tenancy,
            "asleep": "asleep" in tenants.times,
        }
    return {"error": ""}


def work(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), size), rank=rank, world_size=size)
    results: dict[str, object] = {
        "times": asyncio.run(take_over(rank, DELAYS[size][rank], Barrier(timeout_seconds=30)))
    }
    if size == 2:
        results["failure"] = asyncio.run(fail(rank, Barrier(timeout_seconds=LIMIT_SECONDS)))
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


@pytest.fixture(scope="module", params=sorted(DELAYS))
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("hand-over")
    mp.spawn(work, (request.param, folder), nprocs=request.param)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(request.param)]


def test_the_cache_is_mapped_after_the_last_rank_has_let_go(ranks: list[dict]) -> None:
    released = [rank["times"]["released"] for rank in ranks]
    assert ranks[0]["times"]["cache awake"] > max(released)
    assert max(released) - min(released) > 0.5, "the ranks must differ for this to say anything"


def test_the_event_loop_turns_while_a_rank_waits(ranks: list[dict]) -> None:
    assert all(rank["times"]["turns"] > 20 for rank in ranks)


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_a_rank_that_does_not_come_is_named_in_bounded_time_and_nobody_stays_half_awake(ranks: list[dict]) -> None:
    waiting = ranks[0]["failure"]
    assert "all 2 ranks must say within 0.5 s that memory is given back; rank 0 waited in vain" in waiting["error"]
    assert "1" in waiting["error"].split("in vain: ")[1]
    assert waiting["seconds"] < LATE_SECONDS - 1
    assert (waiting["tenancy"], waiting["asleep"]) == ("nobody", True)
