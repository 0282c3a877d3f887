"""The native engine against plain transformers, on tiny random models of each family."""

import asyncio

import numpy as np
import pytest
import torch

from strop.config.rollout import RolloutConfig
from strop.errors import ModelError
from strop.records import Completion, FinishState
from strop.rollout import RequestRefusedError
from strop.rollout.native import NativeEngine
from strop.rollout.native.philox import stream_words, uniforms
from support.rollout import (
    assert_logprobs_and_scores_are_those_of_a_full_forward,
    make_request,
    plain_greedy,
    plain_logprobs,
    same,
    serve,
    turns,
)
from support.tiny import FAMILIES, random_ids, tiny_model

NEW_TOKENS = 20


def make_engine(
    family: str = "llama", *, packed_linears: bool = False, seed: int = 0, **config: object
) -> NativeEngine:
    return NativeEngine(tiny_model(family, seed), RolloutConfig(packed_linears=packed_linears, **config))


@pytest.mark.parametrize("packed_linears", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_equals_plain_generate_token_for_token(family: str, packed_linears: bool) -> None:
    engine = make_engine(family, packed_linears=packed_linears)
    prompts = [random_ids(np.random.default_rng(length), length) for length in (3, 12, 7)]
    requests = [make_request(prompt, 2, max_new_tokens=NEW_TOKENS, temperature=0.0) for prompt in prompts]
    for prompt, completions in zip(prompts, serve(engine, *requests), strict=True):
        expected = plain_greedy(family, prompt, NEW_TOKENS)
        for completion in completions:
            assert completion.token_ids.tolist() == expected
            assert completion.finish is FinishState.LENGTH
            whole = np.concatenate([prompt, completion.token_ids])
            logprobs = plain_logprobs(family, whole)[len(prompt) - 1 :]
            np.testing.assert_allclose(completion.logprobs, logprobs, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_logprobs_and_scores_equal_a_full_forward(family: str) -> None:
    assert_logprobs_and_scores_are_those_of_a_full_forward(make_engine(family), family, NEW_TOKENS)


def test_each_token_is_where_the_streams_own_number_for_it_falls() -> None:
    request = make_request(random_ids(np.random.default_rng(0), 11), 3, max_new_tokens=NEW_TOKENS)
    (completions,) = serve(make_engine(), request)
    model = tiny_model("llama", attn="eager")
    for stream, completion in zip(request.streams, completions, strict=True):
        whole = np.concatenate([request.prompt_token_ids, completion.token_ids])
        with torch.no_grad():
            logits = model(torch.from_numpy(whole)[None]).logits[0, 10:-1]
        edges = np.cumsum(torch.softmax(logits.double(), dim=-1).numpy(), axis=1)
        numbers = uniforms(np.tile(stream_words(stream), (NEW_TOKENS, 1)), np.arange(NEW_TOKENS))
        expected = [np.searchsorted(row, number, side="right") for row, number in zip(edges, numbers, strict=True)]
        assert completion.token_ids.tolist() == expected


def test_a_prompt_is_computed_once_for_its_group() -> None:
    engine = make_engine()
    serve(engine, make_request(range(8, 20), 6, max_new_tokens=4), make_request(range(8, 13), 2, max_new_tokens=4))
    assert engine.counters.prefill_tokens == 12 + 5
    assert engine.counters.decoded_tokens == (6 + 2) * 3


def test_what_is_sampled_does_not_depend_on_what_else_is_served() -> None:
    rng = np.random.default_rng(0)
    requests = [
        make_request(random_ids(rng, 3 + 4 * index), 3, prompt_id=str(index), max_new_tokens=4 + 7 * index)
        for index in range(4)
    ]
    together = serve(make_engine("gemma3"), *requests)
    crowded = serve(make_engine("gemma3", max_running=2), *requests)
    backwards = serve(make_engine("gemma3"), *reversed(requests))[::-1]
    alone = [serve(make_engine("gemma3"), request)[0] for request in requests]
    for group, *others in zip(together, crowded, backwards, alone, strict=True):
        for other in others:
            assert all(same(left, right) for left, right in zip(group, other, strict=True))


def test_a_long_queue_is_prefilled_in_several_passes_and_stays_in_its_cache_bound() -> None:
    engine = make_engine(max_running=64, max_cache_tokens=3000)
    requests = [make_request(range(8, 308), 2, prompt_id=str(index), max_new_tokens=9) for index in range(12)]
    tokens_held = []

    async def watch() -> None:
        jobs = [asyncio.create_task(engine.generate(request)) for request in requests]
        while not all(job.done() for job in jobs):
            tokens_held.append(engine.cache_tokens)
            await asyncio.sleep(0)

    asyncio.run(watch())
    assert 300 < max(tokens_held) <= 3000
    assert engine.counters.prefill_tokens >= 12 * 300


@pytest.mark.parametrize("steps", [2, 5, 9])
def test_interrupted_samples_go_on_as_if_they_had_never_been_interrupted(steps: int) -> None:
    prompt = random_ids(np.random.default_rng(0), 9)
    (whole,) = serve(make_engine("qwen3"), make_request(prompt, 4, max_new_tokens=12))

    async def interrupted() -> tuple[list[Completion], list[Completion]]:
        engine = make_engine("qwen3", max_running=3)
        job = asyncio.create_task(engine.generate(make_request(prompt, 4, max_new_tokens=12)))
        await turns(steps)
        await engine.interrupt()
        first = await job
        request = make_request(prompt, 4, max_new_tokens=12, partial=tuple(first))
        return first, await engine.generate(request)

    first, resumed = asyncio.run(interrupted())
    assert all(one.finish is FinishState.ABORTED for one in first)
    assert len(first[3].token_ids) == 0  # it was waiting
    for part, after, expected in zip(first, resumed, whole, strict=True):
        assert 0 <= len(part.token_ids) < 12
        assert same(after, expected)
        np.testing.assert_allclose(after.logprobs, expected.logprobs, atol=1e-5)


def test_a_partial_at_the_budget_ends_at_once_and_a_finished_one_comes_back_unchanged() -> None:
    (whole,) = serve(make_engine(), make_request(range(8, 14), 2, max_new_tokens=5))
    aborted = Completion(whole[0].token_ids, whole[0].logprobs, whole[0].policy_versions, FinishState.ABORTED)
    engine = make_engine()
    (again,) = serve(engine, make_request(range(8, 14), 2, max_new_tokens=5, partial=(aborted, whole[1])))
    assert again[0].finish is FinishState.LENGTH
    assert same(again[0], whole[0])
    assert same(again[1], whole[1])
    assert engine.counters.prefill_tokens == 0


def test_a_sampled_stop_token_ends_the_sample_and_is_kept_unless_stops_are_ignored() -> None:
    prompt = list(range(8, 20))
    (free,) = serve(make_engine(), make_request(prompt, 1, max_new_tokens=12))
    stop = int(free[0].token_ids[4])
    length = free[0].token_ids.tolist().index(stop) + 1
    stops = frozenset({stop})
    (stopped,) = serve(make_engine(), make_request(prompt, 1, max_new_tokens=12, stop_token_ids=stops))
    (ignored,) = serve(
        make_engine(), make_request(prompt, 1, max_new_tokens=12, stop_token_ids=stops, ignore_stop=True)
    )
    assert stopped[0].finish is FinishState.STOPPED
    assert stopped[0].token_ids.tolist() == free[0].token_ids[:length].tolist()
    assert same(ignored[0], free[0])


def test_a_stop_string_ends_the_sample_at_the_token_that_completes_it() -> None:
    def decode(token_ids: list[int]) -> str:
        return "".join(f"<{token}>" for token in token_ids)

    (free,) = serve(make_engine(), make_request(range(8, 20), 1, max_new_tokens=12))
    tokens = free[0].token_ids.tolist()
    stop = decode(tokens[3:5])[1:-1]
    engine = NativeEngine(tiny_model("llama"), RolloutConfig(packed_linears=False), decode)
    (stopped,) = serve(engine, make_request(range(8, 20), 1, max_new_tokens=12, stop_strings=(stop,)))
    assert stopped[0].finish is FinishState.STOPPED
    assert stopped[0].token_ids.tolist() == tokens[:5]
    with pytest.raises(RequestRefusedError, match="decoder"):
        serve(make_engine(), make_request([8], stop_strings=("x",)))


def test_the_models_maximum_ends_a_sample() -> None:
    engine = NativeEngine(tiny_model("llama"), RolloutConfig(packed_linears=False), max_length=16)
    (completions,) = serve(engine, make_request(range(8, 18), 1, max_new_tokens=50))
    assert len(completions[0].token_ids) == 6
    assert completions[0].finish is FinishState.LENGTH
    with pytest.raises(RequestRefusedError, match=r"16.*got 16"):
        serve(engine, make_request(range(8, 24)))


def test_a_sample_with_nan_logits_fails_alone() -> None:
    model = tiny_model("qwen2")
    prompts = [range(8, 14), [20, 300, 21]]
    healthy = serve(NativeEngine(model, RolloutConfig(packed_linears=False)), make_request(prompts[0], 3))
    with torch.no_grad():
        model.get_input_embeddings().weight[300] = float("nan")
    engine = NativeEngine(model, RolloutConfig(packed_linears=False))
    clean, broken = serve(engine, make_request(prompts[0], 3), make_request(prompts[1], 2))
    assert all(one.finish is FinishState.FAILED and "NaN" in str(one.error) for one in broken)
    assert all(same(one, other) for one, other in zip(clean, healthy[0], strict=True))
    short = make_request([9], 2, prompt_id="short")
    serve(engine, make_request(prompts[1], 3))  # what it leaves in the cache lies where the next two are padded
    after, padded = serve(engine, make_request(prompts[0], 3), short)
    assert all(same(one, expected) for one, expected in zip(after, healthy[0], strict=True))
    assert all(one.finish is FinishState.LENGTH for one in padded)


def test_a_model_with_another_attention_is_refused() -> None:
    with pytest.raises(ModelError, match="register_attention"):
        NativeEngine(tiny_model("llama", attn="eager"), RolloutConfig())


def test_a_failure_of_the_engine_reaches_those_who_wait() -> None:
    def decode(token_ids: list[int]) -> str:
        raise OSError("the tokenizer is gone")

    engine = NativeEngine(tiny_model("llama"), RolloutConfig(packed_linears=False), decode)
    with pytest.raises(OSError, match="the tokenizer is gone"):
        serve(engine, make_request([8, 9], stop_strings=("x",)))
    assert len(serve(engine, make_request([8, 9], 2))[0]) == 2


def test_an_interrupt_frees_a_prompt_whose_samples_only_wait() -> None:
    async def interrupt() -> None:
        engine = make_engine(max_running=2)
        stop_soon = make_request(range(8, 28), 3, max_new_tokens=2)
        job = asyncio.create_task(engine.generate(stop_soon))
        while engine.counters.decoded_tokens < 2:
            await asyncio.sleep(0)
        await engine.interrupt()
        assert [one.finish.value for one in await job] == ["length", "length", "aborted"]
        prefilled = engine.counters.prefill_tokens
        await engine.generate(make_request(range(8, 12), 1, max_new_tokens=2))
        assert engine.counters.prefill_tokens - prefilled == 4
        await engine.sleep()
        assert engine.cache_tokens == 0

    asyncio.run(interrupt())


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_bfloat16_logprobs_are_close_to_a_full_forward_of_float32(family: str) -> None:
    engine = NativeEngine(tiny_model(family, dtype=torch.bfloat16), RolloutConfig())
    prompt = random_ids(np.random.default_rng(0), 11)
    (completions,) = serve(engine, make_request(prompt, 2, max_new_tokens=NEW_TOKENS))
    for completion in completions:
        whole = np.concatenate([prompt, completion.token_ids])
        assert np.abs(completion.logprobs - plain_logprobs(family, whole)[len(prompt) - 1 :]).mean() < 0.1


def test_a_cancelled_call_leaves_the_engine() -> None:
    async def cancel() -> None:
        engine = make_engine()
        job = asyncio.create_task(engine.generate(make_request([8, 9], 2, max_new_tokens=400)))
        await turns(4)
        job.cancel()
        await turns(3)
        assert job.cancelled()
        await engine.sleep()

    asyncio.run(cancel())


def test_a_cancelled_call_leaves_the_others_as_they_would_be_alone() -> None:
    async def cancel_the_first() -> tuple[list[int], list[int]]:
        engine = make_engine()
        first = asyncio.create_task(engine.generate(make_request([8, 9], 2, max_new_tokens=400)))
        second = asyncio.create_task(engine.generate(make_request([11, 12, 13], 1, max_new_tokens=12)))
        while engine.counters.decoded_tokens < 6:
            await asyncio.sleep(0)
        first.cancel()
        (beside,) = await second
        (alone,) = await make_engine().generate(make_request([11, 12, 13], 1, max_new_tokens=12))
        return beside.token_ids.tolist(), alone.token_ids.tolist()

    beside, alone = asyncio.run(cancel_the_first())
    assert beside == alone
