"""One sample as a request to vLLM, and what comes back as the sample's tokens.

Each sample is a request of its own, with a seed hashed from its stream and the index of its first token. vLLM's own
`n > 1` takes seed + index, and neighbours would share streams.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, Final

from strop.records import FinishState, SamplingParams, StreamKey
from strop.rollout.native.samples import GrowingSample
from strop.rollout.native.stops import Decode, ends_with_stop

FINISH_STATES: Final = {
    "stop": FinishState.STOPPED,
    "length": FinishState.LENGTH,
    "abort": FinishState.ABORTED,
    "error": FinishState.FAILED,
}
_SEED_BYTES: Final = 7


def stream_seed(stream: StreamKey, first_token_index: int) -> int:
    """Returns a seed of 56 bits: a digest of the stream and of the index of the first token that is drawn with it."""
    fields = [stream.seed, stream.prompt_id, stream.visit, stream.sample_index, stream.purpose, first_token_index]
    digest = hashlib.blake2b(json.dumps(fields).encode(), digest_size=_SEED_BYTES).digest()
    return int.from_bytes(digest, "little")


def sampling_params(sampling: SamplingParams, seed: int, max_tokens: int) -> Any:
    """Returns vLLM's parameters of one sample. Only the request says what ends it, never the model's own config."""
    import vllm
    from vllm.sampling_params import RequestOutputKind

    return vllm.SamplingParams(
        n=1,
        max_tokens=max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=seed,
        logprobs=0,
        stop_token_ids=[] if sampling.ignore_stop else sorted(sampling.stop_token_ids),
        ignore_eos=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
    )


class SampleSink:
    """Adds what vLLM sends to a growing sample, until that is finished."""

    def __init__(self, sample: GrowingSample, decode: Decode | None) -> None:
        self.sample = sample
        self.request_id: str | None = None
        """vLLM's own name of the request, as soon as it is there."""
        self._decode = decode
        self._num_before = len(sample.token_ids)

    def take(self, output: Any) -> None:
        """Adds the new tokens of one of vLLM's outputs, up to a stop string or a log-prob that is no number."""
        new = output.outputs[0]
        for token_id, logprobs in zip(new.token_ids, new.logprobs or [], strict=True):
            if self.sample.finish is None:
                self._append(token_id, logprobs[token_id].logprob)
        if output.finished:
            self._finish(new)

    def _append(self, token_id: int, logprob: float) -> None:
        if not math.isfinite(logprob):
            self.sample.finish = FinishState.FAILED
            self.sample.error = f"vLLM sampled token {token_id} with log-prob {logprob}"
            return
        self.sample.token_ids.append(token_id)
        self.sample.logprobs.append(logprob)
        if self._ends_with_stop_string():
            self.sample.finish = FinishState.STOPPED

    def _ends_with_stop_string(self) -> bool:
        sampling = self.sample.sampling
        if sampling.ignore_stop or not sampling.stop_strings or self._decode is None:
            return False
        return ends_with_stop(self.sample.token_ids, sampling.stop_strings, self._decode)

    def _finish(self, last: Any) -> None:
        if self.sample.finish is None:
            self.sample.finish = FINISH_STATES[last.finish_reason]
            if self.sample.finish is FinishState.FAILED:
                self.sample.error = "vLLM ended the request with an error"
        num_new = len(self.sample.token_ids) - self._num_before
        self.sample.policy_versions.extend(_versions(last.weight_versions or [], num_new))


def _versions(spans: Sequence[Any], num_tokens: int) -> list[int]:
    """Returns the version of each new token from vLLM's spans, which may reach past where the sample was cut."""
    versions = [int(span.version) for span in spans for _ in range(span.start, span.end)]
    if len(versions) < num_tokens:
        raise RuntimeError(f"vLLM must name the weights of {num_tokens} tokens, got {len(versions)}")
    return versions[:num_tokens]
