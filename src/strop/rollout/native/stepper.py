"""One step of continuous batching: admit and prefill what fits, else one token for every running sample.

waiting --admit--> prefill (bounded chunk) --> first tokens --+
                                                              v
           running <-- decode: one token each <-- retire finished, close the gaps in the cache
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch

from strop.records import FinishState
from strop.rollout.native.decode import DecodeLayout, Membership
from strop.rollout.native.drawing import draw_tokens
from strop.rollout.native.memory import KvMemory
from strop.rollout.native.network import Network
from strop.rollout.native.prefill import plan_prefill, run_prefill
from strop.rollout.native.roster import Roster
from strop.rollout.native.samples import GrowingSample
from strop.rollout.native.stops import Decode

PREFILL_TOKENS: Final = 2048
"""Tokens computed in one prefill pass: a long queue of prompts is taken in several."""


@dataclass(slots=True)
class EngineCounters:
    """What the engine has computed since it was made."""

    prefill_tokens: int = 0
    """Tokens of prompts and of resumed samples."""
    decode_steps: int = 0
    decoded_tokens: int = 0
    """Tokens fed one by one, summed over the samples of each step."""
    released_bytes: int = 0
    """Memory of caches and packed weights that was given back for others to use."""


@dataclass(slots=True)
class Stepper:
    """Moves every running sample on by a token."""

    network: Network
    roster: Roster
    memory: KvMemory
    decode_text: Decode | None
    counters: EngineCounters = field(default_factory=EngineCounters)
    _members: Membership | None = None

    @torch.inference_mode()
    def step(self, version: int) -> None:
        """Prefills what can be admitted and draws first tokens; where nothing can, decodes one token a sample."""
        admitted = self.roster.admit(PREFILL_TOKENS)
        if admitted:
            self._members = None
            logits_BV = self._prefill(admitted)
            draw_tokens(admitted, logits_BV, version, self.decode_text)
        else:
            draw_tokens(self.roster.running, self._decode(), version, self.decode_text)
        self._retire()

    def drop_caches(self) -> None:
        """Sends running samples back to be prefilled: what the cache holds is of other weights."""
        self.roster.requeue()
        self._members = None

    def reset(self) -> None:
        """Forgets everything: a step that raised may have left rows half-made."""
        self.roster.clear()
        self.memory.release()
        self._members = None

    @torch.inference_mode()
    def forget_finished(self) -> None:
        """Closes the gaps after samples were finished from outside."""
        self._retire()

    def _prefill(self, admitted: Sequence[GrowingSample]) -> torch.Tensor:
        """Returns [B, V] logits of the admitted samples' next tokens."""
        self.memory.reserve(*self.roster.shapes())
        plan = plan_prefill(admitted, self.roster.running, self.roster.groups)
        self.counters.prefill_tokens += len(plan.token_ids)
        logits_by_sample = run_prefill(plan, self.network, self.memory)
        rows = []
        for sample in admitted:
            logits_V = logits_by_sample.get(id(sample), sample.group.first_logits_V)
            assert logits_V is not None, "a prompt's logits are kept until each sample has drawn from them"
            rows.append(logits_V)
        return torch.stack(rows)

    def _decode(self) -> torch.Tensor:
        """Feeds each running sample's last token; returns [B, V] logits of the next ones."""
        running, groups = self.roster.running, self.roster.groups
        self.memory.reserve(*self.roster.shapes())
        device = self.network.device
        if self._members is None:
            self._members = Membership(self.roster.group_rows(), len(groups), device)
        own_lengths = [len(sample.token_ids) for sample in running]
        layout = DecodeLayout(self.memory, self._members, [group.prompt_length for group in groups], own_lengths)
        token_ids_B = torch.tensor([sample.token_ids[-1] for sample in running], device=device)
        places = [sample.group.prompt_length + len(sample.token_ids) - 1 for sample in running]
        hidden_BH = self.network.hidden(token_ids_B, torch.tensor(places, device=device), layout)
        self.counters.decode_steps += 1
        self.counters.decoded_tokens += len(running)
        return self.network.logits(hidden_BH)

    def _retire(self) -> None:
        if not self.roster.has_finished:
            self._release_first_logits()
            return
        has_failed = any(sample.finish is FinishState.FAILED for sample in self.roster.running)
        self._members = None
        prompt_moves, own_moves = self.roster.retire()
        for rectangle, moves in ((self.memory.prefixes, prompt_moves), (self.memory.own, own_moves)):
            if moves.sources:
                rectangle.move(moves.sources, moves.targets)
        if has_failed:
            self.memory.prefixes.clear(len(self.roster.groups))
            self.memory.own.clear(len(self.roster.running))
        self._release_first_logits()

    def _release_first_logits(self) -> None:
        for group in self.roster.groups:
            if group.first_logits_V is not None and all(one.token_ids or one.finish for one in group.samples):
                group.first_logits_V = None
