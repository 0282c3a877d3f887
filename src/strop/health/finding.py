"""One line of the doctor's report."""

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """How it is: `warn` may slow or limit a run, `fail` will end it."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at, how it is, and what to do about it."""

    name: str
    health: Health
    detail: str
    remedy: str = ""
