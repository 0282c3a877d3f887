"""What the engine knows of a sample and of its group while they are generated."""

import asyncio
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from strop.records import Completion, FinishState, GroupRequest, SamplingParams, StreamKey
from strop.rollout.native.philox import stream_words


@dataclass(eq=False, slots=True)
class GrowingSample:
    """One completion that is being sampled; whole as soon as `finish` is set."""

    group: "GrowingGroup"
    stream_words: NDArray[np.uint32]
    max_new_tokens: int
    """The request's budget, or less where the model's maximum ends it."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    policy_versions: list[int] = field(default_factory=list)
    finish: FinishState | None = None
    error: str | None = None

    @property
    def sampling(self) -> SamplingParams:
        """How its tokens are drawn."""
        return self.group.request.sampling

    def completion(self) -> Completion:
        """Returns the tokens so far; a sample that is not finished counts as aborted."""
        return Completion(
            np.array(self.token_ids, dtype=np.int64),
            np.array(self.logprobs, dtype=np.float32),
            np.array(self.policy_versions, dtype=np.int64),
            self.finish or FinishState.ABORTED,
            self.error,
        )


@dataclass(eq=False, slots=True)
class GrowingGroup:
    """A request in the engine."""

    request: GroupRequest
    samples: list[GrowingSample] = field(default_factory=list)
    is_cached: bool = False
    """Whether the prompt's keys and values are in the cache."""
    first_logits_V: torch.Tensor | None = None
    """Logits behind the prompt, kept until each sample has drawn its first token from them."""
    done: asyncio.Future[None] | None = None
    """Resolved when the last sample finishes; belongs to the one `generate` call that waits for it."""

    @classmethod
    def from_request(cls, request: GroupRequest, max_length: int) -> "GrowingGroup":
        """Takes over a request; samples that are whole already (resumed beside an aborted one) come out unchanged."""
        group = cls(request)
        partials = request.partial or (None,) * len(request.streams)
        room = max_length - len(request.prompt_token_ids)
        budgets = request.budgets or (request.sampling.max_new_tokens,) * len(request.streams)
        for stream, partial, budget in zip(request.streams, partials, budgets, strict=True):
            group.samples.append(_growing(group, stream, partial, min(budget, room)))
        return group

    @property
    def prompt_length(self) -> int:
        """P, the tokens of the prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def is_finished(self) -> bool:
        """Whether each sample is."""
        return all(sample.finish is not None for sample in self.samples)


def _growing(group: GrowingGroup, stream: StreamKey, partial: Completion | None, budget: int) -> GrowingSample:
    sample = GrowingSample(group, stream_words(stream), budget)
    if partial is None:
        return sample
    sample.token_ids = partial.token_ids.tolist()
    sample.logprobs = partial.logprobs.tolist()
    sample.policy_versions = partial.policy_versions.tolist()
    sample.error = partial.error
    if partial.finish is not FinishState.ABORTED:
        sample.finish = partial.finish
    elif len(sample.token_ids) >= budget:
        sample.finish = FinishState.LENGTH
    return sample
