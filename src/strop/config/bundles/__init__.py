"""What each named algorithm means where the config leaves a part open: one short file a name, beside its paper.

Checks of a run file and the algorithms themselves read the same values from here; the formulas are computed in
`strop.algorithms`. No bundle has a KL term unless asked for, as has become common for verifiable rewards: a deviation
where a paper has one.
"""

from dataclasses import replace

from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import (
    cispo,
    clip_cov,
    dapo,
    dppo,
    dr_grpo,
    dro,
    gdpo,
    gmpo,
    gpg,
    grpo,
    gspo,
    kl_cov,
    maxrl,
    opo,
    otb,
    pass_at_k,
    ppo,
    raft,
    reinforce_pp,
    reinforce_pp_baseline,
    remax,
    rloo,
    sapo,
)
from strop.config.bundles.settings import ResolvedAlgorithm

__all__ = ["BUNDLES", "DEFAULT_SAMPLING_ROUNDS", "OVERLONG_BUFFER_SHARE", "ResolvedAlgorithm", "resolve_algorithm"]

_FILES = (
    grpo,
    dr_grpo,
    dapo,
    gspo,
    gmpo,
    cispo,
    sapo,
    dppo,
    clip_cov,
    kl_cov,
    gpg,
    dro,
    ppo,
    rloo,
    remax,
    reinforce_pp,
    reinforce_pp_baseline,
    opo,
    pass_at_k,
    gdpo,
    maxrl,
    otb,
    raft,
)

BUNDLES: dict[str, ResolvedAlgorithm] = {file.BUNDLE.name: file.BUNDLE for file in _FILES}
"""Every named algorithm."""

DEFAULT_SAMPLING_ROUNDS = 10
"""Rounds of sampling in one step where groups are left out and the config names no bound."""

OVERLONG_BUFFER_SHARE = 5
"""The paper's soft punishment covers the last fifth of the longest sample (4096 of 20480 tokens)."""


def resolve_algorithm(config: AlgorithmConfig, max_new_tokens: int) -> ResolvedAlgorithm:
    """Returns the bundle with the overrides of the config; `max_new_tokens` is the divisor of last resort."""
    given = {name: value for name in AlgorithmConfig.model_fields if (value := getattr(config, name)) is not None}
    resolved = replace(BUNDLES[config.name], **given)
    if config.constant_length is None:
        resolved = replace(resolved, constant_length=max_new_tokens)
    if config.overlong_tokens is None:
        resolved = replace(resolved, overlong_tokens=max_new_tokens)
    if config.overlong_buffer_tokens is None:
        resolved = replace(resolved, overlong_buffer_tokens=max(1, resolved.overlong_tokens // OVERLONG_BUFFER_SHARE))
    if resolved.drop_zero_signal and config.max_sampling_rounds is None:
        resolved = replace(resolved, max_sampling_rounds=DEFAULT_SAMPLING_ROUNDS)
    return resolved
