"""Draws one token for each of several samples, and ends the samples that are whole by it."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from strop.records import FinishState
from strop.rollout.native.philox import uniforms
from strop.rollout.native.samples import GrowingSample
from strop.rollout.native.sampling import Draw, SamplingTensors, draw
from strop.rollout.native.stops import Decode, ends_with_stop


def draw_tokens(
    samples: Sequence[GrowingSample], logits_BV: torch.Tensor, version: int, decode_text: Decode | None
) -> None:
    """Draws a token a sample from its own stream and appends it; logits without finite maximum fail their sample.

    `version` is that of the weights behind the logits; `decode_text` is needed where a sample has stop strings.
    """
    settings = SamplingTensors.from_params([sample.sampling for sample in samples], logits_BV.device)
    words_B2 = np.stack([sample.stream_words for sample in samples])
    counters_B = np.array([len(sample.token_ids) for sample in samples])
    uniforms_B = torch.from_numpy(uniforms(words_B2, counters_B)).to(logits_BV.device)
    drawn = draw(logits_BV, settings, uniforms_B)
    for sample, (token_id, logprob, is_invalid) in zip(samples, _rows(drawn), strict=True):
        if is_invalid:
            sample.finish = FinishState.FAILED
            sample.error = f"the logits of token {len(sample.token_ids)} had no finite maximum (NaN or infinity)"
        else:
            _append(sample, token_id, logprob, version)
            sample.finish = _finish(sample, decode_text)


def _append(sample: GrowingSample, token_id: int, logprob: float, version: int) -> None:
    sample.token_ids.append(token_id)
    sample.logprobs.append(logprob)
    sample.policy_versions.append(version)


def _finish(sample: GrowingSample, decode_text: Decode | None) -> FinishState | None:
    """Returns how the sample ends with its last token; None where it goes on."""
    if _is_stopped(sample, decode_text):
        return FinishState.STOPPED
    return FinishState.LENGTH if len(sample.token_ids) >= sample.max_new_tokens else None


def _is_stopped(sample: GrowingSample, decode_text: Decode | None) -> bool:
    sampling = sample.sampling
    if sampling.ignore_stop:
        return False
    if sample.token_ids[-1] in sampling.stop_token_ids:
        return True
    if not sampling.stop_strings:
        return False
    assert decode_text is not None, "requests with stop strings are refused without a decoder"
    return ends_with_stop(sample.token_ids, sampling.stop_strings, decode_text)


def _rows(drawn: Draw) -> Iterator[tuple[int, float, bool]]:
    return zip(drawn.token_ids_B.tolist(), drawn.logprobs_B.tolist(), drawn.invalid_B.tolist(), strict=True)
