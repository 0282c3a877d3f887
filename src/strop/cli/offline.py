"""`strop sft`, `strop dpo`, `strop ipo`, `strop kto`: training on text that is given instead of sampled."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strop.cli.run_file import Overrides
from strop.cli.train import INTERRUPTED

if TYPE_CHECKING:
    from strop.config.offline import OfflineMethodName

OfflineRunFile = Annotated[
    Path,
    typer.Argument(metavar="RUN.toml", help="The run file; `strop config --offline` lists its keys."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, render the data, and say what would run.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the newest whole checkpoint.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run of this name.")]


def _command(method: "OfflineMethodName", does: str, rows: str) -> Callable[..., None]:
    """Makes the command of a method; they differ in their help only."""

    def command(
        run_file: OfflineRunFile,
        overrides: Overrides = None,
        dry_run: DryRun = False,
        resume: Resume = False,
        overwrite: Overwrite = False,
    ) -> None:
        _run(method, run_file, overrides, dry_run=dry_run, resume=resume, overwrite=overwrite)

    command.__name__ = method
    command.__doc__ = f"{does}\n\n    Rows have {rows}."
    return command


sft = _command("sft", "Fine-tune on conversations.", "`messages`, or `prompt` and `completion`")
dpo = _command("dpo", "Learn from preferences by DPO.", "`prompt`, `chosen` and `rejected`")
ipo = _command("ipo", "Learn from preferences by IPO.", "`prompt`, `chosen` and `rejected`")
kto = _command("kto", "Learn from labelled answers by KTO.", "`prompt`, `completion` and `label`")


def _run(
    method: "OfflineMethodName",
    run_file: Path,
    overrides: list[str] | None,
    *,
    dry_run: bool,
    resume: bool,
    overwrite: bool,
) -> None:
    from strop import api
    from strop.config.checks.offline import check_offline

    config = api.load_offline_config(run_file, overrides or (), method)
    check_offline(config)
    if dry_run:
        typer.echo(api.dry_run_offline(config))
        return
    commands = {"sft": api.sft, "dpo": api.dpo, "ipo": api.ipo, "kto": api.kto}
    result = commands[method](config, resume=resume, overwrite=overwrite)
    if result.was_interrupted:
        raise typer.Exit(INTERRUPTED)
