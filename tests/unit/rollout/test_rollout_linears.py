"""Packed linear layers compute what plain ones do, for any number of rows."""

import pytest
import torch
from torch.nn import functional

from strop.rollout.native.linears import PackedLinear


@pytest.mark.parametrize("rows", [1, 7, 32, 300])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_packed_layer_equals_a_plain_one_before_and_after_a_write(rows: int, has_bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(24, 40, generator=generator) for _ in range(2)]
    bias = torch.nn.Parameter(torch.randn(24, generator=generator)) if has_bias else None
    inputs = torch.randn(1, rows, 40, generator=generator)
    layer = PackedLinear(weights[0], bias)
    with torch.no_grad():
        for weight in weights:
            layer.write(weight)
            assert torch.equal(layer.read(), weight)
            torch.testing.assert_close(layer(inputs), functional.linear(inputs, weight, bias), atol=1e-5, rtol=1e-5)
