"""What is said of a target beside its log-prob equals slow loops, whatever the chunk."""

import math

import pytest
import torch
from torch import Tensor

from strop.algorithms.head_products import LogitTransform
from strop.algorithms.logprobs import TargetScores, Wanted, chunked_logprobs

NUM_TARGETS, VOCABULARY, HIDDEN = 9, 13, 5

TRANSFORMS = [LogitTransform(1.0), LogitTransform(0.6, scale=1.5), LogitTransform(0.7, softcap=2.0)]


def make_operands(dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Hidden states, weight and bias."""
    generator = torch.Generator().manual_seed(11)
    shapes = [(NUM_TARGETS, HIDDEN), (VOCABULARY, HIDDEN), (VOCABULARY,)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def draw_ids(*shape: int) -> Tensor:
    return torch.randint(VOCABULARY, shape, generator=torch.Generator().manual_seed(sum(shape)))


def score(operands: list[Tensor], transform: LogitTransform, chunk: int, wanted: Wanted) -> TargetScores:
    return chunked_logprobs(*operands, draw_ids(NUM_TARGETS), transform=transform, chunk=chunk, wanted=wanted)


def slow_probabilities(operands: list[Tensor], transform: LogitTransform) -> list[list[float]]:
    """Softmax of every target, one multiplication at a time."""
    hidden, weight, bias = (operand.detach().tolist() for operand in operands)
    found = []
    for state in hidden:
        logits = []
        for row, offset in zip(weight, bias, strict=True):
            logit = transform.scale * (sum(h * w for h, w in zip(state, row, strict=True)) + offset)
            if transform.softcap is not None:
                logit = transform.softcap * math.tanh(logit / transform.softcap)
            logits.append(logit / transform.temperature)
        total = math.fsum(math.exp(logit) for logit in logits)
        found.append([math.exp(logit) / total for logit in logits])
    return found


@pytest.mark.parametrize("chunk", [1, 4, 9, 50])
@pytest.mark.parametrize("num_candidates", [1, 3, VOCABULARY])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_values_equal_slow_loops(transform: LogitTransform, num_candidates: int, chunk: int) -> None:
    operands, ids = make_operands(), draw_ids(NUM_TARGETS, num_candidates)
    wanted = Wanted(entropy=True, candidate_ids_NK=ids, top_k=num_candidates, collisions=True)
    scores = score(operands, transform, chunk, wanted)
    for n, probabilities in enumerate(slow_probabilities(operands, transform)):
        ranked = sorted(range(VOCABULARY), key=lambda v: -probabilities[v])[:num_candidates]
        assert scores.top_ids_NK[n].tolist() == ranked
        expected = {
            "logprobs_N": math.log(probabilities[draw_ids(NUM_TARGETS)[n]]),
            "entropies_N": -math.fsum(p * math.log(p) for p in probabilities),
            "candidate_logprobs_NK": [math.log(probabilities[v]) for v in ids[n].tolist()],
            "top_logprobs_NK": [math.log(probabilities[v]) for v in ranked],
            "collisions_N": math.fsum(p * p for p in probabilities),
        }
        for name, value in expected.items():
            actual = getattr(scores, name)[n].tolist()
            assert actual == pytest.approx(value, rel=1e-10), name


@pytest.mark.parametrize("with_entropy", [False, True])
@pytest.mark.parametrize("chunk", [1, 4, 50])
@pytest.mark.parametrize("num_candidates", [1, 3, VOCABULARY])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_gradients_of_everything_together_equal_those_of_a_plain_log_softmax(
    transform: LogitTransform, num_candidates: int, chunk: int, with_entropy: bool
) -> None:
    operands, ids = make_operands(), draw_ids(NUM_TARGETS, num_candidates)
    generator = torch.Generator().manual_seed(5)
    weights = torch.randn(NUM_TARGETS, num_candidates + 2, generator=generator, dtype=torch.float64)

    def weighted(logprobs_N: Tensor, entropies_N: Tensor | None, candidates_NK: Tensor) -> Tensor:
        entropies_N = torch.zeros_like(logprobs_N) if entropies_N is None else entropies_N
        return (weights * torch.cat([logprobs_N[:, None], entropies_N[:, None], candidates_NK], dim=1)).sum()

    logits = transform.scale * torch.nn.functional.linear(*operands)
    if transform.softcap is not None:
        logits = transform.softcap * torch.tanh(logits / transform.softcap)
    every = torch.log_softmax(logits / transform.temperature, dim=1)
    entropies = -(every.exp() * every).sum(1) if with_entropy else None
    plain = weighted(every.gather(1, draw_ids(NUM_TARGETS)[:, None])[:, 0], entropies, every.gather(1, ids))
    scores = score(operands, transform, chunk, Wanted(entropy=with_entropy, candidate_ids_NK=ids))
    oracle = torch.autograd.grad(plain, operands)
    actual = torch.autograd.grad(weighted(*scores[:3]), operands)
    torch.testing.assert_close(actual, oracle, rtol=1e-10, atol=1e-12)


def test_a_candidate_named_twice_gets_both_gradients() -> None:
    operands = make_operands()
    once, twice = (torch.full((NUM_TARGETS, count), 4) for count in (1, 2))
    found = []
    for ids in (once, twice):
        values = score(operands, TRANSFORMS[0], 4, Wanted(candidate_ids_NK=ids)).candidate_logprobs_NK
        found.append(torch.autograd.grad(values.sum(), operands))
    torch.testing.assert_close(found[1], tuple(2 * gradient for gradient in found[0]), rtol=1e-12, atol=1e-12)


def test_statistics_without_gradient_leave_the_gradient_of_the_others_alone() -> None:
    operands = make_operands()
    scores = score(operands, TRANSFORMS[1], 4, Wanted(top_k=3, collisions=True))
    assert not any(values.requires_grad for values in scores[3:])
    plain = score(operands, TRANSFORMS[1], 4, Wanted())
    actual, expected = (torch.autograd.grad(part.logprobs_N.sum(), operands) for part in (scores, plain))
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_float32_is_within_single_precision_of_float64() -> None:
    wanted = Wanted(entropy=True, candidate_ids_NK=draw_ids(NUM_TARGETS, 3), top_k=3, collisions=True)
    exact, rough = (score(make_operands(dtype), TRANSFORMS[0], 4, wanted) for dtype in (torch.float64, torch.float32))
    assert torch.equal(rough.top_ids_NK, exact.top_ids_NK)
    for actual, expected in zip(rough, exact, strict=True):
        torch.testing.assert_close(actual.double(), expected.double(), rtol=1e-5, atol=1e-6)


def test_certain_and_uniform_distributions_have_the_collisions_1_and_1_over_the_vocabulary() -> None:
    hidden = torch.tensor([[0.0], [1.0]])
    weight = torch.zeros(VOCABULARY, 1).index_fill(0, torch.tensor([3]), 1e4)
    wanted = Wanted(entropy=True, top_k=1, collisions=True)
    settings = {"transform": TRANSFORMS[0], "chunk": 2, "wanted": wanted}
    scores = chunked_logprobs(hidden, weight, None, torch.tensor([3, 3]), **settings)
    assert scores.collisions_N.tolist() == pytest.approx([1 / VOCABULARY, 1.0])
    assert scores.entropies_N.tolist() == pytest.approx([math.log(VOCABULARY), 0.0])
    assert scores.top_ids_NK[1].tolist() == [3]
