"""strop: reinforcement-learning post-training of language models that proves every step.

The functions of `strop.api` are available here; torch loads when one that needs it is called.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strop.api import *  # noqa: F403 - `strop.api.__all__` is the one list of names

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    api = import_module("strop.api")
    if name in api.__all__:
        return getattr(api, name)
    raise AttributeError(f"module 'strop' has no attribute {name!r}")


def __dir__() -> list[str]:
    own = globals().keys() - {"Any", "TYPE_CHECKING", "import_module"}
    return sorted({*own, *import_module("strop.api").__all__})
