"""The native engine on models with recurrent layers, against plain transformers."""

import asyncio

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    MiniMaxConfig,
    NemotronHConfig,
    RecurrentGemmaConfig,
    RwkvConfig,
)

from strop.config.rollout import RolloutConfig
from strop.errors import ModelError
from strop.models.attention import register_attention
from strop.models.weights import weight_chunks
from strop.records import Completion, FinishState
from strop.rollout.native import NativeEngine
from support.rollout import (
    assert_logprobs_and_scores_are_those_of_a_full_forward,
    make_request,
    plain_greedy,
    plain_logprobs,
    same,
    serve,
    turns,
)
from support.tiny import HYBRID_FAMILIES, MAX_LENGTH, random_ids, tiny_config, tiny_model

NEW_TOKENS = 20
PROMPT = random_ids(np.random.default_rng(0), 11)


def make_engine(family: str = "falcon_h1", seed: int = 0, **config: object) -> NativeEngine:
    return NativeEngine(tiny_model(family, seed), RolloutConfig(**config))


@pytest.mark.parametrize("family", HYBRID_FAMILIES)
def test_greedy_equals_plain_generate_token_for_token(family: str) -> None:
    # Some prompts are shorter than the convolutions, one is longer than a chunk of the scans.
    prompts = [random_ids(np.random.default_rng(length), length) for length in (1, 3, 12, 70, 12)]
    requests = [make_request(prompt, 2, max_new_tokens=NEW_TOKENS, temperature=0.0) for prompt in prompts]
    for prompt, completions in zip(prompts, serve(make_engine(family), *requests), strict=True):
        expected = plain_greedy(family, prompt, NEW_TOKENS)
        for completion in completions:
            assert completion.token_ids.tolist() == expected
            assert completion.finish is FinishState.LENGTH


@pytest.mark.parametrize("family", HYBRID_FAMILIES)
def test_sampled_logprobs_and_scores_equal_a_full_forward(family: str) -> None:
    assert_logprobs_and_scores_are_those_of_a_full_forward(make_engine(family), family, NEW_TOKENS)


def test_a_prompt_is_computed_once_for_samples_that_enter_together() -> None:
    engine = make_engine()
    serve(engine, make_request(range(8, 20), 6, max_new_tokens=4), make_request(range(8, 13), 2, max_new_tokens=4))
    assert engine.counters.prefill_tokens == 12 + 5
    assert engine.counters.decoded_tokens == (6 + 2) * 3


