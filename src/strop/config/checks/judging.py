"""Reward models and judges that cannot work as they stand, and keys of a reward that do nothing for its kind."""

from collections.abc import Iterator
from urllib.parse import SplitResult, urlsplit

from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.judges import JudgeConfig, LabelVerdict, NumberVerdict, ServerJudge
from strop.config.rewards import RewardConfig

_OURS = ("model", "messages", "temperature", "max_tokens", "stream", "n")
"""Fields of a request to a server that other keys set."""
_KINDS = ("function", "model", "judge")
_FOR_FUNCTIONS = ("arguments", "memory_gib", "processes")
_IDLE = {"function": (), "model": (*_FOR_FUNCTIONS, "timeout_seconds"), "judge": _FOR_FUNCTIONS}
"""The keys that do nothing for each kind of reward."""


def check_judging(key: str, reward: RewardConfig) -> Iterator[Refusal]:
    """Yields refusals of the kind of one reward."""
    kinds = [kind for kind in _KINDS if getattr(reward, kind) is not None]
    if len(kinds) != 1:
        yield Refusal(
            key,
            f"must have exactly one of function, model and judge, got {' and '.join(kinds) or 'none'}",
            "Give each a reward of its own." if kinds else "Name what judges.",
        )
        return
    for name in _IDLE[kinds[0]]:
        if given(reward, name):
            yield does_nothing(f"{key}.{name}", f"the reward is a {kinds[0]}", "Leave it out.")
    if reward.judge is not None:
        yield from _check_judge(f"{key}.judge", reward.judge)


def _check_judge(key: str, judge: JudgeConfig) -> Iterator[Refusal]:
    if isinstance(judge.engine, ServerJudge):
        yield from _check_server(f"{key}.engine", judge.engine)
    if not isinstance(judge.verdict, LabelVerdict) and judge.verdict.lowest >= judge.verdict.highest:
        yield Refusal(
            f"{key}.verdict.highest",
            f"must be above verdict.lowest ({judge.verdict.lowest:g}), got {judge.verdict.highest:g}",
            "Where a small number is good, let the rubric ask for the opposite.",
        )
    if isinstance(judge.verdict, NumberVerdict) and not judge.verdict.pattern:
        yield Refusal(f"{key}.verdict.pattern", "must not be empty", r"Write for example 'score: (\d+)'.")


def _check_server(key: str, server: ServerJudge) -> Iterator[Refusal]:
    parts = _address(server.url)
    if parts is None:
        yield Refusal(
            f"{key}.url", f"must be an http or https address, got {server.url!r}", "Write http://localhost:8000/v1."
        )
    elif parts.username is not None or parts.password is not None:
        yield Refusal(
            f"{key}.url",
            "must hold no user and no password, since a run stores its config, got both or one of them",
            f"Put the secret into an environment variable and its name into {key}.api_key_variable.",
        )
    for name in (name for name in server.options if name in _OURS):
        yield Refusal(
            f"{key}.options", f"must not set {name!r}, which strop sets or has no use for", "Leave it out there."
        )


def _address(url: str) -> SplitResult | None:
    """The parts of an http address; None where it is none."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if is_whole else None
