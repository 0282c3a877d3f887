"""Samples a group for a prompt, each sample from a random stream of its own."""

from collections.abc import Sequence

from strop.protocols import Sampler
from strop.records import Group, GroupRequest, Prompt, Sample, SamplingParams, StreamKey


def stream_keys(prompt: Prompt, num_samples: int, seed: int, purpose: str) -> tuple[StreamKey, ...]:
    """Returns the random streams of a prompt's samples; training and evaluation never share one."""
    return tuple(StreamKey(seed, prompt.prompt_id, prompt.visit, index, purpose) for index in range(num_samples))


async def sample_group(sampler: Sampler, prompt: Prompt, keys: Sequence[StreamKey], sampling: SamplingParams) -> Group:
    """Samples one completion a stream and returns them as a group of single-row samples."""
    completions = await sampler.generate(GroupRequest(prompt.token_ids, tuple(keys), sampling))
    samples = (
        Sample(index, (completion.as_row(prompt.token_ids),), completion.finish, error=completion.error)
        for index, completion in enumerate(completions)
    )
    return Group(prompt, tuple(samples))
