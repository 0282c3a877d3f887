"""The checksum by which sender and receiver of a weight compare what they hold."""

import torch

_BLOCK = 1 << 15
"""Elements taken to float64 at once: they stay in the processor's cache, there is no second full copy, and torch
splits no work of this size between threads, which stalls where others use the cores."""

RELATIVE_TOLERANCE = 1e-9
"""Two float64 sums of the same numbers in another order differ by less."""


@torch.no_grad()
def weight_checksum(tensor: torch.Tensor) -> float:
    """Returns the float64 sum of absolute values of a tensor, as `records.WeightReceipt` carries it."""
    blocks = torch.split(tensor.detach().reshape(-1), _BLOCK)
    return sum(float(block.abs().double().sum()) for block in blocks)


def checksums_agree(sent: float, received: float) -> bool:
    """Whether two checksums can be of the same numbers; a NaN agrees with nothing."""
    return abs(sent - received) <= RELATIVE_TOLERANCE * max(abs(sent), abs(received))
