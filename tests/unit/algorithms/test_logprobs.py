"""Chunked log-probs equal a plain log-softmax, and never hold the logits of all targets."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from strop.algorithms.head_products import LogitTransform
from strop.algorithms.logprobs import Wanted, chunked_logprobs

NUM_TARGETS, VOCABULARY, HIDDEN = 23, 41, 7

TRANSFORMS = [
    LogitTransform(1.0),
    LogitTransform(0.6),
    LogitTransform(1.3, scale=0.25),
    LogitTransform(0.7, softcap=2.0),
    LogitTransform(1.0, scale=3.0, softcap=5.0),
]


def make_inputs(dtype: torch.dtype = torch.float64, bias: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    generator = torch.Generator().manual_seed(7)
    hidden = torch.randn(NUM_TARGETS, HIDDEN, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    weight = torch.randn(VOCABULARY, HIDDEN, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
    bias_V = (
        torch.randn(VOCABULARY, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() if bias else None
    )
    targets = torch.randint(VOCABULARY, (NUM_TARGETS,), generator=generator)
    return hidden, weight, bias_V, targets


def make_candidates(num_candidates: int) -> Tensor:
    """Ids of which some occur twice in a row."""
    return torch.randint(VOCABULARY, (NUM_TARGETS, num_candidates), generator=torch.Generator().manual_seed(3))


def plain_logprobs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, transform: LogitTransform
) -> tuple[Tensor, Tensor]:
    logits = torch.nn.functional.linear(hidden, weight, bias) * transform.scale
    if transform.softcap is not None:
        logits = transform.softcap * torch.tanh(logits / transform.softcap)
    log_probabilities = torch.log_softmax(logits / transform.temperature, dim=-1)
    entropies = -(log_probabilities.exp() * log_probabilities).sum(-1)
    return log_probabilities.gather(1, targets[:, None]).squeeze(1), entropies


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chunk", [1, 5, 23, 100])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_values_and_gradients_equal_a_plain_log_softmax(transform: LogitTransform, chunk: int, bias: bool) -> None:
    *operands, targets = make_inputs(bias=bias)
    leaves = [operand for operand in operands if operand is not None]
    generator = torch.Generator().manual_seed(1)
    value_weights, entropy_weights = torch.randn(2, NUM_TARGETS, generator=generator, dtype=torch.float64)
    expected, expected_entropies = plain_logprobs(*operands, targets, transform)
    oracle = torch.autograd.grad((value_weights * expected + entropy_weights * expected_entropies).sum(), leaves)

    values, entropies, *_ = chunked_logprobs(
        *operands, targets, transform=transform, chunk=chunk, wanted=Wanted(entropy=True)
    )
    assert entropies is not None
    gradients = torch.autograd.grad((value_weights * values + entropy_weights * entropies).sum(), leaves)

    torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(entropies, expected_entropies, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(gradients, oracle, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_without_entropy_the_gradient_is_the_same(transform: LogitTransform) -> None:
    hidden, weight, bias, targets = make_inputs()
    expected, _ = plain_logprobs(hidden, weight, bias, targets, transform)
    values, *others = chunked_logprobs(hidden, weight, bias, targets, transform=transform, chunk=4)
    assert others == [None] * 5
    leaves = [hidden, weight, bias]
    weights = torch.linspace(-1, 1, NUM_TARGETS, dtype=torch.float64)
    oracle = torch.autograd.grad((weights * expected).sum(), leaves)
    torch.testing.assert_close(torch.autograd.grad((weights * values).sum(), leaves), oracle, rtol=1e-11, atol=1e-12)


def test_gradients_pass_finite_differences() -> None:
    hidden, weight, bias, targets = make_inputs()
    wanted = Wanted(entropy=True, candidate_ids_NK=make_candidates(3))

    def function(*operands: Tensor) -> Any:
        return chunked_logprobs(*operands, targets, transform=LogitTransform(0.8, 1.5, 3.0), chunk=6, wanted=wanted)[:3]

    assert torch.autograd.gradcheck(function, (hidden, weight, bias))


def test_float32_values_stay_close_to_float64_for_large_logits() -> None:
    hidden, weight, bias, targets = make_inputs()
    exact, _ = plain_logprobs(hidden * 30, weight, bias, targets, LogitTransform(1.0))
    values, *_ = chunked_logprobs(
        hidden.float() * 30, weight.float(), bias.float(), targets, transform=LogitTransform(1.0), chunk=8
    )
    assert values.dtype == torch.float32
    torch.testing.assert_close(values.double(), exact, rtol=1e-5, atol=1e-4)


def test_bfloat16_operands_give_float32_values_and_bfloat16_gradients() -> None:
    hidden, weight, bias, targets = make_inputs(torch.bfloat16)
    values, *_ = chunked_logprobs(hidden, weight, bias, targets, transform=LogitTransform(1.0), chunk=8)
    expected, _ = plain_logprobs(hidden.double(), weight.double(), bias.double(), targets, LogitTransform(1.0))
    torch.testing.assert_close(values, expected.float(), rtol=1e-5, atol=1e-5)
    values.sum().backward()
    assert hidden.grad.dtype == weight.grad.dtype == bias.grad.dtype == torch.bfloat16


def test_a_frozen_head_gets_no_gradient() -> None:
    hidden, weight, bias, targets = make_inputs()
    weight.requires_grad_(False)
    bias.requires_grad_(False)
    values, *_ = chunked_logprobs(hidden, weight, bias, targets, transform=LogitTransform(1.0), chunk=8)
    values.sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None
    assert bias.grad is None


def test_no_targets_give_empty_values_and_zero_gradients() -> None:
    hidden, weight, bias, _ = make_inputs()
    wanted = Wanted(entropy=True, candidate_ids_NK=make_candidates(3)[:0], top_k=2, collisions=True)
    empty = torch.empty(0, dtype=torch.int64)
    scores = chunked_logprobs(hidden[:0], weight, bias, empty, transform=LogitTransform(1.0), chunk=8, wanted=wanted)
    assert [list(values.shape) for values in scores] == [[0], [0], [0, 3], [0, 2], [0, 2], [0]]
    sum(values.sum() for values in scores[:3]).backward()
    assert not weight.grad.any()


class LargestTensor(TorchDispatchMode):
    """Records the largest number of elements that any operation returned."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        sizes = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.elements = max([self.elements, *sizes])
        return result


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(),
        Wanted(entropy=True, candidate_ids_NK=torch.zeros(256, 3, dtype=torch.int64), top_k=5, collisions=True),
        Wanted(known_gradient_N=torch.ones(256)),
    ],
)
def test_no_buffer_of_all_targets_times_vocabulary_exists(wanted: Wanted) -> None:
    num_targets, vocabulary, hidden_size, chunk = 256, 512, 4, 8
    hidden = torch.randn(num_targets, hidden_size, requires_grad=True)
    weight = torch.randn(vocabulary, hidden_size, requires_grad=True)
    targets = torch.randint(vocabulary, (num_targets,))
    transform = LogitTransform(1.0)
    with LargestTensor() as largest:
        values, *_ = chunked_logprobs(hidden, weight, None, targets, transform=transform, chunk=chunk, wanted=wanted)
        values.sum().backward()
    assert largest.elements == chunk * vocabulary
    with LargestTensor() as plain:
        plain_logprobs(hidden, weight, None, targets, transform)[0].sum().backward()
    assert plain.elements == num_targets * vocabulary


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_known_gradient_gives_the_same_values_and_gradients(transform: LogitTransform) -> None:
    hidden, weight, bias, targets = make_inputs()
    leaves = [hidden, weight, bias]
    known = torch.linspace(-1, 1, NUM_TARGETS, dtype=torch.float64)
    expected, _ = plain_logprobs(hidden, weight, bias, targets, transform)
    oracle = torch.autograd.grad((known * expected).sum(), leaves)
    values, *_ = chunked_logprobs(
        hidden, weight, bias, targets, transform=transform, chunk=5, wanted=Wanted(known_gradient_N=known)
    )
    torch.testing.assert_close(values, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(torch.autograd.grad((known * values).sum(), leaves), oracle, rtol=1e-11, atol=1e-12)


def test_a_gradient_other_than_the_announced_one_is_refused() -> None:
    hidden, weight, bias, targets = make_inputs()
    known = torch.ones(NUM_TARGETS, dtype=torch.float64)
    values, *_ = chunked_logprobs(
        hidden, weight, bias, targets, transform=LogitTransform(1.0), chunk=5, wanted=Wanted(known_gradient_N=known)
    )
    with pytest.raises(RuntimeError, match="must be the one that was announced"):
        (2 * values).sum().backward()


def test_settings_without_meaning_are_refused() -> None:
    operands = make_inputs()
    with pytest.raises(ValueError, match="temperature must be positive"):
        LogitTransform(0.0)
    with pytest.raises(ValueError, match="softcap must be positive"):
        LogitTransform(1.0, softcap=0.0)
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        chunked_logprobs(*operands, transform=LogitTransform(1.0), chunk=0)


KNOWN = torch.ones(NUM_TARGETS)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (Wanted(entropy=True, known_gradient_N=KNOWN), "nothing beside log-probs must be wanted"),
        (Wanted(candidate_ids_NK=torch.zeros(23, 1, dtype=torch.int64), known_gradient_N=KNOWN), "nothing beside"),
        (Wanted(top_k=VOCABULARY + 1), "from 0 to the 41 tokens of the vocabulary, got 42"),
        (Wanted(top_k=-1), "top_k must be from 0"),
        (Wanted(candidate_ids_NK=torch.zeros(22, 1, dtype=torch.int64)), r"must be \[23, K\].* got \[22, 1\]"),
        (Wanted(candidate_ids_NK=torch.zeros(23, dtype=torch.int64)), r"must be \[23, K\].* got \[23\]"),
    ],
)
def test_what_cannot_be_wanted_is_refused(wanted: Wanted, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chunked_logprobs(*make_inputs(), transform=LogitTransform(1.0), chunk=5, wanted=wanted)
