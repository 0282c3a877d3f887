"""Loads the library of a sink, or says what to install."""

import importlib
from types import ModuleType


class MissingSinkLibrary(ImportError):
    """The library of a configured sink is not installed."""


def load_library(module: str, extra: str) -> ModuleType:
    """Imports `module`. Raises MissingSinkLibrary naming the extra of strop that brings it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingSinkLibrary(
            f"the metrics sink `{extra}` needs the package `{module.split('.')[0]}`, which is not installed: "
            f'run `pip install "strop[{extra}]"` or take `{extra}` out of metrics.sinks'
        ) from error
