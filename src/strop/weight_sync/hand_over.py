"""One device, used by trainer and sampler in turn: what is given back when, so that both fit.

    TRAINER   trainer's state on the device, sampler asleep
      | to_weights   trainer offloads             boundary TRAINER_OFFLOADED   empty_cache
      |              sampler maps its weights     boundary WEIGHTS_AWAKE       none
      v
    WEIGHTS   weights are streamed in
      | to_cache     what streaming left behind   boundary WEIGHTS_SENT        gc + empty_cache
      |              wait for every rank that shares the devices: barrier
      |              sampler maps its cache       boundary CACHE_AWAKE         none
      v
    SAMPLER   proof, rollouts
      | to_trainer   sampler sleeps               boundary SAMPLER_ASLEEP      empty_cache
      v              trainer loads
    TRAINER

Without the barrier the first rank would map a cache while others still hold parameters. No garbage collection where the
trainer leaves: it costs seconds and finds nothing there. Every rank drives its own hand-over; those without a sampler
have None. Whatever goes wrong on the way puts the sampler to sleep whole and leaves NOBODY on the device, from where
both ways are open; where even that fails the state is FAILED, which is final.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Protocol

from strop.errors import SyncError
from strop.metrics import Metrics, merge, total
from strop.weight_sync.barrier import Barrier


class Cleanup(StrEnum):
    """What is done at a boundary so that memory goes back to the device."""

    NONE = "none"
    EMPTY_CACHE = "empty_cache"
    COLLECT_AND_EMPTY_CACHE = "gc+empty_cache"


class Boundary(StrEnum):
    """Where one side has let go, or the next one begins."""

    TRAINER_OFFLOADED = "trainer_offloaded"
    WEIGHTS_AWAKE = "weights_awake"
    WEIGHTS_SENT = "weights_sent"
    CACHE_AWAKE = "cache_awake"
    SAMPLER_ASLEEP = "sampler_asleep"


CLEANUPS: Mapping[Boundary, Cleanup] = {
    Boundary.TRAINER_OFFLOADED: Cleanup.EMPTY_CACHE,
    Boundary.WEIGHTS_AWAKE: Cleanup.NONE,
    Boundary.WEIGHTS_SENT: Cleanup.COLLECT_AND_EMPTY_CACHE,
    Boundary.CACHE_AWAKE: Cleanup.NONE,
    Boundary.SAMPLER_ASLEEP: Cleanup.EMPTY_CACHE,
}
"""The order that was measured to be safe and fast."""


class Tenancy(StrEnum):
    """Whose memory is on the device."""

    TRAINER = "trainer"
    WEIGHTS = "weights"
    """The trainer is off, the sampler's weights are mapped, its cache is not."""
    SAMPLER = "sampler"
    NOBODY = "nobody"
    FAILED = "failed"


_NEXT = {
    Tenancy.TRAINER: {Tenancy.WEIGHTS},
    Tenancy.WEIGHTS: {Tenancy.SAMPLER},
    Tenancy.SAMPLER: {Tenancy.TRAINER, Tenancy.WEIGHTS},
    Tenancy.NOBODY: {Tenancy.TRAINER, Tenancy.WEIGHTS},
    Tenancy.FAILED: set(),
}


class TrainerTenant(Protocol):
    """The trainer's side; a `TrainEngine` is one."""

    def offload(self) -> None:
        """Moves parameters, gradients and optimizer state off the device."""

    def onload(self) -> None:
        """Brings them back."""


class SamplerTenant(Protocol):
    """The sampler's side, for engines that map weights and cache apart."""

    async def wake_weights(self) -> None:
        """Maps the weights; may be called when they are."""

    async def wake_cache(self) -> None:
        """Maps the cache and serves; may be called when it does."""

    async def sleep(self) -> None:
        """Gives weights and cache back; may be called when they are."""


class DeviceMemory(Protocol):
    """The device's memory; a `Device` is one."""

    def empty_cache(self) -> None:
        """Gives unused blocks back."""

    def memory_bytes(self) -> int:
        """What this process holds of the device now."""


