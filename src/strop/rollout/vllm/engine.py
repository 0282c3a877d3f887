"""The vLLM rollout engine: the same verbs as the native one, on vLLM's asynchronous engine.

    generate(request) --one request a sample--> vLLM --deltas--> SampleSink --> completions
    receive_weights   --pause, shared files, worker processes layers, drop prefix cache, name the version--> receipt

What belongs to open requests is kept on the caller's side, so that an interrupt ends exactly them; everything that
touches vLLM runs on the host's loop.
"""

import asyncio
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.records import Completion, FinishState, GroupRequest, WeightChunk, WeightReceipt
from strop.rollout.errors import RequestRefusedError
from strop.rollout.native.samples import GrowingGroup
from strop.rollout.native.stops import Decode
from strop.rollout.requirements import require_tokens, require_whole_weights
from strop.rollout.vllm.host import VllmHost
from strop.rollout.vllm.samples import SampleSink, sampling_params, stream_seed
from strop.rollout.vllm.scoring import prompt_scores, scoring_params
from strop.rollout.vllm.weights import WeightSender


class EngineState(Enum):
    """What the engine does with requests."""

    SERVING = auto()
    PAUSED = auto()
    """Takes requests, samples nothing."""
    ASLEEP = auto()
    """Holds no cache where the platform can give it back, takes no requests."""


@dataclass(slots=True)
class EngineCounters:
    """What the engine has computed since it was made."""

    prompt_tokens: int = 0
    """Tokens of prompts and of resumed samples, once a sample."""
    cached_tokens: int = 0
    """Those of them that vLLM found in its prefix cache."""
    decoded_tokens: int = 0
    released_bytes: int = 0
    """Memory that was given back: always 0, vLLM does not say how much its sleep mode frees."""


class _OpenGroup:
    """A request that is being served."""

    def __init__(self, group: GrowingGroup, decode: Decode | None) -> None:
        self.group = group
        self.sinks = [SampleSink(sample, decode) for sample in group.samples if sample.finish is None]
        self.is_interrupted = False


