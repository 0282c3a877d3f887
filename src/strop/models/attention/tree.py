"""The layout of training and scoring: a tree of segments, in which what rows share is computed once.

    prompt    [p0 p1 p2 p3]
    sample A               [a0 a1 a2]
    sample B                         [b0 b1]

a1 sees p0..p3, a0, a1; b0 sees p0..p3, b0. Positions are never read here: who sees whom follows from the tree, and a
sliding window from the ordinals, the place of a token in its own sequence.
"""

from collections.abc import Sequence

import torch

from strop.models.attention.flash_cpu import attend_flash, flash_can_attend
from strop.models.attention.flash_plan import FlashPlan, make_flash_plan
from strop.models.attention.interface import AttentionCall
from strop.models.attention.nodes import Node, build_nodes, ordinals_of
from strop.models.attention.portable import attend_portable, make_hidden_mask
from strop.records import PackedBatch, Segment


class TreeLayout:
    """Attention over a packed batch; built once a micro-batch and shared by all layers."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        """Takes segments in depth-first order, which must cover the tokens without gaps."""
        self.nodes: tuple[Node, ...] = build_nodes(segments)
        self.num_tokens = segments[-1].stop if segments else 0
        self.longest_sequence = max((node.last_ordinal + 1 for node in self.nodes), default=0)
        self._flash_plans: dict[tuple[int | None, torch.dtype], FlashPlan] = {}
        self._masks: dict[tuple[int, int, int | None, torch.device], torch.Tensor] = {}

    @classmethod
    def from_batch(cls, batch: PackedBatch) -> "TreeLayout":
        """Builds the layout of a batch; raises ValueError where its ordinals contradict its segments."""
        layout = cls(batch.segments)
        if layout.num_tokens != batch.num_tokens:
            raise ValueError(f"segments must cover {batch.num_tokens} tokens, got {layout.num_tokens}")
        if not torch.equal(batch.ordinals_T.cpu(), layout.ordinals()):
            raise ValueError("ordinals_T must count each token's place on its path from the root, got other numbers")
        return layout

    @classmethod
    def from_lengths(cls, lengths: Sequence[int]) -> "TreeLayout":
        """Builds the layout of independent sequences that lie one behind the other."""
        segments = []
        start = 0
        for length in lengths:
            segments.append(Segment(start=start, stop=start + length, parent=None, subtree_stop=start + length))
            start += length
        return cls(segments)

    def ordinals(self) -> torch.Tensor:
        """Returns [T] int64, each token's place in its own sequence."""
        return ordinals_of(self.nodes)

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Returns [1, T, H, D]; differentiable in query, key, value and sinks."""
        if call.query.shape[0] != 1 or call.query.shape[2] != self.num_tokens:
            batch_size, _, num_tokens, _ = call.query.shape
            raise ValueError(
                f"the layout must see one flat row of {self.num_tokens} tokens, got {batch_size} rows of {num_tokens}"
            )
        if call.key.shape[2] != self.num_tokens:
            raise ValueError(
                f"the layout needs the keys of its own {self.num_tokens} tokens only, got {call.key.shape[2]}: "
                "call the model with use_cache=False"
            )
        if flash_can_attend(call):
            return attend_flash(call, self._plan(self._binding_window(call.sliding_window), call.query.dtype))
        return self.attend_portably(call)

    def attend_portably(self, call: AttentionCall) -> torch.Tensor:
        """Returns what `attend` returns, in plain torch operations: slower, for every device and option."""
        return attend_portable(call, self.nodes, lambda node, n: self._mask(node, n, call))

    def _plan(self, sliding_window: int | None, dtype: torch.dtype) -> FlashPlan:
        key = (sliding_window, dtype)
        if key not in self._flash_plans:
            self._flash_plans[key] = make_flash_plan(self.nodes, sliding_window, dtype)
        return self._flash_plans[key]

    def _mask(self, node: Node, num_before: int, call: AttentionCall) -> torch.Tensor:
        window = self._binding_window(call.sliding_window)
        key = (node.start, num_before, window, call.query.device)
        if key not in self._masks:
            # A mask made while scoring must serve training too, which saves it for the backward pass.
            with torch.inference_mode(False):
                self._masks[key] = make_hidden_mask(node, num_before, window, call.query.device)
        return self._masks[key]

    def _binding_window(self, sliding_window: int | None) -> int | None:
        """Returns None for a window that hides nothing from any token of this layout."""
        if sliding_window is None or sliding_window >= self.longest_sequence:
            return None
        return sliding_window
