"""A sampler in a process of its own: what lives there, and how the controller sees it."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.cluster.ray.cluster import RemoteObject, RoleDied
from strop.config.root import Config
from strop.data import build_renderer
from strop.devices import build_device
from strop.models.load import load_model_config, load_tokenizer, max_length
from strop.protocols import RolloutEngine
from strop.records import Completion, GroupRequest, WeightChunk, WeightReceipt
from strop.rollout.errors import ReplicaLostError
from strop.trainers.engines import build_engine
from strop.trainers.remote.transfers import receiving_half
from strop.trainers.samplers import SamplerFacts


class HostedSampler:
    """Lives in an actor of `cluster.ray`: a native engine and its end of the transfer of weights."""

    def __init__(self, config: Config, num_threads: int) -> None:
        """Loads the model; its weights are replaced by the first publication."""
        device = build_device(config.run.device)
        device.set_threads(num_threads)
        renderer = build_renderer(load_tokenizer(config.model), config.data)
        self.engine = build_engine(
            config,
            lambda ids: renderer.decode(np.asarray(ids, dtype=np.int64)),
            max_length(config.model, load_model_config(config.model)),
            device,
            num_threads=num_threads,
        )
        self._receiving = receiving_half(config.weight_sync, self.engine)

    async def generate(self, request: GroupRequest) -> list[Completion]:
        """As the engine does."""
        return await self.engine.generate(request)

    async def score(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """As the engine does."""
        return await self.engine.score(token_ids)

    async def interrupt(self) -> None:
        """As the engine does."""
        await self.engine.interrupt()

    async def pause(self) -> None:
        """As the engine does."""
        await self.engine.pause()

    async def resume(self) -> None:
        """As the engine does."""
        await self.engine.resume()

    async def sleep(self, *, drop_weights: bool = False) -> None:
        """As the engine does."""
        await self.engine.sleep(drop_weights=drop_weights)

    async def wake(self) -> None:
        """As the engine does."""
        await self.engine.wake()

    async def receive_stream(self, address: dict[str, Any], name: str, version: int) -> WeightReceipt:
        """Takes a full set of weights from where the trainer sends them."""
        return await self._receiving.receive_stream(address, name, version)

    async def facts(self) -> SamplerFacts:
        """What the engine says of itself."""
        return SamplerFacts(self.engine.version, self.engine.counters.released_bytes)


class RemoteEngine:
    """Implements `protocols.RolloutEngine` by asking a `HostedSampler`."""

    def __init__(self, actor: RemoteObject) -> None:
        self.actor = actor

    async def generate(self, request: GroupRequest) -> list[Completion]:
        """Completes the prompt once per stream."""
        try:
            found: list[Completion] = await self.actor.call("generate", request)
        except RoleDied as error:
            raise ReplicaLostError(str(error)) from error
        return found

    async def score(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Scores whole sequences without any cache."""
        found: list[NDArray[np.float32]] = await self.actor.call("score", list(token_ids))
        return found

    async def interrupt(self) -> None:
        """Ends every generation at once."""
        await self.actor.call("interrupt")

    async def pause(self) -> None:
        """Stops between two tokens."""
        await self.actor.call("pause")

    async def resume(self) -> None:
        """Goes on after `pause`."""
        await self.actor.call("resume")

    async def sleep(self, *, drop_weights: bool = False) -> None:
        """Gives memory back."""
        await self.actor.call("sleep", drop_weights=drop_weights)

    async def wake(self) -> None:
        """Serves again."""
        await self.actor.call("wake")

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        """Refuses: weights go from the trainer's process to the sampler's, never through the controller."""
        raise RuntimeError(f"{self.actor.name} takes weights from a transfer between processes, not from here")


class RemoteSamplers:
    """Samplers in other processes; implements `Samplers`."""

    def __init__(self, actors: Sequence[RemoteObject]) -> None:
        self.actors = tuple(actors)
        self._engines = {actor.name: RemoteEngine(actor) for actor in self.actors}

    @property
    def engines(self) -> Mapping[str, RolloutEngine]:
        """By name."""
        return self._engines

    async def facts(self) -> list[SamplerFacts]:
        """What each says of itself."""
        return [await actor.call("facts") for actor in self.actors]

    async def gone(self) -> dict[str, Exception]:
        """The samplers whose processes have ended."""
        answers = await asyncio.gather(*(actor.node() for actor in self.actors), return_exceptions=True)
        pairs = zip(self.actors, answers, strict=True)
        return {actor.name: answer for actor, answer in pairs if isinstance(answer, RoleDied)}

    def leave_out(self, name: str) -> None:
        """Asks a sampler for nothing any more."""
        self.actors = tuple(actor for actor in self.actors if actor.name != name)
        self._engines = {key: engine for key, engine in self._engines.items() if key != name}

    def close(self) -> None:
        """Nothing: they end with the cluster."""

    def detail(self) -> str:
        """Where they are."""
        return f"samples of {len(self.actors)} samplers in other processes"