class VllmEngine:
    """Samples with vLLM from a copy of the policy; implements `protocols.RolloutEngine`."""

    def __init__(
        self,
        host: VllmHost,
        vocabulary_size: int,
        max_length: int,
        decode: Decode | None = None,
        *,
        can_sleep: bool = False,
        version: int = 0,
    ) -> None:
        """Takes a started vLLM over; `build_vllm_engine` makes both.

        Args:
            host: vLLM, with the weights of `version` loaded.
            vocabulary_size: ids from 0 up to this are tokens.
            max_length: bound of prompt plus completion.
            decode: gives the text of token ids; needed for stop strings only.
            can_sleep: whether vLLM can give memory back on this platform.
            version: of the weights that vLLM has loaded.
        """
        self._host = host
        self._vocabulary_size, self._max_length, self._decode = vocabulary_size, max_length, decode
        self._can_sleep = can_sleep
        self._state = EngineState.SERVING
        self._open: list[_OpenGroup] = []
        self._ids = itertools.count()
        self.counters = EngineCounters()
        table = host.call_and_wait(_open_books(host, version))
        shapes = {name: tuple(shape) for name, shape in table["shapes"].items()}
        self._weights = WeightSender(host, shapes, table["tied"])
        self._version: int | None = version

    @property
    def state(self) -> EngineState:
        """What the engine does with requests."""
        return self._state

    @property
    def least_probe_tokens(self) -> int:
        """The least length of a probe that shows a prefix cache that was not dropped.

        vLLM caches whole blocks only, and computes the last token anew; a probe may be cut to half of its length.
        """
        return 2 * (int(self._host.llm.vllm_config.cache_config.block_size) + 1)

    @property
    def version(self) -> int | None:
        """The version of the weights; None where they were dropped, or after a publication that failed half-way."""
        return self._version

    @property
    def weight_names(self) -> tuple[str, ...]:
        """The names that `receive_weights` expects."""
        return self._weights.names

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being sampled."""
        return not self._open

    def close(self) -> None:
        """Ends vLLM's processes."""
        self._weights.close()
        self._host.close()

    async def generate(self, request: GroupRequest) -> list[Completion]:
        """Completes the prompt once per stream, in order; see `protocols.RolloutEngine`.

        Raises RequestRefusedError for a request that can never be served.
        """
        require_whole_weights(self._version)
        if self._state is EngineState.ASLEEP:
            raise RuntimeError("the engine must be awake to generate, it is asleep: call wake() first")
        opened = _OpenGroup(self._take(request), self._decode)
        self._open.append(opened)
        try:
            await self._host.call(self._serve(opened))
        finally:
            self._open.remove(opened)
        return [sample.completion() for sample in opened.group.samples]

    async def interrupt(self) -> None:
        """Ends every running and waiting generation at once: each returns its tokens so far as ABORTED."""
        opened = list(self._open)
        for one in opened:
            one.is_interrupted = True
        await self._host.call(self._abort(opened))

    async def pause(self) -> None:
        """Stops between two tokens; requests stay and are taken, nothing is sampled until `resume`."""
        self._require_awake("pause")
        await self._host.call(self._host.llm.pause_generation(mode="keep", clear_cache=False))
        self._state = EngineState.PAUSED

    async def resume(self) -> None:
        """Goes on after `pause`."""
        self._require_awake("resume")
        await self._host.call(self._host.llm.resume_generation())
        self._state = EngineState.SERVING

    async def sleep(self, *, drop_weights: bool = False) -> None:
        """Gives memory back where vLLM can (its sleep mode, on GPUs); elsewhere only drops what is cached.

        Raises RuntimeError while requests are open.
        """
        if self._open:
            raise RuntimeError(f"no request may be open to sleep, got {len(self._open)}: call interrupt() first")
        await self._host.call(self._sleep(drop_weights))
        if drop_weights and self._can_sleep:
            self._version = None
        self._state = EngineState.ASLEEP

    async def wake(self) -> None:
        """Serves again."""
        if self._state is EngineState.ASLEEP:
            await self._host.call(self._wake())
        elif self._state is EngineState.PAUSED:
            await self._host.call(self._host.llm.resume_generation())
        self._state = EngineState.SERVING

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        """Takes one full set of weights; what runs is held meanwhile and computed anew before it goes on.

        Raises ValueError naming the weights that were unknown, doubled, missing, of another shape or version, or that
        products do not use; open requests are then interrupted, and the engine refuses to sample and to score until a
        full set has arrived.
        """
        self._version = None
        await self._host.call(self._host.llm.pause_generation(mode="keep", clear_cache=False))
        try:
            receipt = await self._weights.send(chunks, version)
        except BaseException:
            await self.interrupt()
            raise
        finally:
            await self._host.call(self._end_update(version))
        self._version = version
        return receipt

    async def score(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Scores whole sequences without reading the cache, at temperature 1; see `protocols.Scorer`.

        Raises RuntimeError while paused: vLLM holds everything then, a sequence to score too.
        """
        require_whole_weights(self._version)
        if self._state is not EngineState.SERVING:
            raise RuntimeError(f"the engine must serve to score, it is {self._state.name.lower()}: call resume() first")
        for index, sequence in enumerate(token_ids):
            require_tokens(sequence, self._vocabulary_size, f"sequence {index}")
            if len(sequence) > self._max_length:
                raise RequestRefusedError(f"sequence {index} must have {self._max_length} tokens at most, got more")
        return await self._host.call(self._score([sequence.tolist() for sequence in token_ids]))

    # ------------------------------------------------------------------------------------ on the host's loop

    async def _serve(self, opened: _OpenGroup) -> None:
        async with asyncio.TaskGroup() as tasks:
            for sink in opened.sinks:
                tasks.create_task(self._grow(opened, sink))

    async def _grow(self, opened: _OpenGroup, sink: SampleSink) -> None:
        """Serves one sample; an interrupt that came before vLLM knew of it is made up for."""
        if opened.is_interrupted:
            sink.sample.finish = FinishState.ABORTED
            return
        sample = sink.sample
        num_before = len(sample.token_ids)
        stream = opened.group.request.streams[opened.group.samples.index(sample)]
        params = sampling_params(sample.sampling, stream_seed(stream, num_before), sample.max_new_tokens - num_before)
        token_ids = [*opened.group.request.prompt_token_ids.tolist(), *sample.token_ids]
        self.counters.prompt_tokens += len(token_ids)
        async for output in self._outputs(token_ids, params, sink):
            sink.take(output)
            self.counters.decoded_tokens += len(output.outputs[0].token_ids)
            if output.finished:
                self.counters.cached_tokens += output.num_cached_tokens or 0
            if sample.finish is not None and not output.finished:
                await self._host.llm.abort(sink.request_id, internal=True)
            if opened.is_interrupted and not output.finished:
                await self._abort([opened])

    async def _outputs(self, token_ids: list[int], params: Any, sink: SampleSink | None = None) -> Any:
        """Yields what vLLM sends of one request, the last one with `finished`; ends the request where it is left."""
        from vllm.inputs.engine import tokens_input

        name = f"strop-{next(self._ids)}"
        llm = self._host.llm
        queue = None
        is_finished = False
        try:
            queue = await llm.add_request(name, tokens_input(token_ids), params)
            if sink is not None:
                sink.request_id = queue.request_id
            while not is_finished:
                output = queue.get_nowait() or await queue.get()
                is_finished = output.finished
                yield output
        finally:
            if not is_finished:
                await llm.abort(name)
            if queue is not None:
                queue.close()

    async def _abort(self, opened: Sequence[_OpenGroup]) -> None:
        ids = [sink.request_id for one in opened for sink in one.sinks if sink.request_id is not None]
        if ids:
            await self._host.llm.abort(ids, internal=True)

    async def _score(self, sequences: Sequence[list[int]]) -> list[NDArray[np.float32]]:
        return list(await asyncio.gather(*(self._score_one(sequence) for sequence in sequences)))

    async def _score_one(self, token_ids: list[int]) -> NDArray[np.float32]:
        if len(token_ids) == 1:
            return np.zeros(0, dtype=np.float32)
        outputs = [output async for output in self._outputs(token_ids, scoring_params())]
        return prompt_scores(token_ids, outputs[-1].prompt_logprobs)

    async def _end_update(self, version: int) -> None:
        """Drops what older weights computed, names the new ones, and goes on where the engine was serving."""
        if not await self._host.llm.reset_prefix_cache(reset_running_requests=True, reset_connector=True):
            raise RuntimeError("vLLM did not drop its prefix cache: what it holds was computed with other weights")
        await self._host.llm.update_weight_version(str(version))
        if self._state is EngineState.SERVING:
            await self._host.llm.resume_generation()

    async def _sleep(self, drop_weights: bool) -> None:
        llm = self._host.llm
        if self._state is EngineState.ASLEEP:
            return
        await llm.pause_generation(mode="keep", clear_cache=True)
        if self._can_sleep and drop_weights:
            await llm.sleep(level=2, mode="keep")
        elif self._can_sleep:
            await llm.release_kv_cache_memory()

    async def _wake(self) -> None:
        if self._can_sleep:
            await self._host.llm.wake_up()
        await self._host.llm.resume_generation()

    # ------------------------------------------------------------------------------------ what is asked

    def _take(self, request: GroupRequest) -> GrowingGroup:
        """Checks a request and turns it into a group."""
        require_tokens(request.prompt_token_ids, self._vocabulary_size, "the prompt")
        num_prompt = len(request.prompt_token_ids)
        if num_prompt >= self._max_length:
            raise RequestRefusedError(
                f"a prompt must leave room for a token under {self._max_length}, the maximum, got {num_prompt} tokens",
                "Drop overlong prompts with data.max_prompt_tokens, or raise model.max_length.",
            )
        if request.sampling.stop_strings and self._decode is None:
            raise RequestRefusedError("stop strings need a decoder, got none", "Pass `decode` to VllmEngine.")
        return GrowingGroup.from_request(request, self._max_length)

    def _require_awake(self, verb: str) -> None:
        if self._state is EngineState.ASLEEP:
            raise RuntimeError(f"the engine must be awake to {verb}, it is asleep: call wake() first")


async def _open_books(host: VllmHost, version: int) -> Any:
    """Names the loaded weights and asks the worker what it holds."""
    await host.llm.update_weight_version(str(version))
    return await host.on_workers("strop_weight_table")
