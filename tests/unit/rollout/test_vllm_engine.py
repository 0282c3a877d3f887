"""The vLLM engine against the native one and plain transformers, on a tiny Qwen3."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from strop.config.rollout import RolloutConfig
from strop.models.weights import weight_chunks
from strop.records import Completion, FinishState, GroupRequest, SamplingParams, StreamKey
from strop.rollout import RequestRefusedError
from strop.rollout.native import NativeEngine
from strop.rollout.vllm.engine import VllmEngine
from support.rollout import (
    assert_logprobs_and_scores_are_those_of_a_full_forward,
    make_request,
    plain_greedy,
    plain_logprobs,
    serve,
    turns,
)
from support.tiny import MAX_LENGTH, random_ids, tiny_model
from support.tokenizer import tiny_tokenizer
from support.vllm_engines import needs_vllm, vllm_engine

pytestmark = needs_vllm
FAMILY = "qwen3_wide"
PROMPT = random_ids(np.random.default_rng(0), 70)
NEW_TOKENS = 20


@pytest.fixture
def engine() -> VllmEngine:
    return vllm_engine(FAMILY)


def native_engine() -> NativeEngine:
    return NativeEngine(tiny_model(FAMILY), RolloutConfig())


def test_greedy_tokens_and_their_logprobs_are_those_of_the_native_engine_and_of_transformers(
    engine: VllmEngine,
) -> None:
    for length in (3, 12, 70):
        request = make_request(PROMPT[:length], 2, max_new_tokens=NEW_TOKENS, temperature=0.0)
        (ours,), (native,) = serve(engine, request), serve(native_engine(), request)
        assert ours[0].token_ids.tolist() == plain_greedy(FAMILY, PROMPT[:length], NEW_TOKENS)
        for one, other in zip(ours, native, strict=True):
            assert one.token_ids.tolist() == other.token_ids.tolist()
            np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_scores_are_those_of_the_native_engine(engine: VllmEngine) -> None:
    sequences = [random_ids(np.random.default_rng(length), length) for length in (2, 5, 40, 200, MAX_LENGTH)]
    ours, native = (asyncio.run(one.score(sequences)) for one in (engine, native_engine()))
    for one, other in zip(ours, native, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_sampled_logprobs_are_those_of_the_distribution_at_its_temperature(engine: VllmEngine) -> None:
    assert_logprobs_and_scores_are_those_of_a_full_forward(engine, FAMILY, NEW_TOKENS)


@pytest.mark.parametrize("cut", [{"top_k": 4}, {"top_p": 0.3}, {"top_k": 9, "top_p": 0.5}])
def test_logprobs_under_top_k_and_top_p_are_those_of_the_native_engine(
    engine: VllmEngine, cut: dict[str, float]
) -> None:
    """The native engine draws other tokens: each of ours is put to it as the only one that it may go on with."""
    request = make_request(PROMPT[:9], 4, max_new_tokens=6, temperature=0.8, **cut)
    for completion in serve(engine, request)[0]:
        for place in range(len(completion.token_ids)):
            known = np.concatenate([PROMPT[:9], completion.token_ids[:place]])
            expected = _cut_logprobs(known, request.sampling)
            assert completion.logprobs[place] == pytest.approx(expected[completion.token_ids[place]], abs=1e-4)


def _cut_logprobs(token_ids: np.ndarray, sampling: SamplingParams) -> dict[int, float]:
    """The kept tokens' log-probs by a slow loop in float64."""
    import torch

    with torch.no_grad():
        logits = tiny_model(FAMILY, attn="eager")(torch.from_numpy(token_ids)[None]).logits[0, -1]
    logprobs = torch.log_softmax(logits.double() / sampling.temperature, -1).tolist()
    kept = sorted(range(len(logprobs)), key=lambda token_id: -logprobs[token_id])[: sampling.top_k or None]
    mass = sum(np.exp(logprobs[token_id]) for token_id in kept)
    nucleus, total = [], 0.0
    for token_id in kept:
        if total >= sampling.top_p:
            break
        nucleus.append(token_id)
        total += np.exp(logprobs[token_id]) / mass
    weight = sum(np.exp(logprobs[token_id]) for token_id in nucleus)
    return {token_id: logprobs[token_id] - np.log(weight) for token_id in nucleus}


