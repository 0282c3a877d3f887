"""Tree attention in plain differentiable torch operations: any device, any dtype, every option of a call.

Each node's queries attend to the keys of its ancestors and its own in one dense product. This is what runs where no
faster way is known to be exact, and what the faster ways are tested against.
"""

from collections.abc import Callable, Sequence

import torch

from strop.models.attention.interface import AttentionCall
from strop.models.attention.nodes import Node, TokenRange

MaskOf = Callable[[Node, int], torch.Tensor]
"""(node, number of visible ancestor tokens) -> [Q, S] bool, true where the key is hidden from the query."""


def attend_portable(call: AttentionCall, nodes: Sequence[Node], hidden_mask: MaskOf) -> torch.Tensor:
    """Returns [1, T, H, D] for queries, keys and values laid out as `nodes`."""
    outputs = []
    for node in nodes:
        ranges = visible_ranges(node, call.sliding_window)
        keys = _gather(call.key[0], [*ranges, (node.start, node.stop)])
        values = _gather(call.value[0], [*ranges, (node.start, node.stop)])
        num_before = keys.shape[1] - node.num_tokens
        query = call.query[0, :, node.start : node.stop]
        outputs.append(_attend_dense(query, keys, values, hidden_mask(node, num_before), call))
    return torch.cat(outputs, dim=1).transpose(0, 1).unsqueeze(0)


def visible_ranges(node: Node, sliding_window: int | None) -> list[TokenRange]:
    """Returns the ranges of ancestor tokens that at least one token of the node sees."""
    if sliding_window is None:
        return list(node.ancestors)
    num_hidden = max(0, node.first_ordinal - sliding_window + 1)
    ranges = []
    for start, stop in node.ancestors:
        skipped = min(num_hidden, stop - start)
        num_hidden -= skipped
        if start + skipped < stop:
            ranges.append((start + skipped, stop))
    return ranges


def make_hidden_mask(node: Node, num_before: int, sliding_window: int | None, device: torch.device) -> torch.Tensor:
    """Returns [Q, S] bool, true where a key comes after the query or lies outside of its window.

    The keys are the last `num_before` ancestor tokens, then the node's own.
    """
    key_places_S = torch.arange(-num_before, node.num_tokens, device=device)
    query_places_Q = torch.arange(node.num_tokens, device=device)
    distance_QS = query_places_Q[:, None] - key_places_S[None, :]
    hidden_QS = distance_QS < 0
    if sliding_window is not None:
        hidden_QS |= distance_QS >= sliding_window
    return hidden_QS


def _gather(tensor: torch.Tensor, ranges: Sequence[TokenRange]) -> torch.Tensor:
    """Returns the tokens of [K, T, D] in the ranges, without a copy where they are one range."""
    if len(ranges) == 1 or (len(ranges) == 2 and ranges[0][1] == ranges[1][0]):
        return tensor[:, ranges[0][0] : ranges[-1][1]]
    return torch.cat([tensor[:, start:stop] for start, stop in ranges], dim=1)


def _attend_dense(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, hidden_QS: torch.Tensor, call: AttentionCall
) -> torch.Tensor:
    """Returns [H, Q, D]; the query heads of one key head are folded into its query length."""
    num_heads, num_queries, head_size = query.shape
    num_key_heads = keys.shape[0]
    folded = query.reshape(num_key_heads, -1, head_size)
    scores = (folded @ keys.transpose(1, 2)) * call.scaling
    scores = scores.view(num_heads, num_queries, -1)
    if call.softcap is not None:
        scores = call.softcap * torch.tanh(scores / call.softcap)
    scores = scores.masked_fill(hidden_QS, float("-inf"))
    weights = _softmax(scores, call.sinks).to(values.dtype)
    output = weights.view(num_key_heads, -1, keys.shape[1]) @ values
    return output.view(num_heads, num_queries, -1)


def _softmax(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Normalises [H, Q, S] over S in at least float32; a sink takes a share and is dropped."""
    precision = torch.promote_types(scores.dtype, torch.float32)
    if sinks is None:
        return torch.softmax(scores, dim=-1, dtype=precision)
    sink_column = sinks.to(scores.dtype).view(-1, 1, 1).expand(-1, scores.shape[1], 1)
    return torch.softmax(torch.cat([scores, sink_column], dim=-1), dim=-1, dtype=precision)[..., :-1]
