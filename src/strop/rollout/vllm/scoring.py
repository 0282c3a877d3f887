"""Log-probs of whole sequences: what vLLM says of a prompt, raw, at temperature 1, without reading its cache."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def scoring_params() -> Any:
    """Returns vLLM's parameters for a sequence that is only scored; vLLM draws one token behind it all the same."""
    import vllm
    from vllm.sampling_params import RequestOutputKind

    return vllm.SamplingParams(
        max_tokens=1,
        temperature=0.0,
        prompt_logprobs=0,
        ignore_eos=True,
        detokenize=False,
        skip_reading_prefix_cache=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
    )


def prompt_scores(token_ids: Sequence[int], prompt_logprobs: Sequence[Any]) -> NDArray[np.float32]:
    """Returns the log-probs of tokens 1, 2, ... from vLLM's list: one entry a token, None for the first."""
    if len(prompt_logprobs) != len(token_ids):
        raise RuntimeError(f"vLLM must score {len(token_ids)} tokens, got {len(prompt_logprobs)}")
    pairs = zip(token_ids[1:], prompt_logprobs[1:], strict=True)
    return np.array([entry[token_id].logprob for token_id, entry in pairs], dtype=np.float32)