def test_a_sampled_stop_token_is_kept_and_ends_the_sample(engine: VllmEngine) -> None:
    greedy = make_request(PROMPT[:12], max_new_tokens=NEW_TOKENS, temperature=0.0)
    (whole,) = serve(engine, greedy)[0]
    stop = int(whole.token_ids[5])
    first = whole.token_ids.tolist().index(stop)
    sampling = replace(greedy.sampling, stop_token_ids=frozenset({stop}))
    (stopped,) = serve(engine, replace(greedy, sampling=sampling))[0]
    assert stopped.finish is FinishState.STOPPED
    assert stopped.token_ids.tolist() == whole.token_ids[: first + 1].tolist()
    (ignored,) = serve(engine, replace(greedy, sampling=replace(sampling, ignore_stop=True)))[0]
    assert ignored.token_ids.tolist() == whole.token_ids.tolist()


def test_the_models_own_end_of_sequence_ends_nothing_that_the_request_does_not_name(engine: VllmEngine) -> None:
    """The tiny model's config has an end token; 300 draws from 320 tokens meet it."""
    completions = serve(engine, make_request(PROMPT[:5], 4, max_new_tokens=300, temperature=2.0))[0]
    end = tiny_model(FAMILY).generation_config.eos_token_id
    assert any(end in one.token_ids[:-1] for one in completions)
    assert all(one.finish is FinishState.LENGTH and len(one.token_ids) == 300 for one in completions)


def test_a_stop_string_ends_a_sample_with_the_token_that_completes_it(engine: VllmEngine) -> None:
    greedy = make_request(PROMPT[:12], max_new_tokens=NEW_TOKENS, temperature=0.0)
    (whole,) = serve(engine, greedy)[0]
    decode = tiny_tokenizer().decode
    text = decode(whole.token_ids[:6].tolist())[-2:]
    sampling = replace(greedy.sampling, stop_strings=(text,))
    (stopped,) = serve(engine, replace(greedy, sampling=sampling))[0]
    (native,) = serve(NativeEngine(tiny_model(FAMILY), RolloutConfig(), decode), replace(greedy, sampling=sampling))[0]
    assert stopped.finish is FinishState.STOPPED
    assert stopped.token_ids.tolist() == native.token_ids.tolist()
    assert len(stopped.token_ids) == len(stopped.policy_versions) <= 6


def test_an_aborted_sample_goes_on_from_its_tokens_with_what_is_left_of_its_budget(engine: VllmEngine) -> None:
    greedy = make_request(PROMPT[:12], max_new_tokens=NEW_TOKENS, temperature=0.0)
    (whole,) = serve(engine, greedy)[0]
    begun = Completion(whole.token_ids[:8], whole.logprobs[:8], np.full(8, 3), FinishState.ABORTED)
    (resumed,) = serve(engine, replace(greedy, partial=(begun,)))[0]
    assert resumed.token_ids.tolist() == whole.token_ids.tolist()
    assert resumed.policy_versions.tolist() == [3] * 8 + [0] * 12


def test_samples_of_a_group_differ_and_a_stream_draws_the_same_again(engine: VllmEngine) -> None:
    request = make_request(PROMPT[:20], 6, max_new_tokens=8)
    first, second = serve(engine, request)[0], serve(engine, request)[0]
    assert len({tuple(one.token_ids) for one in first}) == 6
    assert [one.token_ids.tolist() for one in first] == [one.token_ids.tolist() for one in second]
    other = GroupRequest(request.prompt_token_ids, (StreamKey(1, "prompt", 0, 0),), request.sampling)
    assert serve(engine, other)[0][0].token_ids.tolist() != first[0].token_ids.tolist()


def test_an_interrupt_returns_what_was_sampled_so_far(engine: VllmEngine) -> None:
    async def interrupt() -> list[Completion]:
        job = asyncio.create_task(engine.generate(make_request(PROMPT[:5], 2, max_new_tokens=400)))
        await asyncio.sleep(0.3)
        await engine.interrupt()
        return await job

    completions = asyncio.run(asyncio.wait_for(interrupt(), 30))
    assert all(one.finish is FinishState.ABORTED for one in completions)
    assert all(0 < len(one.token_ids) == len(one.policy_versions) < 400 for one in completions)
    assert engine.is_idle


