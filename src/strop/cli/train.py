"""`strop train`: the main job."""

from typing import Annotated

import typer

from strop.cli.run_file import Overrides, RunFile, read_run_file

INTERRUPTED = 130
"""Exit code of a run that Ctrl-C ended cleanly."""


def train(
    run_file: RunFile,
    overrides: Overrides = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, load and tokenise the data, and say what would run.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest whole checkpoint.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the run of this name.")] = False,
) -> None:
    """Train a model as the run file says."""
    config = read_run_file(run_file, overrides)
    from strop import api

    if dry_run:
        typer.echo(api.dry_run(config))
        return
    result = api.train(config, resume=resume, overwrite=overwrite)
    if result.was_interrupted:
        raise typer.Exit(INTERRUPTED)
