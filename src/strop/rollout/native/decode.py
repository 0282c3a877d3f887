"""Attention of one decode step: B samples, one new token each, against their group's prompt and their own tokens.

    queries [B, K, R, D] --regroup--> [G, K, n * R, D] x prompt keys [G, K, P, D] --back--> scores [B, K, R, P]
    queries [B, K, R, D]                               x own keys    [B, K, C, D] --------> scores [B, K, R, C]
                                        one softmax over P + C, then the same two products with the values

K key-value heads of R query heads each are never repeated. The number of torch calls a layer does not depend on B or
G; samples are regrouped by index, groups with fewer samples than the largest are padded with row 0 and not read back.
"""

from collections.abc import Sequence

import torch

from strop.models.attention import AttentionCall
from strop.rollout.native.memory import KvMemory


class Membership:
    """Which sample belongs to which group; rebuilt when samples come or go, shared by steps and layers."""

    def __init__(self, group_rows: Sequence[int], num_groups: int, device: torch.device) -> None:
        """`group_rows[b]` is the prefix row of sample b; `num_groups` the prefix rows in use."""
        members: list[list[int]] = [[] for _ in range(num_groups)]
        places = []
        for sample, group in enumerate(group_rows):
            places.append(len(members[group]))
            members[group].append(sample)
        self.num_groups = num_groups
        self.size = max(len(one) for one in members)
        padded = [one + [0] * (self.size - len(one)) for one in members]
        self._members_Gn = torch.tensor(padded, device=device)
        self.groups_B = torch.tensor(list(group_rows), device=device)
        """[B] the prefix row of each sample."""
        self._places_B = torch.tensor(places, device=device)
        self._indices: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def indices(self, num_key_heads: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns [G * K * n] into rows b * K + k, and [B * K] back into rows (g * K + k) * n + place."""
        if num_key_heads not in self._indices:
            heads_K = torch.arange(num_key_heads, device=self.groups_B.device)
            grouped_GKn = self._members_Gn[:, None, :] * num_key_heads + heads_K[:, None]
            heads_BK = self.groups_B[:, None] * num_key_heads + heads_K
            back_BK = heads_BK * self.size + self._places_B[:, None]
            self._indices[num_key_heads] = (grouped_GKn.flatten(), back_BK.flatten())
        return self._indices[num_key_heads]


class DecodeLayout:
    """One step's attention: writes the new keys and values into the cache, then attends to it."""

    def __init__(
        self, memory: KvMemory, members: Membership, prefix_lengths_G: Sequence[int], own_lengths_B: Sequence[int]
    ) -> None:
        """`own_lengths_B` count the new token: it is written at own_lengths_B - 1."""
        device = members.groups_B.device
        self._memory = memory
        self._members = members
        self._max_prefix = max(prefix_lengths_G)
        self._max_own = max(own_lengths_B)
        self._is_padded = min(prefix_lengths_G) < self._max_prefix or min(own_lengths_B) < self._max_own
        self._own_lengths_B = torch.tensor(list(own_lengths_B), device=device)
        self._prefix_lengths_B = torch.tensor(list(prefix_lengths_G), device=device)[members.groups_B]
        self._places: dict[int, torch.Tensor] = {}
        self._biases: dict[tuple[int | None, torch.dtype], torch.Tensor | None] = {}

    def attend(self, call: AttentionCall) -> torch.Tensor:
        """Returns [1, B, H, D]."""
        num_key_heads = call.key.shape[1]
        self._write(call, num_key_heads)
        query_MRD = self._queries(call, num_key_heads)
        keys_p, values_p, keys_o, values_o = self._cached(call, len(query_MRD))
        grouped, back = self._members.indices(num_key_heads)
        scores_p = _per_group(query_MRD, grouped, keys_p.transpose(1, 2), back)
        scores_o = torch.bmm(query_MRD, keys_o.transpose(1, 2))
        weights = self._weights(torch.cat([scores_p, scores_o], dim=-1), call, num_key_heads)
        output = torch.bmm(weights[..., self._max_prefix :], values_o)
        output += _per_group(weights[..., : self._max_prefix], grouped, values_p, back)
        return output.view(1, call.query.shape[2], call.query.shape[1], -1)

    def _write(self, call: AttentionCall, num_key_heads: int) -> None:
        own = self._memory.own
        if num_key_heads not in self._places:
            rows_B = torch.arange(len(self._own_lengths_B), device=self._own_lengths_B.device)
            self._places[num_key_heads] = own.flat_places(rows_B, self._own_lengths_B - 1, num_key_heads)
        own.write(call.layer_index, call.key, call.value, self._places[num_key_heads])

    def _queries(self, call: AttentionCall, num_key_heads: int) -> torch.Tensor:
        """Returns [B * K, R, D], scaled."""
        _, num_samples, head_size = call.query.shape[1:]
        flat = call.query[0].transpose(0, 1).reshape(num_samples * num_key_heads, -1, head_size)
        return flat * call.scaling

    def _cached(self, call: AttentionCall, num_rows: int) -> tuple[torch.Tensor, ...]:
        """Returns keys and values [G * K, P, D] of the prompts, then [B * K, C, D] of the samples: views."""
        num_prefix_rows = self._members.num_groups * call.key.shape[1]
        prefix_kv = self._memory.prefixes.layer(call.layer_index, call.key, call.value)
        own_kv = self._memory.own.layer(call.layer_index, call.key, call.value)
        prefixes = [one.flatten(0, 1)[:num_prefix_rows, : self._max_prefix] for one in prefix_kv]
        own = [one.flatten(0, 1)[:num_rows, : self._max_own] for one in own_kv]
        return (*prefixes, *own)

    def _weights(self, scores_MRS: torch.Tensor, call: AttentionCall, num_key_heads: int) -> torch.Tensor:
        """Returns [B * K, R, P + C] attention weights."""
        if call.softcap is not None:
            scores_MRS = torch.tanh(scores_MRS / call.softcap) * call.softcap
        bias_B1S = self._bias(call.sliding_window, scores_MRS.dtype)
        num_samples, num_keys = len(self._own_lengths_B), scores_MRS.shape[-1]
        if bias_B1S is not None:
            scores_MRS.view(num_samples, -1, num_keys).add_(bias_B1S)
        precision = torch.promote_types(scores_MRS.dtype, torch.float32)
        if call.sinks is None:
            return torch.softmax(scores_MRS, dim=-1, dtype=precision).to(call.value.dtype)
        sinks_KR1 = call.sinks.to(scores_MRS.dtype).view(num_key_heads, -1, 1)
        with_sinks = torch.cat([scores_MRS, sinks_KR1.repeat(num_samples, 1, 1)], dim=-1)
        return torch.softmax(with_sinks, dim=-1, dtype=precision)[..., :-1].to(call.value.dtype)

    def _bias(self, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        """Returns [B, 1, P + C], -inf where a key is padding or outside of the window; None where all are seen."""
        if window is not None and window >= self._max_prefix + self._max_own:
            window = None
        if (window, dtype) not in self._biases:
            self._biases[window, dtype] = self._make_bias(window, dtype)
        return self._biases[window, dtype]

    def _make_bias(self, window: int | None, dtype: torch.dtype) -> torch.Tensor | None:
        if window is None and not self._is_padded:
            return None
        device = self._own_lengths_B.device
        prefix_B1, own_B1 = self._prefix_lengths_B[:, None], self._own_lengths_B[:, None]
        prefix_places_P = torch.arange(self._max_prefix, device=device)
        own_places_C = torch.arange(self._max_own, device=device)
        hidden_BS = torch.cat([prefix_places_P >= prefix_B1, own_places_C >= own_B1], dim=1)
        if window is not None:
            first_seen_B1 = prefix_B1 + own_B1 - window
            outside = [prefix_places_P < first_seen_B1, prefix_B1 + own_places_C < first_seen_B1]
            hidden_BS |= torch.cat(outside, dim=1)
        bias_BS = torch.zeros(hidden_BS.shape, dtype=dtype, device=device)
        return bias_BS.masked_fill_(hidden_BS, float("-inf"))[:, None, :]


def _per_group(
    rows_MRI: torch.Tensor, grouped: torch.Tensor, operand_NIJ: torch.Tensor, back: torch.Tensor
) -> torch.Tensor:
    """Multiplies [B * K, R, I] rows with their group's [G * K, I, J]; returns [B * K, R, J]."""
    num_operands, _, width = operand_NIJ.shape
    num_heads = rows_MRI.shape[1]
    gathered = rows_MRI.index_select(0, grouped).view(num_operands, -1, rows_MRI.shape[2])
    product = torch.bmm(gathered, operand_NIJ)
    return product.view(-1, num_heads, width).index_select(0, back)
