"""What the sinks need: asked for before a run begins, loaded when a sink is built."""

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType

from strop.errors import ConfigError
from strop.metrics.settings import SinkName


def check_requirements(sinks: Sequence[SinkName]) -> None:
    """Raises ConfigError with the remedy where the package of a sink is not installed; imports none of them."""
    missing = [name for name in sinks if not _is_installed(name)]
    if missing:
        raise _not_installed(missing)


def _is_installed(package: str) -> bool:
    """Whether the package can be imported; a plain folder of that name, such as W&B leaves behind, is none."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def load_library(module: str, sink: SinkName) -> ModuleType:
    """Imports `module`, which is of the package named like the sink. Raises ConfigError where that is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != sink:
            raise
        raise _not_installed([sink]) from error


def _not_installed(sinks: Sequence[SinkName]) -> ConfigError:
    names = ", ".join(sinks)
    return ConfigError(
        f"metrics.sinks must name sinks whose packages are installed, got {names}, not installed",
        f'Run `pip install "strop[{",".join(sinks)}]"`, or take {names} out of metrics.sinks.',
    )
