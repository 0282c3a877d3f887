"""Thread variables are set before torch is loaded, and only where the user left them unset."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from strop.devices.environment import available_cores

PREPARE = """
import json, os, sys
{before}
from strop.devices import prepare_environment
prepared = prepare_environment({threads})
names = [name for name in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT") if name in os.environ]
print(json.dumps([dict(prepared.added), dict(prepared.kept), prepared.in_time,
                  {{name: os.environ[name] for name in names}}, "torch" in sys.modules]))
"""


Variables = dict[str, str]


def prepare(threads: int = 0, before: str = "", **variables: str) -> tuple[Variables, Variables, bool, Variables, bool]:
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ["PATH"], **variables}
    code = PREPARE.format(before=before, threads=threads)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    added, kept, in_time, seen, torch_is_loaded = json.loads(result.stdout)
    return added, kept, in_time, seen, torch_is_loaded


def test_unset_variables_are_set_without_loading_torch() -> None:
    added, kept, in_time, seen, torch_is_loaded = prepare(threads=3)
    assert (
        added
        == seen
        == {
            "OMP_NUM_THREADS": "3",
            "OMP_WAIT_POLICY": "PASSIVE",
            "GOMP_SPINCOUNT": "3000",
        }
    )
    assert kept == {}
    assert in_time
    assert not torch_is_loaded


def test_what_the_user_set_stays_and_is_reported() -> None:
    added, kept, _, seen, _ = prepare(OMP_WAIT_POLICY="ACTIVE", OMP_NUM_THREADS="7")
    assert kept == {"OMP_WAIT_POLICY": "ACTIVE", "OMP_NUM_THREADS": "7"}
    assert added == {}
    assert seen["OMP_NUM_THREADS"] == "7"


def test_a_chosen_way_of_waiting_is_not_overruled() -> None:
    *_, seen, _ = prepare(OMP_WAIT_POLICY="ACTIVE")
    assert "GOMP_SPINCOUNT" not in seen


def test_a_call_after_torch_says_that_it_came_too_late() -> None:
    _, _, in_time, _, _ = prepare(before="import torch")
    assert not in_time


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", None), ("50000 100000", 1), ("100000 100000", 1), ("150000 100000", 2)]
)
def test_the_quota_of_a_container_bounds_the_cores(tmp_path: Path, quota: str, cores: int | None) -> None:
    allowed = len(os.sched_getaffinity(0))
    file = tmp_path / "cpu.max"
    file.write_text(quota + "\n")
    assert available_cores(file) == (allowed if cores is None else min(allowed, cores))
    assert available_cores(tmp_path / "absent") == allowed
