"""Where prompts come from."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from strop.config.base import Section


class JsonlSource(Section):
    """A file with one JSON object a line."""

    type: Literal["jsonl"] = "jsonl"
    """Kind of source."""
    path: Path
    """The file."""


class ParquetSource(Section):
    """A Parquet file, or a folder of them."""

    type: Literal["parquet"] = "parquet"
    """Kind of source."""
    path: Path
    """The file or folder."""


class HubSource(Section):
    """A Hugging Face data set, from the hub or from a folder that `datasets` can load."""

    type: Literal["hub"] = "hub"
    """Kind of source."""
    path: str
    """Name on the hub, or a local folder."""
    subset: str | None = None
    """Configuration name of the data set."""
    split: str = "train"
    """Split to read."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""


class ReasoningGymSource(Section):
    """A generator of reasoning_gym, which also scores its own answers."""

    type: Literal["reasoning_gym"] = "reasoning_gym"
    """Kind of source."""
    name: str
    """Name of the generator, such as `chain_sum`."""
    size: int = Field(default=1000, ge=1)
    """How many rows to generate."""
    seed: int = Field(default=0, ge=0)
    """Seed of the generator: row i is made from seed + i, so evaluation must start at least `size` further on."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the generator."""


SingleSource = Annotated[JsonlSource | ParquetSource | HubSource | ReasoningGymSource, Field(discriminator="type")]


class MixturePart(Section):
    """One data set of a mixture. What it leaves out it takes from `data`."""

    source: SingleSource
    """Where the rows come from; `type` chooses the kind."""
    name: str | None = None
    """Name in row ids, metrics and reports; None takes the name of the file, data set or generator."""
    weight: float | None = Field(default=None, ge=0)
    """Its share of the prompts, relative to those of the other parts; None takes its number of prompts."""
    final_weight: float | None = Field(default=None, ge=0)
    """Weight at the end of the ramp; None keeps the weight."""
    task: str | None = None
    """Task of these rows; None takes data.task."""
    prompt_column: str | None = None
    """Column with the question; None takes data.prompt_column."""
    answer_column: str | None = None
    """Column with the gold answer; None takes data.answer_column."""
    gold_response_column: str | None = None
    """Column with a response that must score 1; None takes data.gold_response_column."""
    instruction: str | None = None
    """Text put behind every question; None takes data.instruction."""


class MixtureSource(Section):
    """Several data sets at once, their prompts mixed by ratio."""

    type: Literal["mixture"] = "mixture"
    """Kind of source."""
    parts: list[MixturePart] = Field(min_length=1)
    """The data sets."""
    ramp_prompts: int | None = Field(default=None, ge=1)
    """Weights move evenly to `final_weight` while so many prompts are served: a curriculum."""


Source = Annotated[
    JsonlSource | ParquetSource | HubSource | ReasoningGymSource | MixtureSource, Field(discriminator="type")
]


class DataConfig(Section):
    """The training prompts."""

    source: Source
    """Where the rows come from; `type` chooses the kind."""
    task: str | None = None
    """`gsm8k`, `math` or another grader of docs/grading.md, `reasoning_gym:<name>`, or `columns` for rows that a reward
    function of yours judges."""
    prompt_column: str | None = None
    """Column with the question (text, or a list of chat messages); None takes the task's own."""
    answer_column: str | None = None
    """Column with the gold answer; None takes the task's own."""
    gold_response_column: str | None = None
    """Column with a response that must score 1, for the self-test: a program for the task `code`, a match for `regex`;
    None makes one from the gold answer, where the task can."""
    instruction: str | None = None
    """Text put behind every question; None takes the task's own, an empty text puts none."""
    system_prompt: str | None = None
    """System message put before every prompt."""
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the chat template, such as `enable_thinking`."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Longer prompts are overlong; None allows what the model's maximum leaves beside the completion."""
    on_overlong: Literal["drop", "error"] = "drop"
    """Whether overlong prompts are dropped and counted at the start, or end the run there."""
    on_bad_row: Literal["error", "skip"] = "error"
    """Whether rows that cannot be used (broken, of a wrong type, without gold) end the run or are skipped and told."""
    self_test_rows: int | None = Field(default=1000, ge=1)
    """Rows whose gold answer and an empty one are graded before training, evenly spaced; None takes every row."""
    self_test_share: float = Field(default=1.0, ge=0, le=1)
    """The run is refused where the task's grader likes the gold answers of a smaller share of these rows."""
    shuffle: bool = True
    """Draws a new order every epoch; else the order of the file."""
    epochs: int | None = Field(default=None, ge=1)
    """Passes over the data, of a mixture over each part; None goes on until `run.steps`."""
    limit: int | None = Field(default=None, ge=1)
    """Takes only the first rows, of each part in a mixture."""
