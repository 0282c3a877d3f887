"""Loads the library of a sink, or says what to install."""

import importlib
from types import ModuleType

from strop.errors import ConfigError


def load_library(module: str, extra: str) -> ModuleType:
    """Imports `module`. Raises ConfigError naming the extra of strop that brings it."""
    package = module.split(".")[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise
        raise ConfigError(
            f"metrics.sinks has `{extra}`, which needs the package `{package}`, and that is not installed",
            f'Run `pip install "strop[{extra}]"`, or take `{extra}` out of metrics.sinks.',
        ) from error