@pytest.mark.parametrize("family", ["qwen3_next", "mamba"])
def test_what_is_sampled_does_not_depend_on_what_else_is_served(family: str) -> None:
    rng = np.random.default_rng(0)
    requests = [
        make_request(random_ids(rng, 3 + 4 * (index // 2)), 3, prompt_id=str(index), max_new_tokens=4 + 5 * index)
        for index in range(4)
    ]
    together = serve(make_engine(family), *requests)
    crowded = serve(make_engine(family, max_running=2), *requests)
    tight = serve(make_engine(family, max_cache_tokens=60), *requests)
    alone = [serve(make_engine(family), request)[0] for request in requests]
    for group, *others in zip(together, crowded, tight, alone, strict=True):
        for other in others:
            assert all(same(left, right) for left, right in zip(group, other, strict=True))


def test_samples_that_stop_early_leave_the_others_as_they_are() -> None:
    (free,) = serve(make_engine(), make_request(PROMPT, 6, max_new_tokens=NEW_TOKENS))
    stops = frozenset(int(one.token_ids[place]) for one, place in zip(free, (2, 5, 9, 13, 19, 19), strict=True))
    (stopped,) = serve(make_engine(), make_request(PROMPT, 6, max_new_tokens=NEW_TOKENS, stop_token_ids=stops))
    assert len({len(one.token_ids) for one in stopped}) >= 3
    for whole, cut in zip(free, stopped, strict=True):
        length = next(place for place, token in enumerate(whole.token_ids, 1) if int(token) in stops)
        assert cut.token_ids.tolist() == whole.token_ids[:length].tolist()
        assert cut.finish is FinishState.STOPPED


@pytest.mark.parametrize("steps", [2, 5, 9])
@pytest.mark.parametrize("family", ["qwen3_next", "mamba"])
def test_interrupted_samples_go_on_as_if_they_had_never_been_interrupted(family: str, steps: int) -> None:
    (whole,) = serve(make_engine(family), make_request(PROMPT, 4, max_new_tokens=12))

    async def interrupted() -> tuple[list[Completion], list[Completion]]:
        engine = make_engine(family, max_running=3)
        job = asyncio.create_task(engine.generate(make_request(PROMPT, 4, max_new_tokens=12)))
        await turns(steps)
        await engine.interrupt()
        first = await job
        return first, await engine.generate(make_request(PROMPT, 4, max_new_tokens=12, partial=tuple(first)))

    first, resumed = asyncio.run(interrupted())
    assert all(one.finish is FinishState.ABORTED for one in first)
    assert len(first[3].token_ids) == 0  # it was waiting
    for part, after, expected in zip(first, resumed, whole, strict=True):
        assert 0 <= len(part.token_ids) < 12
        assert same(after, expected)
        np.testing.assert_allclose(after.logprobs, expected.logprobs, atol=1e-5)


@pytest.mark.parametrize("family", ["qwen3_next", "mamba"])
def test_samples_of_different_lengths_are_resumed_together(family: str) -> None:
    (whole,) = serve(make_engine(family), make_request(PROMPT, 4, max_new_tokens=12))
    partial = tuple(
        Completion(one.token_ids[:n], one.logprobs[:n], one.policy_versions[:n], FinishState.ABORTED)
        for one, n in zip(whole, (0, 3, 3, 7), strict=True)
    )
    engine = make_engine(family)
    (resumed,) = serve(engine, make_request(PROMPT, 4, max_new_tokens=12, partial=partial))
    assert all(same(one, other) for one, other in zip(resumed, whole, strict=True))
    assert engine.counters.prefill_tokens == 4 * len(PROMPT) + 3 + 3 + 7


@pytest.mark.parametrize("family", ["qwen3_next", "mamba"])
def test_samples_that_run_across_a_publication_go_on_with_its_weights_and_nothing_of_the_old_ones(family: str) -> None:
    request = make_request(PROMPT, 3, max_new_tokens=10)

    async def publish_in_between() -> list[Completion]:
        engine = make_engine(family)
        job = asyncio.create_task(engine.generate(request))
        await turns(5)
        await engine.receive_weights(weight_chunks(tiny_model(family, seed=1), version=1), 1)
        return await job

    for completion in asyncio.run(publish_in_between()):
        versions = completion.policy_versions
        assert set(versions.tolist()) == {0, 1}
        assert np.all(np.diff(versions) >= 0)
        whole = np.concatenate([PROMPT, completion.token_ids])
        by_seed = [plain_logprobs(family, whole, seed=seed)[len(PROMPT) - 1 :] for seed in (0, 1)]
        np.testing.assert_allclose(completion.logprobs, np.where(versions == 0, *by_seed), atol=1e-4)


def test_the_cache_stays_in_its_bound_and_is_gone_when_all_are_served() -> None:
    engine = make_engine(max_cache_tokens=200)
    requests = [make_request(PROMPT, 3, prompt_id=str(index), max_new_tokens=9) for index in range(6)]
    tokens_held = []

    async def watch() -> None:
        jobs = [asyncio.create_task(engine.generate(request)) for request in requests]
        while not all(job.done() for job in jobs):
            tokens_held.append(engine.cache_tokens)
            await asyncio.sleep(0)

    asyncio.run(watch())
    assert 100 < max(tokens_held) <= 200
    assert engine.cache_tokens == 0


def test_an_interrupt_gives_the_memory_back_at_once() -> None:
    async def interrupt() -> tuple[int, int]:
        engine = make_engine()
        job = asyncio.create_task(engine.generate(make_request(PROMPT, 3, max_new_tokens=400)))
        await turns(5)
        held = engine.cache_tokens
        await engine.interrupt()
        await job
        return held, engine.cache_tokens

    held, left = asyncio.run(interrupt())
    assert held >= 3 * len(PROMPT)
    assert left == 0


def test_a_sample_with_nan_logits_fails_alone() -> None:
    model = tiny_model("falcon_h1")
    (healthy,) = serve(NativeEngine(model, RolloutConfig()), make_request(range(8, 14), 3))
    with torch.no_grad():
        model.get_input_embeddings().weight[300] = float("nan")
    engine = make_engine("falcon_h1")  # a new engine could not check its cache with such weights
    asyncio.run(engine.receive_weights(weight_chunks(model, version=1), 1))
    prompts = (range(8, 14), [20, 21, 300, 22, 23, 24])  # of one length: they run in one cohort
    clean, broken = serve(engine, *(make_request(prompt, 3) for prompt in prompts))
    assert all(one.finish is FinishState.FAILED and "NaN" in str(one.error) for one in broken)
    assert all(same(one, other) for one, other in zip(clean, healthy, strict=True))


@pytest.mark.parametrize("family", ["qwen3_next", "mamba"])
def test_bfloat16_logprobs_are_close_to_a_full_forward_of_float32(family: str) -> None:
    engine = NativeEngine(tiny_model(family, dtype=torch.bfloat16), RolloutConfig())
    (completions,) = serve(engine, make_request(PROMPT, 2, max_new_tokens=NEW_TOKENS))
    for completion in completions:
        whole = np.concatenate([PROMPT, completion.token_ids])
        assert np.abs(completion.logprobs - plain_logprobs(family, whole)[len(PROMPT) - 1 :]).mean() < 0.1


def test_a_model_that_does_not_say_how_long_sequences_may_be_needs_a_maximum() -> None:
    config = tiny_config("mamba")
    del config.max_position_embeddings
    model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(ModelError, match="Pass max_length"):
        NativeEngine(model, RolloutConfig())
    engine = NativeEngine(model, RolloutConfig(), max_length=16)
    assert [len(one.token_ids) for one in serve(engine, make_request(range(8, 18), 1, max_new_tokens=50))[0]] == [6]


SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "max_position_embeddings": MAX_LENGTH,
    "pad_token_id": 0,
}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
REFUSED = {
    "its state is no cache": (RwkvConfig(vocab_size=64, hidden_size=32, attention_hidden_size=32), "RwkvModel"),
    "its state is in its modules": (
        RecurrentGemmaConfig(**SIZES, **HEADS, num_hidden_layers=3, lru_width=32, attention_window_size=16),
        "must give its cache back.*got NoneType",
    ),
    "its cache cannot be copied": (
        MiniMaxConfig(
            **SIZES, **HEADS, layer_types=["linear_attention", "full_attention"], num_hidden_layers=2,
            num_local_experts=2, block_size=16,
        ),
        "must let its rows be copied",
    ),
    "its steps differ from its scan": (
        NemotronHConfig(
            **SIZES, **HEADS, layers_block_type=["mamba", "attention"], mamba_num_heads=4, mamba_head_dim=16,
            ssm_state_size=8, n_groups=1, chunk_size=16, time_step_min=1.0,
        ),
        "through its cache must equal",
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_a_model_whose_cache_cannot_be_trusted_is_refused_with_the_reason(why: str) -> None:
    config, message = REFUSED[why]
    register_attention()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="strop")
        with torch.no_grad():
            for weight in model.parameters():
                weight.normal_(std=weight.shape[-1] ** -0.5)
    with pytest.raises(ModelError, match=message):
        NativeEngine(model, RolloutConfig(), max_length=MAX_LENGTH)
