"""The base of every config section: frozen, closed, documented by the string under each field."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

ReadObserver = Callable[[str, str], None]


class Section(BaseModel):
    """A frozen config section that refuses unknown keys.

    `observe` lets a test see which keys are read: it is called with the class name and the key.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )

    observer: ClassVar[ReadObserver | None] = None

    def __getattribute__(self, name: str) -> Any:
        observer = Section.observer
        if observer is not None and not name.startswith("_") and name in type(self).model_fields:
            observer(type(self).__name__, name)
        return super().__getattribute__(name)


@contextmanager
def unobserved() -> Iterator[None]:
    """Reads of config keys inside are not told to the observer: looking at a key is not using it."""
    observer, Section.observer = Section.observer, None
    try:
        yield
    finally:
        Section.observer = observer
