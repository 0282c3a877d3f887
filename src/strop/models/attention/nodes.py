"""Turns the segments of a packed batch into the nodes that attention works on."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from strop.records import Segment

TokenRange = tuple[int, int]
"""Start and stop (exclusive) in the flat tensors."""


@dataclass(slots=True)
class Node:
    """A run of tokens that see themselves causally and all tokens of `ancestors`, nothing else."""

    start: int
    stop: int
    subtree_stop: int
    """The descendants are the tokens from `stop` to here."""
    first_ordinal: int
    """How many tokens the ancestors hold together."""
    ancestors: tuple[TokenRange, ...]
    """Ranges of visible tokens in front of the node, in the order of their ordinals; neighbours are merged."""

    @property
    def num_tokens(self) -> int:
        """The length of the node."""
        return self.stop - self.start

    @property
    def last_ordinal(self) -> int:
        """The ordinal of the last token."""
        return self.first_ordinal + self.num_tokens - 1


def build_nodes(segments: Sequence[Segment]) -> tuple[Node, ...]:
    """Returns the non-empty nodes of the tree, in depth-first order.

    A segment whose descendants all belong to one child is joined with that child: a prompt with one completion is one
    causal sequence. Raises ValueError where the segments are not a depth-first tree over contiguous tokens.
    """
    _check_tree(segments)
    nodes: list[Node] = []
    node_of_segment: list[Node] = []
    for segment in segments:
        parent = None if segment.parent is None else node_of_segment[segment.parent]
        if parent is not None and (segment.start, segment.subtree_stop) == (parent.stop, parent.subtree_stop):
            parent.stop = segment.stop
            node_of_segment.append(parent)
            continue
        node = _child(parent, segment)
        nodes.append(node)
        node_of_segment.append(node)
    return tuple(node for node in nodes if node.num_tokens)


def ordinals_of(nodes: Sequence[Node]) -> torch.Tensor:
    """Returns [T] int64, each token's place in its own sequence."""
    parts = [torch.arange(node.first_ordinal, node.last_ordinal + 1) for node in nodes]
    return torch.cat([torch.zeros(0, dtype=torch.int64), *parts])


def _child(parent: Node | None, segment: Segment) -> Node:
    first_ordinal = 0
    ancestors: tuple[TokenRange, ...] = ()
    if parent is not None:
        first_ordinal = parent.first_ordinal + parent.num_tokens
        ancestors = _append(parent.ancestors, (parent.start, parent.stop))
    return Node(segment.start, segment.stop, segment.subtree_stop, first_ordinal, ancestors)


def _append(ranges: tuple[TokenRange, ...], new: TokenRange) -> tuple[TokenRange, ...]:
    if new[0] == new[1]:
        return ranges
    if ranges and ranges[-1][1] == new[0]:
        return (*ranges[:-1], (ranges[-1][0], new[1]))
    return (*ranges, new)


def _check_tree(segments: Sequence[Segment]) -> None:
    subtree_stops = [segment.stop for segment in segments]
    path: list[int] = []
    cursor = 0
    for index, segment in enumerate(segments):
        if segment.start != cursor or segment.stop < segment.start:
            raise ValueError(f"segment {index} must start at token {cursor}, got {segment.start} to {segment.stop}")
        cursor = segment.stop
        while path and path[-1] != segment.parent:
            path.pop()
        if segment.parent is not None and not path:
            raise ValueError(f"segment {index} must follow its parent {segment.parent} in depth-first order")
        path.append(index)
        for ancestor in path:
            subtree_stops[ancestor] = segment.stop
    for index, segment in enumerate(segments):
        if segment.subtree_stop != subtree_stops[index]:
            raise ValueError(
                f"subtree_stop of segment {index} must be {subtree_stops[index]}, got {segment.subtree_stop}"
            )
