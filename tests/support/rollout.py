"""Requests and a loop for tests of rollout engines."""

import asyncio
from collections.abc import Sequence

import numpy as np

from strop.protocols import RolloutEngine
from strop.records import Completion, GroupRequest, SamplingParams, StreamKey


def make_request(
    prompt: Sequence[int] | np.ndarray,
    group_size: int = 1,
    *,
    prompt_id: str = "prompt",
    partial: tuple[Completion | None, ...] = (),
    **sampling: object,
) -> GroupRequest:
    """Returns a request of `group_size` streams; keywords are those of `SamplingParams` (16 new tokens if unsaid)."""
    streams = tuple(StreamKey(0, prompt_id, 0, index) for index in range(group_size))
    params = SamplingParams(**{"max_new_tokens": 16, **sampling})
    return GroupRequest(np.asarray(prompt, dtype=np.int64), streams, params, partial)


def serve(engine: RolloutEngine, *requests: GroupRequest) -> list[list[Completion]]:
    """Generates all requests concurrently in an event loop of its own."""

    async def gather() -> list[list[Completion]]:
        return list(await asyncio.gather(*(engine.generate(request) for request in requests)))

    return asyncio.run(gather())


async def turns(count: int) -> None:
    """Lets the event loop turn so often."""
    for _ in range(count):
        await asyncio.sleep(0)
