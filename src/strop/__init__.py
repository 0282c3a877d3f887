"""strop: reinforcement-learning post-training of language models that proves every step.

The names of `strop.api` are available here; torch loads when the first of them is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strop.api import (
        DryRunReport,
        RunResult,
        Session,
        bench_step,
        dry_run,
        evaluate,
        export,
        generate,
        load_config,
        open_session,
        train,
    )

__version__ = "0.1.0"

__all__ = [
    "DryRunReport",
    "RunResult",
    "Session",
    "__version__",
    "bench_step",
    "dry_run",
    "evaluate",
    "export",
    "generate",
    "load_config",
    "open_session",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("strop.api"), name)
    raise AttributeError(f"module 'strop' has no attribute {name!r}")
