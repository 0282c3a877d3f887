"""`strop doctor`: whether this machine can run strop, one line a question."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from strop.health import Finding


def doctor(
    output_dir: Annotated[Path, typer.Option(help="Where run folders will be written.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Check whether this machine can run strop.

    Looks at versions, threads, memory, disk, demo model, devices, sandbox and processes; exits 1 where something fails.
    """
    import json
    from dataclasses import asdict

    from strop import api

    failed = False
    for finding in api.doctor(output_dir):
        typer.echo(json.dumps(asdict(finding)) if as_json else _line(finding))
        failed = failed or finding.health == "fail"
    if failed:
        raise typer.Exit(1)


def _line(finding: "Finding") -> str:
    remedy = f"\n      {finding.remedy}" if finding.remedy else ""
    return f"{finding.health:<4}  {finding.name}: {finding.detail}{remedy}"
