"""Which teacher scores which group, and what a model must be to teach a policy.

A teacher is a `PlanScorer` at the temperature of sampling, as the policy is trained at: both sides of a divergence are
at one temperature.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from strop.config.distillation import DistillationConfig, TeacherConfig
from strop.config.model import ModelConfig
from strop.errors import ConfigError
from strop.models.load import load_model_config, load_tokenizer
from strop.protocols import PlanScorer
from strop.records import Group, Prompt
from strop.records.packing import SampleKey


@dataclass(frozen=True)
class Teachers:
    """Every teacher by name."""

    scorers: Mapping[str, PlanScorer]
    column: str | None
    """The data column that names a row's teacher; None with one teacher for all."""

    def by_teacher(self, groups: Sequence[Group]) -> list[tuple[PlanScorer, list[SampleKey]]]:
        """Returns each teacher that has samples to score, with these."""
        keys: dict[str, list[SampleKey]] = {}
        for g, group in enumerate(groups):
            name = teacher_name(group.prompt, self.column, self.scorers)
            keys.setdefault(name, []).extend((g, s) for s in range(len(group.samples)))
        return [(self.scorers[name], found) for name, found in keys.items()]


def teacher_name(prompt: Prompt, column: str | None, known: Mapping[str, object]) -> str:
    """The name of the prompt's teacher. Raises ConfigError where its row names none of those that there are."""
    if column is None:
        return next(iter(known))
    name = prompt.columns.get(column)
    if name not in known:
        raise ConfigError(
            f"column {column!r} of {prompt.prompt_id} must name a teacher, one of {', '.join(known)}, got {name!r}",
            "Mend the row, or set `name` of the teacher in distillation.teachers.",
        )
    return str(name)


def teacher_names(config: DistillationConfig) -> list[str]:
    """The names of the teachers, by which rows are routed."""
    return [teacher.name or teacher.path for teacher in config.teachers]


def check_routes(config: DistillationConfig, prompts: Sequence[Prompt]) -> Counter[str]:
    """Returns how many prompts each teacher has; raises ConfigError for a prompt that names none."""
    known = dict.fromkeys(teacher_names(config))
    return Counter(teacher_name(prompt, config.route_column, known) for prompt in prompts)


def model_section(teacher: TeacherConfig) -> ModelConfig:
    """The teacher as a model to load."""
    return ModelConfig(
        path=teacher.path,
        revision=teacher.revision,
        gguf_file=teacher.gguf_file,
        dtype=teacher.dtype,
        trust_remote_code=teacher.trust_remote_code,
    )


def check_teachers(
    config: DistillationConfig, tokenizer: PreTrainedTokenizerBase, model_config: PreTrainedConfig
) -> None:
    """Refuses a teacher whose tokens are not the policy's, before any weight is loaded.

    Token ids are compared, so ids must mean the same on both sides: a teacher with another vocabulary is no teacher
    here, whatever it could say as text.
    """
    own = tokenizer.get_vocab()
    own_size = model_config.get_text_config().vocab_size
    for name, teacher in zip(teacher_names(config), config.teachers, strict=True):
        section = model_section(teacher)
        theirs = load_tokenizer(section).get_vocab()
        if theirs != own:
            raise ConfigError(
                f"teacher {name!r} must have the policy's vocabulary, got {len(theirs)} tokens where the policy has "
                f"{len(own)}, {_difference(own, theirs)}",
                "Take a teacher of the same family: ids that mean other tokens cannot be compared.",
            )
        size = load_model_config(section).get_text_config().vocab_size
        if size != own_size:
            raise ConfigError(
                f"teacher {name!r} must have an output layer of the policy's size ({own_size}), got {size}",
                "Resize the token embeddings of one of them, with transformers' resize_token_embeddings.",
            )


def _difference(own: Mapping[str, int], theirs: Mapping[str, int]) -> str:
    """The first token, by id, of which the two say different things."""
    token, place = min(own.items() ^ theirs.items(), key=lambda item: item[1])
    return f"the first difference at id {place} ({token!r})"
