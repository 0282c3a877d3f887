"""The probe: a fixed sequence that the policy itself sampled, and the two ways in which a sampler reads it.

(a) the whole sequence scored without any cache
(b) one more token, generated greedily through the cache, behind a prefix that was there before the publication

Scoring a prompt may skip the prefix cache, so that (a) alone is right while rollouts read stale keys and values.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from strop.protocols import RolloutEngine
from strop.records import Completion, FinishState, GroupRequest, SamplingParams, StreamKey
from strop.weight_sync.judgement import Pair

ProbeScorer = Callable[[NDArray[np.int64]], NDArray[np.floating]]
"""The trainer's side: [T] token ids to [T - 1] log-probs of tokens 1, 2, ... at temperature 1."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The probe's tokens: a prompt, and what the policy sampled behind it."""

    prompt_token_ids: NDArray[np.int64]
    sampled: Completion

    @property
    def token_ids(self) -> NDArray[np.int64]:
        """The whole sequence."""
        return np.concatenate([self.prompt_token_ids, self.sampled.token_ids])

    @property
    def num_sampled(self) -> int:
        """N, the tokens whose log-probs are compared: those of the prompt may be far from the policy."""
        return len(self.sampled.token_ids)


@dataclass(frozen=True, slots=True)
class SamplerReading:
    """What one sampler says of the probe."""

    logprobs_N: NDArray[np.float64]
    """Reading (a)."""
    next_token_id: int
    next_logprob: float
    """Reading (b)."""
    next_logprob_uncached: float
    """The sampler's own log-prob of that token without cache: what (b) must be, whatever the weights are."""


@dataclass(frozen=True, slots=True)
class TrainerReading:
    """What the trainer says of the probe, and of the tokens that samplers drew behind it."""

    logprobs_N: NDArray[np.float64]
    next_logprobs: dict[int, float]

    def pairs_with(self, sampler: SamplerReading) -> tuple[Pair, Pair]:
        """Returns readings (a) and (b) of a sampler beside the trainer's."""
        next_logprob = self.next_logprobs[sampler.next_token_id]
        cached = Pair(np.array([sampler.next_logprob]), np.array([next_logprob]))
        return Pair(sampler.logprobs_N, self.logprobs_N), cached


async def sample_probe(engine: RolloutEngine, prompt_token_ids: NDArray[np.int64], num_tokens: int, seed: int) -> Probe:
    """Lets the policy write a probe of at most `num_tokens` tokens behind the start of a prompt.

    The probe is cut where the policy was least sure, in its second half: there the next token's log-prob moves
    with the weights, while that of a certain token stays near 0 whatever happens to them.
    """
    if num_tokens < 2:
        raise ValueError(f"a probe must have at least 2 tokens, got {num_tokens}")
    prompt = prompt_token_ids[: max(1, num_tokens // 2)]
    request = GroupRequest(
        prompt_token_ids=prompt,
        streams=(StreamKey(seed, "weight-sync-probe", 0, 0, "probe"),),
        sampling=SamplingParams(max_new_tokens=num_tokens - len(prompt), ignore_stop=True),
    )
    (sampled,) = await engine.generate(request)
    if len(sampled.token_ids) == 0:
        raise RuntimeError(f"the sampler must write a probe, got none: {sampled.finish}, {sampled.error}")
    return Probe(prompt, _cut(sampled, _least_sure(sampled.logprobs)))


def _least_sure(logprobs: NDArray[np.float32]) -> int:
    """How many tokens to keep: up to the unlikeliest of the second half, at least one."""
    half = len(logprobs) // 2
    return max(1, half + int(np.argmin(logprobs[half:])))


def _cut(sampled: Completion, length: int) -> Completion:
    return Completion(
        token_ids=sampled.token_ids[:length],
        logprobs=sampled.logprobs[:length],
        policy_versions=sampled.policy_versions[:length],
        finish=FinishState.ABORTED,
    )


async def read_sampler(engine: RolloutEngine, probe: Probe) -> SamplerReading:
    """Takes readings (a) and (b) of one sampler."""
    next_token_id, next_logprob = await _draw_next(engine, probe)
    (scored,) = await engine.score([np.append(probe.token_ids, next_token_id)])
    return SamplerReading(_sampled_part(scored[:-1], probe), next_token_id, next_logprob, float(scored[-1]))


async def _draw_next(engine: RolloutEngine, probe: Probe) -> tuple[int, float]:
    """Goes on from the probe as from an aborted completion, by one token."""
    request = GroupRequest(
        prompt_token_ids=probe.prompt_token_ids,
        streams=(StreamKey(0, "weight-sync-probe", 0, 0, "probe"),),
        sampling=SamplingParams(max_new_tokens=probe.num_sampled + 1, temperature=0.0, ignore_stop=True),
        partial=(probe.sampled,),
    )
    (completion,) = await engine.generate(request)
    if len(completion.token_ids) != probe.num_sampled + 1:
        raise RuntimeError(
            f"the sampler must draw one token behind the probe's {probe.num_sampled}, got "
            f"{len(completion.token_ids)} in all: {completion.finish}, {completion.error}"
        )
    return int(completion.token_ids[-1]), float(completion.logprobs[-1])


def read_trainer(score: ProbeScorer, probe: Probe, next_token_ids: Sequence[int]) -> TrainerReading:
    """Takes the trainer's log-probs of the probe and of each token that a sampler drew, one or more."""
    scored = [np.asarray(score(np.append(probe.token_ids, token_id)), np.float64) for token_id in next_token_ids]
    next_logprobs = {token_id: float(one[-1]) for token_id, one in zip(next_token_ids, scored, strict=True)}
    return TrainerReading(_sampled_part(scored[0][:-1], probe), next_logprobs)


def _sampled_part(scored: NDArray[np.floating], probe: Probe) -> NDArray[np.float64]:
    expected = len(probe.token_ids) - 1
    if len(scored) != expected:
        raise ValueError(f"scores of the probe must have {expected} log-probs, got {len(scored)}")
    return np.asarray(scored[-probe.num_sampled :], dtype=np.float64)
