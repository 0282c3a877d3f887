"""Drawing tokens against a slow oracle in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.records import SamplingParams
from strop.rollout.native.sampling import SamplingTensors, draw, keep_likeliest


def oracle_distribution(logits: np.ndarray, params: SamplingParams) -> np.ndarray:
    """The distribution that the settings declare, token by token in float64."""
    scaled = logits.astype(np.float64) / (params.temperature or 1.0)
    probs = np.exp(scaled - scaled.max())
    probs /= probs.sum()
    if params.temperature == 0:
        return probs
    order = sorted(range(len(probs)), key=lambda token: (-scaled[token], token))
    if params.top_k:
        for token in order[params.top_k :]:
            probs[token] = 0
        probs /= probs.sum()
    mass = 0.0
    for token in order:
        if params.top_p < 1 and mass >= params.top_p:
            probs[token] = 0
            continue
        mass += probs[token]
    return probs / probs.sum()


def draw_rows(logits: np.ndarray, params: list[SamplingParams], numbers: list[float]) -> tuple[np.ndarray, np.ndarray]:
    drawn = draw(
        torch.from_numpy(logits).float(),
        SamplingTensors.from_params(params, torch.device("cpu")),
        torch.tensor(numbers, dtype=torch.float64),
    )
    assert not drawn.invalid_B.any()
    return drawn.token_ids_B.numpy(), drawn.logprobs_B.numpy()


params_strategy = st.builds(
    SamplingParams,
    max_new_tokens=st.just(1),
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 3, 50, 100_000]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
)
row_strategy = st.tuples(params_strategy, st.floats(0, 1, exclude_max=True), st.integers(0, 2**31))


@pytest.mark.parametrize("num_tied", [1, 40, 600])
@pytest.mark.parametrize(("top_k", "top_p"), [(20, 1.0), (0, 0.6), (530, 0.99), (520, 1.0)])
def test_equal_logits_are_kept_in_the_order_of_their_ids(num_tied: int, top_k: int, top_p: float) -> None:
    rng = np.random.default_rng(num_tied)
    logits = rng.normal(0, 1, 1000).astype(np.float32)
    logits[rng.permutation(1000)[:num_tied]] = 0.25
    shifted = torch.from_numpy(logits - logits.max())[None]
    kept = keep_likeliest(shifted, torch.tensor([top_k]), torch.tensor([top_p], dtype=torch.float64))
    expected = oracle_distribution(shifted[0].numpy(), SamplingParams(1, top_k=top_k, top_p=top_p))
    assert torch.isfinite(kept[0]).tolist() == (expected > 0).tolist()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(row_strategy, min_size=1, max_size=5), num_tokens=st.sampled_from([1, 2, 255, 256, 257, 700, 1500])
)
def test_the_token_is_where_the_number_falls_in_the_declared_distribution(
    rows: list[tuple[SamplingParams, float, int]], num_tokens: int
) -> None:
    params, numbers, seeds = (list(column) for column in zip(*rows, strict=True))
    logits = np.stack([np.random.default_rng(seed).normal(0, 4, num_tokens).astype(np.float32) for seed in seeds])
    tokens, logprobs = draw_rows(logits, params, numbers)
    for row, one in enumerate(params):
        probs = oracle_distribution(logits[row], one)
        assert probs[tokens[row]] > 0
        assert logprobs[row] == pytest.approx(np.log(probs[tokens[row]]), abs=1e-5)
        edges = np.cumsum(probs)
        if one.temperature == 0:
            assert tokens[row] == logits[row].argmax()
        else:
            assert edges[tokens[row]] > numbers[row] - 1e-6
            assert edges[tokens[row]] - probs[tokens[row]] < numbers[row] + 1e-6


def test_tokens_come_as_often_as_their_probability_says() -> None:
    num_draws = 40_000
    rng = np.random.default_rng(0)
    logits = np.tile(rng.normal(0, 1.5, 12).astype(np.float32), (num_draws, 1))
    params = SamplingParams(1, temperature=0.8, top_k=9)
    tokens, _ = draw_rows(logits, [params] * num_draws, list((np.arange(num_draws) + 0.5) / num_draws))
    frequencies = np.bincount(tokens, minlength=12) / num_draws
    assert np.abs(frequencies - oracle_distribution(logits[0], params)).max() < 1e-4


@pytest.mark.parametrize("number", [0.0, np.nextafter(1.0, 0.0)])
@pytest.mark.parametrize("num_tokens", [3, 256, 1000])
def test_a_token_without_probability_is_never_drawn_at_either_end(number: float, num_tokens: int) -> None:
    logits = np.full((1, num_tokens), -np.inf, dtype=np.float32)
    logits[0, 1] = 0.0
    tokens, logprobs = draw_rows(logits, [SamplingParams(1)], [number])
    assert tokens.tolist() == [1]
    assert logprobs.tolist() == [0.0]


def test_rounding_of_sums_never_leads_past_the_last_token_with_probability() -> None:
    num_rows = 200
    logits = np.random.default_rng(0).normal(0, 2, (num_rows, 300)).astype(np.float32)
    logits[:, 250:] = -np.inf
    tokens, _ = draw_rows(logits, [SamplingParams(1)] * num_rows, [np.nextafter(1.0, 0.0)] * num_rows)
    assert set(tokens.tolist()) == {249}


def test_rows_without_a_finite_maximum_are_said_to_be_invalid_and_leave_others_alone() -> None:
    logits = torch.tensor([[0.0, 1.0], [float("nan"), 1.0], [float("inf"), 0.0], [-float("inf")] * 2])
    settings_ = SamplingTensors.from_params([SamplingParams(1)] * 4, torch.device("cpu"))
    numbers = torch.full((4,), 0.9, dtype=torch.float64)
    drawn = draw(logits, settings_, numbers)
    assert drawn.invalid_B.tolist() == [False, True, True, True]
    assert drawn.token_ids_B[0] == 1
    assert drawn.logprobs_B[0].item() == pytest.approx(-0.3132617, abs=1e-6)


def test_a_row_draws_the_same_alone_as_among_others() -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 3, (6, 600)).astype(np.float32)
    params = [SamplingParams(1, temperature=t, top_k=k) for t, k in [(1, 0), (0.5, 5), (0, 0), (1, 3), (2, 0), (1, 0)]]
    numbers = list(rng.random(6))
    tokens, logprobs = draw_rows(logits, params, numbers)
    for row in range(6):
        token, logprob = draw_rows(logits[[row]], [params[row]], [numbers[row]])
        assert (token[0], logprob[0]) == (tokens[row], pytest.approx(logprobs[row], abs=1e-6))
