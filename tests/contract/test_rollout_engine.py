"""What every rollout engine must do, run on each engine that this machine has."""

import asyncio
from collections.abc import Callable

import numpy as np
import pytest

from strop.config.rollout import RolloutConfig
from strop.models.weights import weight_chunks
from strop.protocols import RolloutEngine
from strop.records import Completion, FinishState
from strop.rollout.native import NativeEngine
from support.rollout import make_request, serve, turns
from support.tiny import random_ids, tiny_model
from support.vllm_engines import needs_vllm, vllm_engine

PROMPT = random_ids(np.random.default_rng(0), 10)


def native_engine(family: str) -> RolloutEngine:
    return NativeEngine(tiny_model(family), RolloutConfig())


EngineFactory = Callable[[str], RolloutEngine]
ENGINES = [
    (native_engine, "llama"),
    (native_engine, "qwen3_next"),
    (native_engine, "mamba"),
    pytest.param((vllm_engine, "qwen3_wide"), marks=needs_vllm),
]
"""Each engine with the families that it runs in different ways."""


@pytest.fixture(params=ENGINES, ids=lambda one: f"{one[0].__name__}-{one[1]}")
def engine_and_family(request: pytest.FixtureRequest) -> tuple[RolloutEngine, str]:
    factory: EngineFactory
    factory, family = request.param
    return factory(family), family


@pytest.fixture
def engine(engine_and_family: tuple[RolloutEngine, str]) -> RolloutEngine:
    return engine_and_family[0]


@pytest.fixture
def family(engine_and_family: tuple[RolloutEngine, str]) -> str:
    return engine_and_family[1]


def test_one_completion_comes_back_a_stream_in_order_with_every_array_as_long_as_its_tokens(
    engine: RolloutEngine,
) -> None:
    request = make_request(PROMPT, 3, max_new_tokens=7)
    (completions,) = serve(engine, request)
    assert len(completions) == 3
    for index, completion in enumerate(completions):
        assert len(completion.token_ids) == len(completion.logprobs) == len(completion.policy_versions) == 7
        assert (completion.token_ids.dtype, completion.logprobs.dtype) == (np.int64, np.float32)
        assert completion.policy_versions.dtype == np.int64
        assert completion.finish is FinishState.LENGTH
        only_this = make_request(PROMPT, 3, max_new_tokens=7)
        alone = type(only_this)(only_this.prompt_token_ids, only_this.streams[index : index + 1], only_this.sampling)
        assert serve(engine, alone)[0][0].token_ids.tolist() == completion.token_ids.tolist()


def test_calls_in_one_turn_are_served_together(engine: RolloutEngine) -> None:
    answers = serve(engine, *(make_request(PROMPT[:n], 2, max_new_tokens=3) for n in (2, 5, 9)))
    assert [len(answer) for answer in answers] == [2, 2, 2]


def test_scores_are_the_sampled_logprobs_and_leave_out_the_first_token(engine: RolloutEngine) -> None:
    (completions,) = serve(engine, make_request(PROMPT, 2, max_new_tokens=6))
    whole = [np.concatenate([PROMPT, one.token_ids]) for one in completions]
    scores = asyncio.run(engine.score([*whole, PROMPT[:1]]))
    assert [len(score) for score in scores] == [15, 15, 0]
    for completion, score in zip(completions, scores, strict=False):
        assert score.dtype == np.float32
        np.testing.assert_allclose(score[len(PROMPT) - 1 :], completion.logprobs, atol=1e-4)
    assert asyncio.run(engine.score([])) == []
    assert [len(score) for score in asyncio.run(engine.score([PROMPT[:1]]))] == [0]


