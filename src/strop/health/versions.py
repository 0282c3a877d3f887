"""Python and the packages, beside the versions that strop is tested with. Nothing is imported to ask."""

import importlib.metadata
import platform
import sys
from collections.abc import Iterator

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from strop.config.tested import PACKAGES, PYTHON_ACCEPTED, PackageRange
from strop.health.finding import Finding, Health


def check_versions() -> Iterator[Finding]:
    """Yields a finding for Python, strop and each package that strop needs or can use."""
    yield _python()
    yield Finding("strop", Health.OK, installed_version("strop") or "from source, not installed")
    for package in PACKAGES:
        yield judge_package(package, installed_version(package.name))


def _python() -> Finding:
    version = platform.python_version()
    if SpecifierSet(PYTHON_ACCEPTED).contains(version, prereleases=True):
        return Finding("python", Health.OK, f"{version} at {sys.executable}")
    return Finding(
        "python", Health.FAIL, f"{version}, must be {PYTHON_ACCEPTED}", "Make an environment with a newer Python."
    )


def installed_version(name: str) -> str | None:
    """The installed version of a distribution; None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def judge_package(package: PackageRange, installed: str | None) -> Finding:
    """Compares an installed version with what is accepted and what was tested; local suffixes are ignored."""
    if installed is None:
        return _missing(package)
    public = Version(installed).public
    if not SpecifierSet(package.accepted).contains(public, prereleases=True):
        return Finding(
            package.name,
            Health.FAIL if package.extra is None else Health.WARN,
            f"{installed}, must be {package.accepted}",
            f"pip install '{package.name}=={package.tested}'",
        )
    if public != package.tested:
        return Finding(package.name, Health.OK, f"{installed} (accepted; tested with {package.tested})")
    return Finding(package.name, Health.OK, installed)


def _missing(package: PackageRange) -> Finding:
    if package.extra is None:
        remedy = f"pip install '{package.name}=={package.tested}'"
        return Finding(package.name, Health.FAIL, f"not installed, must be {package.accepted}", remedy)
    remedy = f"Only for {package.purpose}: pip install 'strop[{package.extra}]'"
    return Finding(package.name, Health.WARN, "not installed", remedy)
