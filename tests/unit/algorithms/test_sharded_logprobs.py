"""Log-probs from shards of the vocabulary equal those from the whole of it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from strop.algorithms.sharded_logprobs import sharded_logprobs

NUM_TARGETS, VOCABULARY = 5, 12


class AlongTheFirstDimension:
    """All shards in one tensor [R, N, W]."""

    def largest(self, part: Tensor) -> Tensor:
        return part.amax(dim=0, keepdim=True)

    def total(self, part: Tensor) -> Tensor:
        return part.sum(dim=0, keepdim=True)


def from_shards(logits_NV: Tensor, ids_NK: Tensor, num_shards: int) -> Tensor:
    """Cuts the vocabulary in as many equal shards, the last padded with -inf, and scores as they would together."""
    width = -(-logits_NV.shape[1] // num_shards)
    padding = num_shards * width - logits_NV.shape[1]
    padded = torch.nn.functional.pad(logits_NV, (0, padding), value=-torch.inf)
    shards_RNW = padded.reshape(len(padded), num_shards, width).movedim(1, 0)
    first_ids = (torch.arange(num_shards) * width)[:, None, None]
    return sharded_logprobs(shards_RNW, ids_NK, first_ids, AlongTheFirstDimension())[0]


def make_inputs(num_ids: int, vocabulary: int = VOCABULARY, scale: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, ids and the gradient of each log-prob."""
    generator = torch.Generator().manual_seed(17)
    logits = scale * torch.randn(NUM_TARGETS, vocabulary, generator=generator, dtype=torch.float64)
    ids = torch.randint(vocabulary, (NUM_TARGETS, num_ids), generator=generator)
    grads = torch.randn(NUM_TARGETS, num_ids, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), ids, grads


@pytest.mark.parametrize("vocabulary", [VOCABULARY, 11])
@pytest.mark.parametrize("num_ids", [1, 3, 30])
@pytest.mark.parametrize("num_shards", [1, 2, 4])
def test_values_and_gradients_equal_those_of_the_whole(num_shards: int, num_ids: int, vocabulary: int) -> None:
    logits, ids, grads = make_inputs(num_ids, vocabulary)
    expected = torch.log_softmax(logits, dim=1).gather(1, ids)
    actual = from_shards(logits, ids, num_shards)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    oracle, found = (torch.autograd.grad(values, logits, grads)[0] for values in (expected, actual))
    torch.testing.assert_close(found, oracle, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("num_shards", [1, 2, 4])
def test_gradients_pass_finite_differences(num_shards: int) -> None:
    logits, ids, _ = make_inputs(3)

    def function(logits_NV: Tensor) -> Any:
        return from_shards(logits_NV, ids, num_shards)

    assert torch.autograd.gradcheck(function, (logits,))


@pytest.mark.parametrize("num_shards", [2, 4])
def test_large_logits_in_one_shard_overflow_nowhere(num_shards: int) -> None:
    logits, ids, _ = make_inputs(3, scale=500.0)
    actual = from_shards(logits.detach().float() + 1e4, ids, num_shards)
    expected = torch.log_softmax(logits.detach().float().double() + 1e4, dim=1).gather(1, ids)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual.double(), expected, rtol=1e-5, atol=2e-3)


def test_bfloat16_logits_give_float32_log_probs_and_bfloat16_gradients() -> None:
    logits, ids, _ = make_inputs(3)
    shard = logits.detach().bfloat16().requires_grad_()
    values = from_shards(shard, ids, 2)
    expected = torch.log_softmax(shard.detach().double(), dim=1).gather(1, ids)
    torch.testing.assert_close(values.double(), expected, rtol=1e-5, atol=1e-6)
    values.sum().backward()
    assert values.dtype == torch.float32
    assert shard.grad.dtype == torch.bfloat16


def test_no_targets_give_no_log_probs_and_no_gradient() -> None:
    logits, ids, _ = make_inputs(3)
    values = from_shards(logits[:0], ids[:0], 4)
    values.sum().backward()
    assert values.shape == (0, 3)
    assert not logits.grad.any()


def test_an_id_that_no_shard_holds_has_probability_0_and_no_gradient() -> None:
    logits, _, _ = make_inputs(1)
    ids = torch.tensor([[3, VOCABULARY]]).expand(NUM_TARGETS, 2)
    values = from_shards(logits, ids, 4)
    assert values[:, 1].tolist() == [-torch.inf] * NUM_TARGETS
    values[:, 0].sum().backward()
    torch.testing.assert_close(logits.grad.sum(dim=1), torch.zeros(NUM_TARGETS, dtype=torch.float64))
