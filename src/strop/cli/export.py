"""`strop export`: a checkpoint becomes a plain Hugging Face folder."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, such as runs/my-run.")],
    out_folder: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write; it must not exist.")],
    step: Annotated[int | None, typer.Option(min=0, help="Step to export; without it the newest.")] = None,
) -> None:
    """Write a checkpoint as a Hugging Face folder.

    Plain transformers loads it.
    """
    from strop import api

    api.export(run_folder, step, out_folder)
    typer.echo(f"{out_folder} holds the model; load it with AutoModelForCausalLM.from_pretrained({str(out_folder)!r})")