def test_an_interrupt_reaches_requests_that_wait_in_a_paused_engine(engine: VllmEngine) -> None:
    async def interrupt() -> list[Completion]:
        await engine.pause()
        job = asyncio.create_task(engine.generate(make_request(PROMPT[:5], 2, max_new_tokens=400)))
        await asyncio.sleep(0.2)
        await engine.interrupt()
        completions = await job
        await engine.resume()
        return completions

    completions = asyncio.run(asyncio.wait_for(interrupt(), 30))
    assert [(one.finish, len(one.token_ids)) for one in completions] == [(FinishState.ABORTED, 0)] * 2


def test_a_cancelled_call_leaves_nothing_in_the_engine(engine: VllmEngine) -> None:
    async def cancel() -> None:
        job = asyncio.create_task(engine.generate(make_request(PROMPT[:5], 2, max_new_tokens=400)))
        await asyncio.sleep(0.2)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        await asyncio.sleep(0.2)

    asyncio.run(cancel())
    assert engine.is_idle
    assert engine._host.llm.get_num_unfinished_requests() == 0


def test_tokens_of_a_request_that_is_kept_over_a_publication_carry_the_version_that_sampled_them(
    engine: VllmEngine,
) -> None:
    async def publish_meanwhile() -> Completion:
        job = asyncio.create_task(engine.generate(make_request(PROMPT[:5], max_new_tokens=300, temperature=0.0)))
        await asyncio.sleep(0.3)
        await engine.pause()
        await engine.receive_weights(weight_chunks(tiny_model(FAMILY, seed=1), 4), 4)
        await engine.resume()
        return (await job)[0]

    completion = asyncio.run(asyncio.wait_for(publish_meanwhile(), 60))
    versions = completion.policy_versions.tolist()
    num_before = versions.count(0)
    assert 0 < num_before < 300
    assert versions == [0] * num_before + [4] * (300 - num_before)
    whole = np.concatenate([PROMPT[:5], completion.token_ids])
    old, new = (plain_logprobs(FAMILY, whole, seed=seed)[4:] for seed in (0, 1))
    np.testing.assert_allclose(completion.logprobs[:num_before], old[:num_before], atol=1e-4)
    np.testing.assert_allclose(completion.logprobs[num_before:], new[num_before:], atol=1e-4)


def test_a_paused_engine_refuses_to_score_and_a_failed_publication_to_sample(engine: VllmEngine) -> None:
    async def score_paused() -> None:
        await engine.pause()
        with pytest.raises(RuntimeError, match="resume"):
            await engine.score([PROMPT])
        await engine.resume()

    asyncio.run(score_paused())
    sent = list(weight_chunks(tiny_model(FAMILY), 1))
    doubled, alien = sent[2], replace(sent[2], name="model.alien")
    bent = replace(sent[5], tensor=sent[5].tensor[:-1])
    with pytest.raises(ValueError, match=r"doubled: .*unknown: model\.alien.*wrong shape: .*missing: "):
        asyncio.run(engine.receive_weights([*sent[:5], doubled, alien, bent, *sent[6:]], 1))
    with pytest.raises(RuntimeError, match="receive a full set"):
        serve(engine, make_request(PROMPT))


def test_requests_that_can_never_be_served_are_refused(engine: VllmEngine) -> None:
    long = random_ids(np.random.default_rng(0), MAX_LENGTH)
    for request, reason in [
        (make_request(long), "must leave room"),
        (make_request([5, 320]), "token ids from 0 to 319"),
        (make_request([5, -1]), "token ids from 0"),
    ]:
        with pytest.raises(RequestRefusedError, match=reason):
            serve(engine, request)
    (completion,) = serve(engine, make_request(long[:-3], max_new_tokens=9))[0]
    assert len(completion.token_ids) == 3
    assert completion.finish is FinishState.LENGTH


def test_the_event_loop_of_the_caller_turns_while_vllm_works(engine: VllmEngine) -> None:
    async def count_turns() -> int:
        job = asyncio.create_task(engine.generate(make_request(PROMPT[:5], max_new_tokens=50)))
        count = 0
        while not job.done():
            await turns(1)
            count += 1
        return count

    assert asyncio.run(count_turns()) > 100
