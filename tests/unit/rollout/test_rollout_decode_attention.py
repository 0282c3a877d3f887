"""One decode step's attention against a loop over samples in float64."""

import numpy as np
import pytest
import torch

from strop.models.attention import AttentionCall
from strop.rollout.native.decode import DecodeLayout, Membership
from strop.rollout.native.memory import KvMemory, RectangleShape

HEADS, KEY_HEADS, SIZE = 6, 2, 8


def slow_attention(
    query_HD: torch.Tensor, keys_KSD: torch.Tensor, values_KSD: torch.Tensor, call: AttentionCall
) -> torch.Tensor:
    """Returns [H, D] of the last of S tokens, one head at a time in float64."""
    outputs = []
    for head in range(HEADS):
        kv_head = head // (HEADS // KEY_HEADS)
        keys, values = keys_KSD[kv_head].double(), values_KSD[kv_head].double()
        scores = (keys @ query_HD[head].double()) * call.scaling
        if call.softcap is not None:
            scores = call.softcap * torch.tanh(scores / call.softcap)
        if call.sliding_window is not None:
            scores[: -call.sliding_window] = float("-inf")
        mass = scores.exp()
        total = mass.sum() + (call.sinks[head].double().exp() if call.sinks is not None else 0)
        outputs.append((mass / total) @ values)
    return torch.stack(outputs)


def random_sequence(generator: torch.Generator, length: int) -> torch.Tensor:
    return torch.randn(KEY_HEADS, length, SIZE, generator=generator)


@pytest.mark.parametrize("window", [None, 3, 7, 100])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("has_sinks", [False, True])
def test_a_decode_step_equals_a_loop_over_samples(window: int | None, softcap: float | None, has_sinks: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    prefix_lengths, groups, own_lengths = [5, 2, 9], [0, 2, 0, 1, 0], [1, 4, 8, 2, 5]
    memory = KvMemory(10_000)
    memory.reserve(RectangleShape(3, 9), RectangleShape(5, 8))
    like = torch.zeros(1, KEY_HEADS, 1, SIZE)
    prefix_kv = memory.prefixes.layer(0, like, like)
    own_kv = memory.own.layer(0, like, like)
    prefixes = [[random_sequence(generator, n) for n in prefix_lengths] for _ in range(2)]
    owns = [[random_sequence(generator, n) for n in own_lengths] for _ in range(2)]
    for kind in range(2):
        for row, sequence in enumerate(prefixes[kind]):
            prefix_kv[kind][row, :, : sequence.shape[1]] = sequence
        for row, sequence in enumerate(owns[kind]):
            own_kv[kind][row, :, : sequence.shape[1] - 1] = sequence[:, :-1]
    new_keys, new_values = (torch.stack([one[:, -1] for one in owns[kind]], dim=1)[None] for kind in range(2))
    call = AttentionCall(
        0,
        torch.randn(1, HEADS, 5, SIZE, generator=generator),
        new_keys,
        new_values,
        scaling=0.4,
        sliding_window=window,
        softcap=softcap,
        sinks=torch.randn(HEADS, generator=generator) if has_sinks else None,
    )
    layout = DecodeLayout(memory, Membership(groups, 3, torch.device("cpu")), prefix_lengths, own_lengths)
    output = layout.attend(call)
    for sample, group in enumerate(groups):
        keys, values = (torch.cat([prefixes[kind][group], owns[kind][sample]], dim=1) for kind in range(2))
        expected = slow_attention(call.query[0, :, sample], keys, values, call)
        np.testing.assert_allclose(output[0, sample].numpy(), expected.numpy(), atol=2e-6)
