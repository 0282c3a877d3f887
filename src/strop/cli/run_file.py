"""What all commands with a run file share: its argument, its overrides, and reading both."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from strop.config.root import Config

RunFile = Annotated[Path, typer.Argument(metavar="RUN.toml", help="The run file; `strop config` lists its keys.")]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="SECTION.KEY=VALUE", help="Values that replace those of the run file.", show_default=False),
]


def read_run_file(path: Path, overrides: list[str] | None) -> "Config":
    """Reads a run file with its overrides and checks that its keys go together; raises ConfigError."""
    from strop.config.checks import check
    from strop.config.load import load_config

    config = load_config(path, overrides or ())
    check(config)
    return config
