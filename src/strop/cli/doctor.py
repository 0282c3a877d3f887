"""`strop doctor`: whether this machine can run strop, one line a question."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from strop.cli.health.finding import Finding


def doctor(
    output_dir: Annotated[Path, typer.Option(help="Where run folders will be written.")] = Path("runs"),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Check whether this machine can run strop.

    Looks at versions, threads, memory, disk, processes, demo model and devices; exits 1 where something fails.
    """
    import json
    from dataclasses import asdict

    failed = False
    for finding in _findings(output_dir):
        typer.echo(json.dumps(asdict(finding)) if as_json else _line(finding))
        failed = failed or finding.health == "fail"
    if failed:
        raise typer.Exit(1)


def _findings(output_dir: Path) -> "Iterator[Finding]":
    from strop.cli.health.machine import check_machine
    from strop.cli.health.models import check_demo_model, check_devices
    from strop.cli.health.processes import check_processes
    from strop.cli.health.versions import check_versions

    yield from check_versions()
    yield from check_machine(output_dir)
    yield check_demo_model()
    yield from check_devices()
    yield check_processes()


def _line(finding: "Finding") -> str:
    remedy = f"\n      {finding.remedy}" if finding.remedy else ""
    return f"{finding.health:<4}  {finding.name}: {finding.detail}{remedy}"