def test_an_interrupt_ends_running_and_waiting_samples_at_once(engine: RolloutEngine) -> None:
    async def interrupt() -> list[Completion]:
        job = asyncio.create_task(engine.generate(make_request(PROMPT, 3, max_new_tokens=400)))
        await turns(5)
        await engine.interrupt()
        return await job

    completions = asyncio.run(asyncio.wait_for(interrupt(), timeout=60))
    assert all(one.finish is FinishState.ABORTED for one in completions)
    assert all(len(one.token_ids) == len(one.logprobs) < 400 for one in completions)


def test_nothing_is_sampled_while_paused_and_requests_stay(engine: RolloutEngine) -> None:
    async def pause() -> tuple[bool, list[Completion]]:
        await engine.pause()
        job = asyncio.create_task(engine.generate(make_request(PROMPT, 2, max_new_tokens=5)))
        await turns(20)
        was_done = job.done()
        await engine.resume()
        return was_done, await job

    was_done, completions = asyncio.run(asyncio.wait_for(pause(), timeout=60))
    assert not was_done
    assert [len(one.token_ids) for one in completions] == [5, 5]


def test_pausing_between_tokens_changes_nothing_that_is_sampled(engine: RolloutEngine) -> None:
    async def with_pauses() -> list[Completion]:
        job = asyncio.create_task(engine.generate(make_request(PROMPT, 2, max_new_tokens=12)))
        for _ in range(3):
            await turns(3)
            await engine.pause()
            await turns(3)
            await engine.resume()
        return await job

    paused = asyncio.run(asyncio.wait_for(with_pauses(), timeout=60))
    (straight,) = serve(engine, make_request(PROMPT, 2, max_new_tokens=12))
    for one, other in zip(paused, straight, strict=True):
        assert one.token_ids.tolist() == other.token_ids.tolist()


def test_sleep_is_refused_while_requests_are_open_and_wake_brings_the_same_answers(engine: RolloutEngine) -> None:
    async def sleep_while_open() -> None:
        job = asyncio.create_task(engine.generate(make_request(PROMPT, 1, max_new_tokens=300)))
        await turns(4)
        with pytest.raises(RuntimeError, match="interrupt"):
            await engine.sleep()
        await engine.interrupt()
        await job

    async def sleep_and_wake() -> None:
        await engine.sleep()
        with pytest.raises(RuntimeError, match="wake"):
            await engine.generate(make_request(PROMPT))
        await engine.wake()

    asyncio.run(sleep_while_open())
    (before,) = serve(engine, make_request(PROMPT, 2))
    asyncio.run(sleep_and_wake())
    (after,) = serve(engine, make_request(PROMPT, 2))
    assert [one.token_ids.tolist() for one in before] == [one.token_ids.tolist() for one in after]


def test_received_weights_show_in_scores_samples_and_versions(engine: RolloutEngine, family: str) -> None:
    before = asyncio.run(engine.score([PROMPT]))[0]
    sent = list(weight_chunks(tiny_model(family, seed=1), version=7))
    receipt = asyncio.run(engine.receive_weights(iter(sent), 7))
    after = asyncio.run(engine.score([PROMPT]))[0]
    assert np.abs(before - after).max() > 0.1
    assert receipt.version == 7
    assert sorted(receipt.names) == sorted(chunk.name for chunk in sent)
    (completions,) = serve(engine, make_request(PROMPT, 1, max_new_tokens=3))
    assert completions[0].policy_versions.tolist() == [7, 7, 7]


def test_an_incomplete_set_of_weights_is_refused_by_name(engine: RolloutEngine, family: str) -> None:
    sent = list(weight_chunks(tiny_model(family, seed=1), version=1))
    with pytest.raises(ValueError, match=sent[3].name):
        asyncio.run(engine.receive_weights(iter(sent[:3] + sent[4:]), 1))


def test_an_engine_serves_one_event_loop_after_another(engine: RolloutEngine) -> None:
    answers = [serve(engine, make_request(PROMPT, 2, max_new_tokens=4))[0] for _ in range(2)]
    assert answers[0][1].token_ids.tolist() == answers[1][1].token_ids.tolist()
