"""`strop eval`: the evaluation of a run file, on the base model or a checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from strop.cli.run_file import Overrides, RunFile, read_run_file


def evaluate(
    run_file: RunFile,
    overrides: Overrides = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="A step folder of a run; without it the model of the run file is evaluated.")
    ] = None,
) -> None:
    """Evaluate on the held-out prompts of the run file."""
    config = read_run_file(run_file, overrides)
    from strop import api

    typer.echo(api.evaluate(config, checkpoint=checkpoint))
