"""Samples a group for a prompt, each sample from a random stream of its own, and has it judged."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from strop.protocols import Sampler
from strop.records import Group, GroupRequest, Prompt, Sample, SamplingParams, StreamKey
from strop.trainers.roles import Roles, StepSettings


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


async def sample_for_training(roles: Roles, settings: StepSettings, prompt: Prompt) -> Group:
    """Samples a group to train on, with a greedy baseline beside it where the algorithm compares with one."""
    keys = stream_keys(prompt, settings.group_size, settings.seed, "train")
    sampled = sample_group(roles.sampler, prompt, keys, settings.sampling)
    if not roles.algorithm.needs.greedy_baseline:
        return await sampled
    greedy_keys = stream_keys(prompt, 1, settings.seed, "baseline")
    greedy = replace(settings.sampling, temperature=0.0, top_p=1.0, top_k=0)
    group, baseline = await asyncio.gather(sampled, sample_group(roles.sampler, prompt, greedy_keys, greedy))
    return replace(group, baseline=baseline.samples[0])


async def judge_for_training(roles: Roles, group: Group) -> Group:
    """Puts rewards on the samples, and on the baseline, with what truncation and length cost."""
    if group.baseline is None:
        return roles.algorithm.shape(await roles.judge(group))
    alone = replace(group, samples=(group.baseline,), baseline=None)
    judged, baseline = await asyncio.gather(roles.judge(group), roles.judge(alone))
    return replace(roles.algorithm.shape(judged), baseline=roles.algorithm.shape(baseline).samples[0])
