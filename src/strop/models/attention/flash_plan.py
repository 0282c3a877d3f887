"""How a tree is cut into rectangles of queries and keys, each one call of an attention kernel.

Descendants of a node lie right behind it, so what the tokens of a tree see is a sum of rectangles:

    every node            causal, node x node                  neighbours of one length run as one batch
    every inner node      full, its descendants x node

A sliding window that hides something within a rectangle becomes a mask over it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch

from strop.models.attention.nodes import Node, ordinals_of

SHORT_TOKENS: Final = 16
"""Nodes up to this length are batched together whatever their lengths: calls cost more than padding."""
MIN_FILL: Final = 0.75
"""Longer nodes are batched when the shortest has at least this share of the longest one's tokens."""
GATHERED_TOKENS: Final = 32
"""Nodes longer than this are batched only where they lie side by side: copying them costs more than a call."""


@dataclass(frozen=True, slots=True)
class Gather:
    """How nodes of several lengths or places are brought together, N nodes of L tokens each with padding."""

    taken_NL: torch.Tensor
    """[N * L] flat token index, the node's last token where padded."""
    padding_NL: torch.Tensor
    """[N, L] bool, true where padded."""
    real_R: torch.Tensor
    """[R] places in N * L that are not padded."""
    tokens_R: torch.Tensor
    """[R] the flat token index of each."""


@dataclass(frozen=True, slots=True)
class CausalBatch:
    """Nodes that attend to themselves in one call, at a common length."""

    start: int
    num_nodes: int
    length: int
    gather: Gather | None
    """None where the nodes lie side by side from `start` and have one length: views do."""
    mask_LL: torch.Tensor | None
    """[L, L] 0 where seen, -inf where hidden; None where plain causal order says all."""


@dataclass(frozen=True, slots=True)
class InnerRectangle:
    """The descendants of a node as queries, at `stop` to `subtree_stop`, and its tokens as keys."""

    start: int
    """The first key that any descendant sees."""
    stop: int
    subtree_stop: int
    mask_QS: torch.Tensor | None = None
    """[Q, S] 0 where seen, -inf where hidden; None where every query sees every key."""
    blind_Q: torch.Tensor | None = None
    """[Q] bool, true where a query sees none of the keys; given with the mask."""


@dataclass(frozen=True, slots=True)
class FlashPlan:
    """The rectangles of one tree."""

    causal: tuple[CausalBatch, ...]
    inner: tuple[InnerRectangle, ...]


def make_flash_plan(
    nodes: Sequence[Node], sliding_window: int | None = None, mask_dtype: torch.dtype = torch.float32
) -> FlashPlan:
    """Returns the rectangles that cover what every token of the tree sees, each pair once."""
    short = sorted((node for node in nodes if node.num_tokens <= GATHERED_TOKENS), key=lambda node: node.num_tokens)
    long = [node for node in nodes if node.num_tokens > GATHERED_TOKENS]
    batches = [*_split(short, _of_similar_length), *_split(long, _side_by_side)]
    causal = tuple(_causal_batch(batch, sliding_window, mask_dtype) for batch in batches)
    return FlashPlan(causal, tuple(_inner_rectangles(nodes, sliding_window, mask_dtype)))


def _inner_rectangles(
    nodes: Sequence[Node], sliding_window: int | None, mask_dtype: torch.dtype
) -> Iterator[InnerRectangle]:
    ordinals_T = ordinals_of(nodes)
    for node in nodes:
        below_Q = ordinals_T[node.stop : node.subtree_stop]
        if not len(below_Q):
            continue
        if sliding_window is None or int(below_Q.max()) - node.first_ordinal < sliding_window:
            yield InnerRectangle(node.start, node.stop, node.subtree_stop)
            continue
        start = max(node.start, node.stop - sliding_window + 1)
        hidden_QS = below_Q[:, None] - ordinals_T[start : node.stop] >= sliding_window
        if start < node.stop:
            yield InnerRectangle(
                start, node.stop, node.subtree_stop, _mask(hidden_QS, mask_dtype), hidden_QS.all(dim=1)
            )


def _split(nodes: Sequence[Node], fits: Callable[[list[Node], Node], bool]) -> list[list[Node]]:
    """Cuts a list wherever a node does not fit to those before it."""
    batches: list[list[Node]] = []
    for node in nodes:
        if batches and fits(batches[-1], node):
            batches[-1].append(node)
        else:
            batches.append([node])
    return batches


def _of_similar_length(batch: list[Node], node: Node) -> bool:
    return node.num_tokens <= max(SHORT_TOKENS, int(batch[0].num_tokens / MIN_FILL))


def _side_by_side(batch: list[Node], node: Node) -> bool:
    return batch[-1].stop == node.start and batch[-1].num_tokens == node.num_tokens


def _causal_batch(nodes: list[Node], sliding_window: int | None, mask_dtype: torch.dtype) -> CausalBatch:
    start, length = nodes[0].start, nodes[-1].num_tokens
    is_view = all(_side_by_side([before], node) for before, node in pairwise(nodes))
    mask_LL = None
    if sliding_window is not None and length > sliding_window:
        distance_LL = torch.arange(length)[:, None] - torch.arange(length)
        mask_LL = _mask((distance_LL < 0) | (distance_LL >= sliding_window), mask_dtype)
    return CausalBatch(start, len(nodes), length, None if is_view else _gather(nodes, length), mask_LL)


def _mask(hidden: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, float("-inf"))


def _gather(nodes: list[Node], length: int) -> Gather:
    starts_N = torch.tensor([node.start for node in nodes])
    lengths_N = torch.tensor([node.num_tokens for node in nodes])
    places_L = torch.arange(length)
    taken_NL = starts_N[:, None] + torch.minimum(places_L, lengths_N[:, None] - 1)
    padding_NL = places_L >= lengths_N[:, None]
    real_R = (~padding_NL).flatten().nonzero().flatten()
    return Gather(taken_NL.flatten(), padding_NL, real_R, taken_NL.flatten()[real_R])
