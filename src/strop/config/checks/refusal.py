"""One reason why a config is refused."""

from dataclasses import dataclass

from strop.config.base import Section


@dataclass(frozen=True, slots=True)
class Refusal:
    """A key, why it cannot stand as it is, and what to do about it."""

    key: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.key} {self.reason}. {self.remedy}"


def given(section: Section, key: str) -> bool:
    """Whether a key has another value than the one that holds without it.

    A key written out with its default contradicts nobody, and a config that was stored whole must load.
    """
    default = type(section).model_fields[key].get_default(call_default_factory=True, validated_data={})
    return bool(getattr(section, key) != default)


def does_nothing(key: str, because: str, remedy: str) -> Refusal:
    """A refusal of a key that nobody would read."""
    return Refusal(key, f"does nothing: {because}", remedy)
