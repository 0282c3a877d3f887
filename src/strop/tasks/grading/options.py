"""What the options of a grader have in common."""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from strop.errors import ConfigError


class OptionError(ConfigError, ValueError):
    """An option of a grader that is unknown or out of its range."""


class GraderOptions(BaseModel):
    """Base of a grader's options: frozen, closed, and small enough to travel to another process."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )


class NoOptions(GraderOptions):
    """A grader that has nothing to set."""


Options = TypeVar("Options", bound=GraderOptions)


def read_options(kind: type[Options], grader: str, arguments: dict[str, Any]) -> Options:
    """Checks the options of the grader called `grader`; raises OptionError naming every wrong one and those known."""
    try:
        return kind.model_validate(arguments)
    except ValidationError as error:
        known = ", ".join(f"`{name}`" for name in kind.model_fields) or "none"
        faults = "; ".join(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        raise OptionError(f"options of the grader {grader!r} are {known}, got {faults}") from error