class HandOver:
    """Owns whose turn it is on the device of one rank."""

    def __init__(
        self,
        trainer: TrainerTenant,
        sampler: SamplerTenant | None,
        memory: DeviceMemory,
        barrier: Barrier,
        cleanups: Mapping[Boundary, Cleanup] = CLEANUPS,
    ) -> None:
        """Takes the tenants; the trainer is on the device, the sampler is asleep.

        Args:
            trainer: this rank's part of the policy.
            sampler: None on ranks that drive none.
            memory: of the device that both use.
            barrier: over the ranks that share devices.
            cleanups: what is done at each boundary; all must be there.
        """
        missing = [boundary.value for boundary in Boundary if boundary not in cleanups]
        if missing:
            raise ValueError(f"each boundary must have its cleanup, got none for {missing}")
        self._trainer, self._sampler = trainer, sampler
        self._memory, self._barrier, self._cleanups = memory, barrier, cleanups
        self._tenancy = Tenancy.TRAINER
        self._metrics: list[Metrics] = []

    @property
    def tenancy(self) -> Tenancy:
        """Whose memory is on the device."""
        return self._tenancy

    async def to_weights(self) -> None:
        """Makes room and maps the sampler's weights, which may then be streamed in."""
        async with self._passage(Tenancy.WEIGHTS):
            with self._measured(Boundary.TRAINER_OFFLOADED):
                if self._tenancy is Tenancy.TRAINER:
                    await _in_thread(self._trainer.offload)
                await self._clean(Boundary.TRAINER_OFFLOADED)
            with self._measured(Boundary.WEIGHTS_AWAKE):
                if self._sampler is not None:
                    await self._sampler.wake_weights()
                await self._clean(Boundary.WEIGHTS_AWAKE)

    async def to_cache(self) -> None:
        """Gives back what streaming left behind, waits for all ranks, and maps the sampler's cache.

        Where the cache is mapped already (weights were streamed to a sampler that serves), nothing is done.
        """
        if self._tenancy is Tenancy.SAMPLER:
            return
        async with self._passage(Tenancy.SAMPLER):
            with self._measured(Boundary.WEIGHTS_SENT):
                await self._clean(Boundary.WEIGHTS_SENT)
            waiting = time.perf_counter()
            await self._barrier.wait("memory is given back")
            self._metrics.append({"timing/hand_over_barrier_seconds": total(time.perf_counter() - waiting, "s")})
            with self._measured(Boundary.CACHE_AWAKE):
                if self._sampler is not None:
                    await self._sampler.wake_cache()
                await self._clean(Boundary.CACHE_AWAKE)

    async def to_trainer(self) -> None:
        """Puts the sampler to sleep and brings the trainer back, once all ranks have let go."""
        async with self._passage(Tenancy.TRAINER):
            with self._measured(Boundary.SAMPLER_ASLEEP):
                if self._sampler is not None and self._tenancy is not Tenancy.NOBODY:
                    await self._sampler.sleep()
                await self._clean(Boundary.SAMPLER_ASLEEP)
            await self._barrier.wait("samplers are asleep")
            await _in_thread(self._trainer.onload)

    async def give_up(self) -> None:
        """After a publication that failed half-way: nobody stays on the device half awake."""
        if self._tenancy in (Tenancy.WEIGHTS, Tenancy.SAMPLER):
            await self._clear_out()

    def take_metrics(self) -> Metrics:
        """Returns seconds and released bytes of the boundaries passed since the last call."""
        taken, self._metrics = merge(self._metrics), []
        return taken

    # ----------------------------------------------------------------------------------------- parts

    @asynccontextmanager
    async def _passage(self, target: Tenancy) -> AsyncIterator[None]:
        if target not in _NEXT[self._tenancy]:
            sources = sorted(source for source, targets in _NEXT.items() if target in targets)
            raise SyncError(f"the device can go to {target} from {', '.join(sources)}, got {self._tenancy}")
        is_through = False
        try:
            yield
            is_through = True
        finally:
            if not is_through:
                await self._clear_out()
        self._tenancy = target

    async def _clear_out(self) -> None:
        """Takes both off the device; what fails here leaves FAILED."""
        tenancy, self._tenancy = self._tenancy, Tenancy.FAILED
        if tenancy is Tenancy.TRAINER:
            await _in_thread(self._trainer.offload)
        if self._sampler is not None:
            await self._sampler.sleep()
        self._memory.empty_cache()
        self._tenancy = Tenancy.NOBODY

    def _measured(self, boundary: Boundary) -> "_Measurement":
        return _Measurement(boundary, self._memory.memory_bytes, self._metrics)

    async def _clean(self, boundary: Boundary) -> None:
        match self._cleanups[boundary]:
            case Cleanup.NONE:
                return
            case Cleanup.EMPTY_CACHE:
                await _in_thread(self._memory.empty_cache)
            case Cleanup.COLLECT_AND_EMPTY_CACHE:
                await _in_thread(gc.collect)
                await _in_thread(self._memory.empty_cache)


class _Measurement:
    """Seconds between entering and leaving, and bytes that the process then holds less."""

    def __init__(self, boundary: Boundary, memory_bytes: Callable[[], int], metrics: list[Metrics]) -> None:
        self._boundary, self._memory_bytes, self._metrics = boundary, memory_bytes, metrics

    def __enter__(self) -> None:
        self._before = self._memory_bytes()
        self._started = time.perf_counter()

    def __exit__(self, *error: object) -> None:
        seconds = time.perf_counter() - self._started
        released = self._before - self._memory_bytes()
        self._metrics.append(
            {
                f"timing/hand_over_{self._boundary}_seconds": total(seconds, "s"),
                f"memory/hand_over_{self._boundary}_released_bytes": total(released, "bytes"),
            }
        )


async def _in_thread(work: Callable[[], object]) -> None:
    """Lets the event loop turn meanwhile."""
    await asyncio.get_running_loop().run_in_executor(None, work)


class WholeEngine:
    """A `SamplerTenant` for engines that wake and sleep in one piece, such as the native one."""

    def __init__(self, engine: "WakesAndSleeps") -> None:
        self._engine = engine

    async def wake_weights(self) -> None:
        """Wakes the engine; its cache grows as requests come."""
        await self._engine.wake()

    async def wake_cache(self) -> None:
        """Does nothing: the engine is awake."""

    async def sleep(self) -> None:
        """Ends open requests and gives everything back that the engine can; weights must be received anew."""
        await self._engine.interrupt()
        await self._engine.sleep(drop_weights=True)


class WakesAndSleeps(Protocol):
    """The part of `protocols.RolloutEngine` that a hand-over needs."""

    async def interrupt(self) -> None:
        """Ends every generation at once."""

    async def sleep(self, *, drop_weights: bool = False) -> None:
        """Gives memory back."""

    async def wake(self) -> None:
        """Serves again."""
