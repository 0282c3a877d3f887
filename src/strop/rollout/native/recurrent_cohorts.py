"""Continuous batching without padding: samples of one length share a cache of transformers and move on together.

    waiting --admit--> prefill, one pass for each length --> cohorts --decode: one pass for each cohort--+
                       equal prompts computed once, their   ^   finished samples leave their cohort      |
                       rows of the cache copied             +--------------------------------------------+

A cohort never takes anybody in. Samples that were interrupted come back with lengths of their own, each in a cohort
of its own if need be: slower, and never wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from strop.rollout.native.drawing import draw_tokens
from strop.rollout.native.recurrent import RecurrentNetwork, RowCache
from strop.rollout.native.roster import Roster
from strop.rollout.native.samples import GrowingSample
from strop.rollout.native.stepper import PREFILL_TOKENS, EngineCounters
from strop.rollout.native.stops import Decode


@dataclass(eq=False, slots=True)
class Cohort:
    """Samples whose prompt and own tokens are together equally many; row of the cache = place in the list."""

    samples: list[GrowingSample]
    past: RowCache

    def drop_finished(self) -> None:
        """Closes the gaps that finished samples leave."""
        kept = [row for row, sample in enumerate(self.samples) if sample.finish is None]
        if kept and len(kept) < len(self.samples):
            self.past.select_rows(kept)
        self.samples = [self.samples[row] for row in kept]


@dataclass(eq=False, slots=True)
class Cohorts:
    """Every cohort that runs."""

    running: list[Cohort] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens that caches hold, those of a prompt once a sample."""
        return sum(len(cohort.samples) * cohort.past.num_tokens for cohort in self.running)

    @property
    def num_bytes(self) -> int:
        """The memory that keys, values and states take."""
        return sum(cohort.past.num_bytes for cohort in self.running)

    def release(self) -> None:
        """Gives all memory back."""
        self.running = []

    @torch.inference_mode()
    def drop_finished(self) -> None:
        """Gives up the rows of finished samples, and cohorts that are left without any."""
        for cohort in self.running:
            cohort.drop_finished()
        self.running = [cohort for cohort in self.running if cohort.samples]


@dataclass(slots=True)
class CohortStepper:
    """Moves every running sample on by a token; what `Stepper` is to models with attention in every layer."""

    network: RecurrentNetwork
    roster: Roster
    cohorts: Cohorts
    decode_text: Decode | None
    counters: EngineCounters = field(default_factory=EngineCounters)

    @torch.inference_mode()
    def step(self, version: int) -> None:
        """Prefills what can be admitted and draws first tokens; where nothing can, decodes one token a sample."""
        admitted = self.roster.admit(PREFILL_TOKENS)
        if admitted:
            started = [self._start(samples) for samples in _by_length(admitted)]
            self.cohorts.running.extend(cohort for cohort, _ in started)
        else:
            started = [(cohort, self._advance(cohort)) for cohort in self.cohorts.running]
            self.counters.decode_steps += 1
        samples = [sample for cohort, _ in started for sample in cohort.samples]
        draw_tokens(samples, torch.cat([logits_BV for _, logits_BV in started]), version, self.decode_text)
        self.forget_finished()

    def drop_caches(self) -> None:
        """Sends running samples back to be prefilled: what the cache holds is of other weights."""
        self.roster.requeue()
        self.cohorts.release()

    def reset(self) -> None:
        """Forgets everything: a step that raised may have left cohorts half-made."""
        self.roster.clear()
        self.cohorts.release()

    def forget_finished(self) -> None:
        """Drops the rows of finished samples."""
        self.roster.retire()
        self.cohorts.drop_finished()

    def _start(self, samples: Sequence[GrowingSample]) -> tuple[Cohort, torch.Tensor]:
        """Prefills samples of one length, equal rows once; returns their cohort and [B, V] logits."""
        rows: dict[int, list[int]] = {}
        for sample in samples:
            rows.setdefault(_row_key(sample), [*sample.group.request.prompt_token_ids.tolist(), *sample.token_ids])
        token_ids_UT = torch.tensor(list(rows.values()), device=self.network.device)
        self.counters.prefill_tokens += token_ids_UT.numel()
        logits_UV, past = self.network.advance(token_ids_UT, None)
        row_of_key = {key: row for row, key in enumerate(rows)}
        rows_B = [row_of_key[_row_key(sample)] for sample in samples]
        past.select_rows(rows_B)
        return Cohort(list(samples), past), logits_UV[rows_B]

    def _advance(self, cohort: Cohort) -> torch.Tensor:
        """Feeds each sample's last token; returns [B, V] logits of the next ones."""
        token_ids_B1 = torch.tensor([[sample.token_ids[-1]] for sample in cohort.samples], device=self.network.device)
        logits_BV, cohort.past = self.network.advance(token_ids_B1, cohort.past)
        self.counters.decoded_tokens += len(cohort.samples)
        return logits_BV


def _row_key(sample: GrowingSample) -> int:
    """Samples of a group that have no tokens yet begin with the same row."""
    return id(sample) if sample.token_ids else id(sample.group)


def _by_length(samples: Sequence[GrowingSample]) -> list[list[GrowingSample]]:
    by_length: dict[int, list[GrowingSample]] = {}
    for sample in samples:
        by_length.setdefault(sample.group.prompt_length + len(sample.token_ids), []).append(sample)
    return list(by_length.values())
