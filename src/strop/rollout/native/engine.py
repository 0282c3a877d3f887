"""The native rollout engine: continuous batching in plain torch, in one process, on one event loop.

    generate(request) --> queue --> pump: while there is work: step; let the loop turn --> future --> completions

The pump is a task that the first `generate` starts and that ends when nothing is left; it yields to the loop before
its first step, so that all requests of one turn enter before anything is sampled. Everything runs in the loop's own
thread: whatever is called between two steps sees whole samples.
"""

import asyncio
from collections.abc import Iterable, Sequence
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from strop.config.rollout import RolloutConfig
from strop.errors import ModelError
from strop.records import Completion, FinishState, GroupRequest, WeightChunk, WeightReceipt
from strop.rollout.errors import RequestRefusedError
from strop.rollout.native.parts import build_parts
from strop.rollout.native.samples import GrowingGroup
from strop.rollout.native.stepper import EngineCounters
from strop.rollout.native.stops import Decode
from strop.rollout.requirements import require_tokens, require_whole_weights


class EngineState(Enum):
    """What the engine does with requests."""

    SERVING = auto()
    PAUSED = auto()
    """Takes requests, samples nothing."""
    ASLEEP = auto()
    """Holds no cache, takes no requests."""


class NativeEngine:
    """Samples from a Hugging Face decoder with a cache of its own; implements `protocols.RolloutEngine`."""

    def __init__(
        self,
        model: PreTrainedModel,
        config: RolloutConfig,
        decode: Decode | None = None,
        *,
        max_length: int | None = None,
        version: int = 0,
    ) -> None:
        """Takes the model over; it must have been loaded with the attention implementation `ATTENTION_NAME`.

        `decode` gives the text of token ids and is needed for stop strings only. `max_length` bounds prompt plus
        completion; None takes the model's own maximum. Raises ModelError for models that the engine cannot run.
        """
        parts = build_parts(model, config, decode)
        self._network, self._roster = parts.network, parts.roster
        self._memory, self._stepper, self._score = parts.memory, parts.stepper, parts.score
        self._max_length = _shortest(max_length, self._network.max_length)
        self._state = EngineState.SERVING
        self._version: int | None = version
        self._open: list[GrowingGroup] = []
        self._pump: asyncio.Task[None] | None = None

    @property
    def version(self) -> int | None:
        """The version of the weights; None where they were dropped, or after a publication that failed half-way."""
        return self._version

    @property
    def weight_names(self) -> tuple[str, ...]:
        """The names that `receive_weights` expects."""
        return self._network.weights.names

    @property
    def counters(self) -> EngineCounters:
        """What has been computed so far."""
        return self._stepper.counters

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being sampled."""
        return self._roster.is_empty

    @property
    def cache_tokens(self) -> int:
        """Tokens that cache memory is held for, at most `max_cache_tokens`."""
        return self._memory.num_tokens

    async def generate(self, request: GroupRequest) -> list[Completion]:
        """Completes the prompt once per stream, in order; see `protocols.RolloutEngine`.

        Raises RequestRefusedError for a request that can never be served.
        """
        require_whole_weights(self._version)
        if self._state is EngineState.ASLEEP:
            raise RuntimeError("the engine must be awake to generate, it is asleep: call wake() first")
        group = self._take(request)
        if not group.is_finished:
            group.done = asyncio.get_running_loop().create_future()
            self._open.append(group)
            self._roster.enter(group)
            self._start_pump()
            try:
                await group.done
            finally:
                self._abort([group])
        return [sample.completion() for sample in group.samples]

    async def interrupt(self) -> None:
        """Ends every running and waiting generation at once: each returns its tokens so far as ABORTED."""
        self._abort(list(self._open))

    async def pause(self) -> None:
        """Stops between two tokens; requests stay and are taken, nothing is sampled until `resume`."""
        self._require_awake("pause")
        self._state = EngineState.PAUSED

    async def resume(self) -> None:
        """Goes on after `pause`."""
        self._require_awake("resume")
        self._state = EngineState.SERVING
        if self._open:
            self._start_pump()

    async def sleep(self, *, drop_weights: bool = False) -> None:
        """Gives the cache's memory back, and with `drop_weights` that of packed weights; plain weights stay.

        Raises RuntimeError while requests are open.
        """
        if self._open:
            raise RuntimeError(f"no request may be open to sleep, got {len(self._open)}: call interrupt() first")
        self._stepper.counters.released_bytes += self._memory.num_bytes
        self._memory.release()
        if drop_weights:
            released_bytes = self._network.weights.release()
            self._stepper.counters.released_bytes += released_bytes
            self._version = None if released_bytes else self._version
        self._state = EngineState.ASLEEP

    async def wake(self) -> None:
        """Takes requests again; the cache grows as they come."""
        self._state = EngineState.SERVING

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        """Takes one full set of weights in place; running samples are prefilled anew before they go on.

        Raises ValueError naming the weights that were unknown, doubled, missing or of another shape or version; open
        requests are then interrupted, and the engine refuses to sample and to score until a full set has arrived.
        """
        self._version = None
        self._stepper.drop_caches()
        try:
            receipt = self._network.weights.receive(chunks, version)
        except BaseException:
            self._abort(list(self._open))
            raise
        self._version = version
        return receipt

    async def score(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Scores whole sequences without cache at temperature 1; see `protocols.Scorer`."""
        require_whole_weights(self._version)
        for index, sequence in enumerate(token_ids):
            require_tokens(sequence, self._network.vocabulary_size, f"sequence {index}")
        return self._score(token_ids)

    def _take(self, request: GroupRequest) -> GrowingGroup:
        """Checks a request and turns it into a group."""
        require_tokens(request.prompt_token_ids, self._network.vocabulary_size, "the prompt")
        num_prompt = len(request.prompt_token_ids)
        if num_prompt >= self._max_length:
            raise RequestRefusedError(
                f"a prompt must leave room for a token under {self._max_length}, the maximum, got {num_prompt} tokens",
                "Drop overlong prompts with data.max_prompt_tokens, or raise model.max_length.",
            )
        if request.sampling.stop_strings and self._stepper.decode_text is None:
            raise RequestRefusedError("stop strings need a decoder, got none", "Pass `decode` to NativeEngine.")
        group = GrowingGroup.from_request(request, self._max_length)
        self._roster.require_fit(group)
        return group

    def _require_awake(self, verb: str) -> None:
        if self._state is EngineState.ASLEEP:
            raise RuntimeError(f"the engine must be awake to {verb}, it is asleep: call wake() first")

    def _abort(self, groups: Sequence[GrowingGroup]) -> None:
        """Ends what is unfinished in these groups and forgets them."""
        for group in groups:
            for sample in group.samples:
                sample.finish = sample.finish or FinishState.ABORTED
        self._roster.remove(groups)
        self._stepper.forget_finished()
        self._close_finished()

    def _close_finished(self) -> None:
        """Hands finished groups to the calls that wait for them."""
        for group in self._open:
            if group.is_finished and group.done is not None and not group.done.done():
                group.done.set_result(None)
        self._open = [group for group in self._open if not group.is_finished]

    def _start_pump(self) -> None:
        if self._state is EngineState.SERVING and (self._pump is None or self._pump.done()):
            self._pump = asyncio.get_running_loop().create_task(self._run())
            self._pump.add_done_callback(self._hand_on_failure)

    async def _run(self) -> None:
        """Steps until nothing is left to do or the engine is paused."""
        await asyncio.sleep(0)
        while self._state is EngineState.SERVING and not self._roster.is_empty:
            assert self._version is not None, "a failed publication interrupts what is open"
            self._stepper.step(self._version)
            self._close_finished()
            await asyncio.sleep(0)

    def _hand_on_failure(self, pump: asyncio.Task[None]) -> None:
        """Raises what ended the pump in the calls that wait for it, and starts over empty."""
        failure = None if pump.cancelled() else pump.exception()
        if failure is None:
            return
        self._stepper.reset()
        for group in self._open:
            if group.done is not None and not group.done.done():
                group.done.set_exception(failure)
        self._open = []


def _shortest(given: int | None, own: int | None) -> int:
    """Returns the smaller bound on prompt plus completion of those that there are."""
    bounds = [bound for bound in (given, own) if bound is not None]
    if not bounds:
        raise ModelError(
            "a model must say how long its sequences may be, got a config without max_position_embeddings",
            "Pass max_length to NativeEngine.",
        )
    return min(bounds)
