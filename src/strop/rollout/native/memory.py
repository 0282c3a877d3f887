"""The KV cache: two rectangles a layer, one row a group for prompts and one row a sample for its own tokens.

    prefixes  [G, K, P, D]   the prompt, once a group however many samples it has
    own       [B, K, C, D]   what each sample has generated

Rows are kept compact (the first `num_groups` and `num_samples` are in use), so that decoding reads plain views.
Both rectangles grow by doubling while that stays under the bound, and exactly beyond.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch

MIN_LENGTH: Final = 64
MIN_ROWS: Final = 4


@dataclass(frozen=True, slots=True)
class RectangleShape:
    """Rows times tokens a row."""

    rows: int
    length: int

    @property
    def num_tokens(self) -> int:
        """The tokens that fit."""
        return self.rows * self.length


class KvRectangle:
    """Keys and values of every layer in [rows, K, length, D]; layers allocate when they are first written."""

    def __init__(self) -> None:
        self.shape = RectangleShape(0, 0)
        self._layers: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def layer(self, index: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values of a layer; `key` and `value` [1, K, T, D] say heads, size and dtype."""
        if index not in self._layers:
            self._layers[index] = (self._zeros(key), self._zeros(value))
        return self._layers[index]

    def reshape(self, shape: RectangleShape) -> None:
        """Changes the shape and keeps what fits; the new places are 0."""
        if shape == self.shape:
            return
        self.shape = shape
        for index, (keys, values) in self._layers.items():
            self._layers[index] = (self._resized(keys), self._resized(values))

    def write(self, index: int, key: torch.Tensor, value: torch.Tensor, places: torch.Tensor) -> None:
        """Writes [1, K, T, D] to `places` [T * K], as made by `flat_places`."""
        keys, values = self.layer(index, key, value)
        keys.view(-1, keys.shape[-1]).index_copy_(0, places, _token_rows(key))
        values.view(-1, values.shape[-1]).index_copy_(0, places, _token_rows(value))

    def flat_places(self, rows_T: torch.Tensor, positions_T: torch.Tensor, num_key_heads: int) -> torch.Tensor:
        """Returns [T * K], where token t's head k lies in the flat view of a layer."""
        heads_K = torch.arange(num_key_heads, device=rows_T.device)
        return ((rows_T[:, None] * num_key_heads + heads_K) * self.shape.length + positions_T[:, None]).flatten()

    def move(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copies rows over others."""
        for tensor in self._tensors():
            tensor[list(targets)] = tensor[list(sources)]

    def clear(self, first_row: int) -> None:
        """Sets a row and all behind it to 0: what is masked must be finite, and a failed sample leaves NaN behind."""
        for tensor in self._tensors():
            tensor[first_row:] = 0

    @property
    def num_bytes(self) -> int:
        """The memory that keys and values of all layers take."""
        return sum(tensor.nbytes for tensor in self._tensors())

    def release(self) -> None:
        """Gives all memory back."""
        self.shape = RectangleShape(0, 0)
        self._layers = {}

    def _tensors(self) -> list[torch.Tensor]:
        return [tensor for pair in self._layers.values() for tensor in pair]

    def _zeros(self, like: torch.Tensor) -> torch.Tensor:
        return like.new_zeros(self.shape.rows, like.shape[1], self.shape.length, like.shape[3])

    def _resized(self, old: torch.Tensor) -> torch.Tensor:
        new = old.new_zeros(self.shape.rows, old.shape[1], self.shape.length, old.shape[3])
        rows, length = min(old.shape[0], new.shape[0]), min(old.shape[2], new.shape[2])
        new[:rows, :, :length] = old[:rows, :, :length]
        return new


class KvMemory:
    """Both rectangles under one bound on their tokens."""

    def __init__(self, max_tokens: int) -> None:
        """`max_tokens` bounds rows times length, summed over both rectangles."""
        self.max_tokens = max_tokens
        self.prefixes = KvRectangle()
        self.own = KvRectangle()

    @property
    def num_tokens(self) -> int:
        """The tokens that memory is held for."""
        return self.prefixes.shape.num_tokens + self.own.shape.num_tokens

    @property
    def num_bytes(self) -> int:
        """The memory that both rectangles take."""
        return self.prefixes.num_bytes + self.own.num_bytes

    def reserve(self, prefixes: RectangleShape, own: RectangleShape) -> None:
        """Makes room for what is needed now; the caller has made sure that the sum is within the bound."""
        roomy_prefixes, roomy_own = _roomy(self.prefixes.shape, prefixes), _roomy(self.own.shape, own)
        if roomy_prefixes.num_tokens + roomy_own.num_tokens > self.max_tokens:
            left = (self.max_tokens - prefixes.num_tokens) // own.rows
            roomy_prefixes, roomy_own = prefixes, RectangleShape(own.rows, max(own.length, min(roomy_own.length, left)))
        self.prefixes.reshape(roomy_prefixes)
        self.own.reshape(roomy_own)

    def release(self) -> None:
        """Gives all memory back."""
        self.prefixes.release()
        self.own.release()


def _roomy(held: RectangleShape, needed: RectangleShape) -> RectangleShape:
    return RectangleShape(
        _grown(held.rows, needed.rows, MIN_ROWS),
        _grown(held.length, needed.length, MIN_LENGTH),
    )


def _grown(held: int, needed: int, minimum: int) -> int:
    """Returns what is held where that is enough, else a doubling; an exact shape is followed by an exact one."""
    if needed <= held:
        return held
    return max(needed, 2 * held, minimum)


def _token_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Turns [1, K, T, D] into [T * K, D]."""
    return tensor[0].transpose(0, 1).reshape(-1, tensor.shape[-1])
