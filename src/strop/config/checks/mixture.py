"""Data sets one by one, and what the parts of a mixture must settle among themselves."""

from collections.abc import Iterator
from dataclasses import dataclass

from strop.config.checks.refusal import Refusal, does_nothing
from strop.config.data import DataConfig, MixtureSource, SingleSource, Source
from strop.config.root import Config
from strop.config.source_names import part_name, source_name


@dataclass(frozen=True, slots=True)
class PosedData:
    """One data set and what is asked of its rows, with the keys that say so."""

    name: str
    source: SingleSource
    source_key: str
    task: str | None
    task_key: str


def posed_data(data: DataConfig, source: Source, key: str) -> list[PosedData]:
    """The data sets of a source that stands under `key`: one, or the parts of a mixture."""
    if not isinstance(source, MixtureSource):
        return [PosedData(source_name(source), source, key, data.task, "data.task")]
    return [
        PosedData(
            part_name(part),
            part.source,
            f"{key}.parts[{place}].source",
            part.task or data.task,
            f"{key}.parts[{place}].task" if part.task else "data.task",
        )
        for place, part in enumerate(source.parts)
    ]


def all_posed_data(config: Config) -> list[PosedData]:
    """The data sets of training and evaluation."""
    posed = posed_data(config.data, config.data.source, "data.source")
    if config.evaluation is not None:
        posed += posed_data(config.data, config.evaluation.source, "evaluation.source")
    return posed


def check_mixture(config: Config) -> Iterator[Refusal]:
    """Yields refusals of mixtures, and of a task that is missing or that nothing asks for."""
    posed = all_posed_data(config)
    for one in posed:
        if one.task is None:
            yield Refusal(
                "data.task", f"must say what is asked of the rows of {one.source_key}, got none", "Set data.task, say."
            )
    if config.data.task is not None and all(one.task_key != "data.task" for one in posed):
        yield does_nothing("data.task", "every part of the mixture names its own task", "Leave it out.")
    if isinstance(config.data.source, MixtureSource):
        yield from _check_weights(config.data.source)
    if config.evaluation is not None and isinstance(config.evaluation.source, MixtureSource):
        yield from _check_unweighted(config.evaluation.source)


def _check_weights(source: MixtureSource) -> Iterator[Refusal]:
    weights = [part.weight for part in source.parts]
    if None in weights and any(weight is not None for weight in weights):
        yield Refusal(
            f"data.source.parts[{weights.index(None)}].weight",
            "must be given where another part has a weight: a number of prompts cannot be compared with it, got none",
            "Give every part a weight, or none.",
        )
    has_final = any(part.final_weight is not None for part in source.parts)
    if source.ramp_prompts is not None and not has_final:
        yield does_nothing("data.source.ramp_prompts", "no part has a final_weight", "Set one, or leave this out.")
    if source.ramp_prompts is None and has_final:
        yield Refusal(
            "data.source.ramp_prompts",
            "must say over how many prompts the weights move to final_weight, got none",
            "Set it, or leave final_weight out.",
        )
    for place, part in enumerate(source.parts):
        if part.weight == 0 and not part.final_weight:
            yield Refusal(
                f"data.source.parts[{place}].weight",
                "must be above 0, or end above 0, for the part to be served at all, got 0",
                "Raise it, or take the part out.",
            )
    if weights and all(weight == 0 for weight in weights):
        yield Refusal("data.source.parts", "must begin with a weight above 0 somewhere, got 0 everywhere", "Raise one.")
    if all(part.final_weight == 0 for part in source.parts):
        yield Refusal("data.source.parts", "must end with a weight above 0 somewhere, got 0 everywhere", "Raise one.")


def _check_unweighted(source: MixtureSource) -> Iterator[Refusal]:
    """Evaluation asks every prompt once."""
    because = "evaluation asks every prompt of every part once"
    for place, part in enumerate(source.parts):
        for key, value in (("weight", part.weight), ("final_weight", part.final_weight)):
            if value is not None:
                yield does_nothing(f"evaluation.source.parts[{place}].{key}", because, "Leave it out.")
    if source.ramp_prompts is not None:
        yield does_nothing("evaluation.source.ramp_prompts", because, "Leave it out.")
