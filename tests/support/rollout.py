"""Requests, a loop, and plain transformers to compare with, for tests of rollout engines."""

import asyncio
from collections.abc import Sequence

import numpy as np
import torch

from strop.protocols import RolloutEngine
from strop.records import Completion, GroupRequest, SamplingParams, StreamKey
from support.tiny import random_ids, tiny_model


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


def plain_greedy(family: str, prompt: np.ndarray, num_tokens: int) -> list[int]:
    """The likeliest tokens by `generate` of plain transformers; none ends them."""
    options = {"max_new_tokens": num_tokens, "min_new_tokens": num_tokens, "do_sample": False, "eos_token_id": None}
    with torch.no_grad():
        token_ids = tiny_model(family, attn="eager").generate(torch.from_numpy(prompt)[None], **options)
    return token_ids[0, len(prompt) :].tolist()


def plain_logprobs(family: str, token_ids: np.ndarray, *, seed: int = 0, temperature: float = 1.0) -> np.ndarray:
    """Log-probs of tokens 1, 2, ... by a full forward of plain transformers, without cache."""
    with torch.no_grad():
        model = tiny_model(family, seed, attn="eager")
        logits = model(torch.from_numpy(token_ids)[None], use_cache=False).logits[0, :-1]
    logprobs = torch.log_softmax(logits.double() / temperature, dim=-1)
    return logprobs[torch.arange(len(token_ids) - 1), torch.from_numpy(token_ids[1:])].numpy()


def assert_logprobs_and_scores_are_those_of_a_full_forward(engine: RolloutEngine, family: str, num_tokens: int) -> None:
    """Draws four samples that differ, and scores them."""
    prompt = random_ids(np.random.default_rng(0), 11)
    (completions,) = serve(engine, make_request(prompt, 4, max_new_tokens=num_tokens, temperature=0.7))
    assert len({tuple(one.token_ids) for one in completions}) == 4
    whole = [np.concatenate([prompt, one.token_ids]) for one in completions]
    scores = asyncio.run(engine.score(whole))
    for completion, token_ids, score in zip(completions, whole, scores, strict=True):
        expected = plain_logprobs(family, token_ids, temperature=0.7)[len(prompt) - 1 :]
        np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)
        np.testing.assert_allclose(score, plain_logprobs(family, token_ids), atol=1e-4)


def same(one: Completion, other: Completion) -> bool:
    """Whether two completions have the same tokens and ended in the same way."""
    return one.finish == other.finish and np.array_equal(one.token_ids, other.token_ids)
