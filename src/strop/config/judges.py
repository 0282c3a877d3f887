"""Models that judge: reward models, and language models that are asked by a rubric."""

from typing import Annotated, Any, Literal

from pydantic import Field

from strop.config.base import Section


class RewardModelConfig(Section):
    """A sequence classification model of transformers, in the trainer's process and on its device."""

    path: str
    """Hub id or local folder."""
    revision: str | None = None
    """Branch, tag or commit on the hub."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of its weights."""
    label: str | None = None
    """The label whose logit is the reward, by its name in config.json; None where the model has one output."""
    reads: Literal["chat", "pair", "completion"] = "chat"
    """What it is shown: the chat in its own template, prompt and completion as a pair of texts, or the completion."""
    mean: float = 0.0
    """Taken from its score before `scale` divides it, so that rewards lie around 0."""
    scale: float = Field(default=1.0, gt=0)
    """Divides its score."""
    batch_tokens: int = Field(default=16384, ge=1)
    """Most tokens that it reads at once, padding included; a longer conversation is read alone."""


class NumberVerdict(Section):
    """A number in the judge's answer."""

    type: Literal["number"] = "number"
    """What a verdict looks like."""
    pattern: str
    """Regular expression whose one group is the number; the last match counts."""
    lowest: float
    """The number that earns 0."""
    highest: float
    """The number that earns 1; one beyond either makes the sample invalid."""


class LabelVerdict(Section):
    """One of some words in the judge's answer."""

    type: Literal["label"] = "label"
    """What a verdict looks like."""
    labels: dict[str, float] = Field(min_length=1)
    """The reward of each label; the label that stands last in the answer counts, as a word, in any case."""


class JsonVerdict(Section):
    """A number in a JSON object in the judge's answer."""

    type: Literal["json"] = "json"
    """What a verdict looks like."""
    field: str
    """Key of the number; the last object that has it counts."""
    lowest: float
    """The number that earns 0."""
    highest: float
    """The number that earns 1; one beyond either makes the sample invalid."""


class ServerJudge(Section):
    """A language model behind a server that speaks OpenAI's chat completions."""

    type: Literal["server"] = "server"
    """Who runs the judge."""
    url: str
    """Where its API begins, such as `http://localhost:8000/v1`; never with a password in it."""
    model: str
    """The model's name there."""
    api_key_variable: str | None = None
    """Environment variable that holds the key; None sends none."""
    concurrency: int = Field(default=16, ge=1)
    """Most requests at once."""
    retries: int = Field(default=3, ge=0)
    """Further tries, at growing distances, where the server is busy, fails, is out of reach or out of time."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request, such as `top_p` or `response_format`."""


class NativeJudge(Section):
    """A language model in strop's own sampler, in the trainer's process and on its device."""

    type: Literal["native"] = "native"
    """Who runs the judge."""
    path: str
    """Hub id, local folder, or `package:NAME`."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of its weights."""


Verdict = Annotated[NumberVerdict | LabelVerdict | JsonVerdict, Field(discriminator="type")]
JudgeEngine = Annotated[ServerJudge | NativeJudge, Field(discriminator="type")]


class JudgeConfig(Section):
    """A language model that is asked about every sample."""

    engine: JudgeEngine
    """Who is asked; `type` chooses the kind."""
    rubric: str
    """The question, with `{prompt}`, `{completion}` and `{any column}` filled in; `{{` and `}}` stand for braces."""
    verdict: Verdict
    """How the answer is read; `type` chooses the kind."""
    temperature: float = Field(default=0.0, ge=0)
    """Of the judge; 0 takes its likeliest tokens."""
    max_new_tokens: int = Field(default=512, ge=1)
    """Budget of an answer; a sample whose judge is cut by it is invalid."""
