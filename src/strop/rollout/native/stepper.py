"""One step of continuous batching: admit and prefill what fits, else one token for every running sample.

waiting --admit--> prefill (bounded chunk) --> first tokens --+
                                                              v
           running <-- decode: one token each <-- retire finished, close the gaps in the cache
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch

from strop.records import FinishState
from strop.rollout.native.decode import DecodeLayout, Membership
from strop.rollout.native.memory import KvMemory
from strop.rollout.native.network import Network
from strop.rollout.native.philox import uniforms
from strop.rollout.native.prefill import plan_prefill, run_prefill
from strop.rollout.native.roster import Roster
from strop.rollout.native.samples import GrowingSample
from strop.rollout.native.sampling import Draw, SamplingTensors, draw
from strop.rollout.native.stops import Decode, ends_with_stop

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
            self._draw(admitted, logits_BV, version)
        else:
            self._draw(self.roster.running, self._decode(), version)
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

    def _draw(self, samples: Sequence[GrowingSample], logits_BV: torch.Tensor, version: int) -> None:
        """Draws a token a sample and ends those that are whole."""
        settings = SamplingTensors.from_params([sample.sampling for sample in samples], logits_BV.device)
        words_B2 = np.stack([sample.stream_words for sample in samples])
        counters_B = np.array([len(sample.token_ids) for sample in samples])
        uniforms_B = torch.from_numpy(uniforms(words_B2, counters_B)).to(logits_BV.device)
        drawn = draw(logits_BV, settings, uniforms_B)
        for sample, result in zip(samples, _rows(drawn), strict=True):
            self._append(sample, *result, version)

    def _append(self, sample: GrowingSample, token_id: int, logprob: float, is_invalid: bool, version: int) -> None:
        if is_invalid:
            sample.finish = FinishState.FAILED
            sample.error = f"the logits of token {len(sample.token_ids)} had no finite maximum (NaN or infinity)"
            return
        sample.token_ids.append(token_id)
        sample.logprobs.append(logprob)
        sample.policy_versions.append(version)
        if self._is_stopped(sample):
            sample.finish = FinishState.STOPPED
        elif len(sample.token_ids) >= sample.max_new_tokens:
            sample.finish = FinishState.LENGTH

    def _is_stopped(self, sample: GrowingSample) -> bool:
        sampling = sample.sampling
        if sampling.ignore_stop:
            return False
        if sample.token_ids[-1] in sampling.stop_token_ids:
            return True
        if not sampling.stop_strings:
            return False
        assert self.decode_text is not None, "requests with stop strings are refused without a decoder"
        return ends_with_stop(sample.token_ids, sampling.stop_strings, self.decode_text)

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


def _rows(drawn: Draw) -> Iterator[tuple[int, float, bool]]:
    return zip(drawn.token_ids_B.tolist(), drawn.logprobs_B.tolist(), drawn.invalid_B.tolist(), strict=True)
