"""A prompt is one row of a data set, rendered to token ids once and never again."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray


class Message(TypedDict):
    """One chat turn, in the form that Hugging Face chat templates take."""

    role: str
    content: str
    tool_calls: NotRequired[list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question put to the policy, served for the `visit`-th time.

    `prompt_id` names the data row (stable over epochs and resumes); `visit` counts how often it was
    served before, so that a second epoch draws new random numbers.
    """

    prompt_id: str
    visit: int
    token_ids: NDArray[np.int64]
    """[P] ids that the sampler sees, chat template applied, exactly one BOS where the model wants one."""
    messages: tuple[Message, ...]
    task: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    """The data row as it was read: rewards receive these as arguments."""
    source: str = ""
    """The data source that the row came from, for metrics by source."""

    @property
    def num_tokens(self) -> int:
        """The length of the rendered prompt."""
        return len(self.token_ids)
