"""What goes wrong between a data set and a prompt, said so that a person can mend it."""

import importlib.util
from collections.abc import Iterable

from strop import errors


class DataError(errors.DataError, ValueError):
    """Data that cannot be used: the message names the place, what must be there and what was found."""


class SettingError(errors.ConfigError, ValueError):
    """A setting of data, task or rewards that cannot work with what was found."""


class MissingPackageError(errors.ConfigError, ModuleNotFoundError):
    """An optional package that the run file asks for is not installed."""


class MissingColumnError(errors.DataError, KeyError):
    """A row lacks a column: the message lists the columns found and the nearest name."""

    def __init__(self, wanted: str, found: Iterable[str], setting: str) -> None:
        names = sorted(found)
        self._parts = (wanted, names, setting)
        super().__init__(
            f"{setting} must name a column of the data, got {wanted!r}{errors.nearest_hint(wanted, names)}; "
            f"columns found: {', '.join(names) or 'none'}"
        )

    def under(self, key: str) -> "MissingColumnError":
        """The same error with another place in the run file for `data`, such as `data.source.parts[1]`."""
        wanted, names, setting = self._parts
        own = setting.removeprefix("data.")
        return self if own == setting else MissingColumnError(wanted, names, f"{key}.{own}")


def require_package(package: str, extra: str, purpose: str) -> None:
    """Raises MissingPackageError, naming the extra to install, where an optional package is missing."""
    if importlib.util.find_spec(package) is None:
        raise MissingPackageError(
            f"{purpose} needs the package {package!r}, which is not installed: pip install 'strop[{extra}]'"
        )
