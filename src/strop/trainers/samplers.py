"""The samplers of a run, here or in other processes, as far as a schedule asks for them."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from strop.protocols import RolloutEngine
from strop.trainers.engines import Engine, close_engine


@dataclass(frozen=True)
class SamplerFacts:
    """What a sampler says of itself."""

    version: int | None
    """Of its weights; None where it holds none that are whole."""
    released_bytes: int
    """Memory that it gave back for others to use, since it began."""


class Samplers(Protocol):
    """All samplers by name."""

    @property
    def engines(self) -> Mapping[str, RolloutEngine]:
        """Who samples."""

    async def facts(self) -> list[SamplerFacts]:
        """What each says of itself."""

    def detail(self) -> str:
        """What they do now, for a person who waits; must answer at once."""

    async def gone(self) -> dict[str, Exception]:
        """The samplers whose processes have ended, and how that showed."""

    def leave_out(self, name: str) -> None:
        """Asks a sampler for nothing any more: its process is gone."""

    def close(self) -> None:
        """Ends what lives beside this process and is not ended with the cluster."""


async def have_weights(samplers: Samplers) -> bool:
    """Whether every sampler holds weights that are whole."""
    return all(one.version is not None for one in await samplers.facts())


async def sleep(samplers: Samplers, *, drop_weights: bool = False) -> None:
    """Lets all give memory back."""
    await asyncio.gather(*(engine.sleep(drop_weights=drop_weights) for engine in samplers.engines.values()))


async def empty_caches(samplers: Samplers) -> None:
    """Frees the caches, so that their shapes, and with them rounding, do not depend on what ran before."""
    await sleep(samplers)
    await asyncio.gather(*(engine.wake() for engine in samplers.engines.values()))


class LocalSamplers:
    """Engines that belong to this process; implements `Samplers`."""

    def __init__(self, engines: Sequence[Engine]) -> None:
        self.owned = tuple(engines)

    @property
    def engines(self) -> Mapping[str, RolloutEngine]:
        """By name, as errors name them."""
        return {f"sampler-{index}": engine for index, engine in enumerate(self.owned)}

    async def facts(self) -> list[SamplerFacts]:
        """What each says of itself."""
        return [SamplerFacts(engine.version, engine.counters.released_bytes) for engine in self.owned]

    async def gone(self) -> dict[str, Exception]:
        """None: they live and end with this process."""
        return {}

    def leave_out(self, name: str) -> None:
        """Refuses: an engine of this process cannot go alone."""
        raise RuntimeError(f"an engine in this process cannot be gone, got {name!r}")

    def close(self) -> None:
        """Ends what engines run beside this process."""
        for engine in self.owned:
            close_engine(engine)

    def detail(self) -> str:
        """How much was decoded, and whether rewards are all that is waited for."""
        decoded = sum(engine.counters.decoded_tokens for engine in self.owned)
        text = f"{decoded} tokens decoded so far"
        return f"waiting for rewards, {text}" if all(engine.is_idle for engine in self.owned) else text
