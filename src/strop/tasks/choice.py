"""Which column of a row is meant."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strop.config.data import DataConfig
from strop.data import MissingColumnError


@dataclass(frozen=True)
class ColumnChoice:
    """A column that the config names, or else the first of the task's own that a row has."""

    setting: str
    """The config key that names it, for errors."""
    configured: str | None
    defaults: tuple[str, ...]

    def find(self, columns: Mapping[str, Any] | frozenset[str]) -> str:
        """The name of the column; raises MissingColumnError listing the columns found."""
        candidates = (self.configured,) if self.configured is not None else self.defaults
        for name in candidates:
            if name in columns:
                return name
        raise MissingColumnError(candidates[0], columns, self.setting)


def prompt_choice(config: DataConfig, *defaults: str) -> ColumnChoice:
    """The column with the question: the one that the config names, or one of the task's own."""
    return ColumnChoice("data.prompt_column", config.prompt_column, defaults)


def answer_choice(config: DataConfig, *defaults: str) -> ColumnChoice:
    """The column with the gold answer: the one that the config names, or one of the task's own."""
    return ColumnChoice("data.answer_column", config.answer_column, defaults)
