"""Asks every question of the doctor, the cheap ones first."""

from collections.abc import Iterator
from pathlib import Path

from strop.health.finding import Finding
from strop.health.machine import check_machine
from strop.health.models import check_demo_model, check_devices
from strop.health.processes import check_processes
from strop.health.sandbox import check_sandbox
from strop.health.versions import check_versions
from strop.health.vllm import check_vllm


def examine(output_dir: Path) -> Iterator[Finding]:
    """Yields each finding as soon as it is known; `output_dir` is where run folders will be written."""
    yield from check_versions()
    yield from check_vllm()
    yield from check_machine(output_dir)
    yield check_demo_model()
    yield from check_devices()
    yield check_sandbox()
    yield check_processes()
