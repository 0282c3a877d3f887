"""Groups made by hand, for rewards: a prompt with columns, and samples with or without tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from strop.records import FinishState, Group, Message, Prompt, Row, Sample


def made_prompt(prompt_id: str = "made:0", **columns: Any) -> Prompt:
    """A prompt with these columns, and two tokens of no meaning."""
    messages = (Message(role="user", content="What is it?"),)
    return Prompt(prompt_id, 0, np.array([1, 2]), messages, task="columns", columns=columns)


def made_group(finishes: Sequence[FinishState], **columns: Any) -> Group:
    """A group of samples without tokens, which ended as `finishes` says."""
    samples = tuple(Sample(index=index, rows=(), finish=finish) for index, finish in enumerate(finishes))
    return Group(made_prompt(**columns), samples)


def stopped_group(num_samples: int, **columns: Any) -> Group:
    """A group of samples that all stopped by themselves."""
    return made_group([FinishState.STOPPED] * num_samples, **columns)


def made_row(*spans: tuple[Sequence[int], bool]) -> Row:
    """A row of spans (token ids, whether they were sampled)."""
    ids = np.array([token for span, _ in spans for token in span], dtype=np.int64)
    mask = np.array([sampled for span, sampled in spans for _ in span], dtype=np.bool_)
    return Row(ids, mask, np.zeros(len(ids), dtype=np.float32), np.where(mask, 0, -1))
