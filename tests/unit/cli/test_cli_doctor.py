"""`strop doctor` looks at the real machine, and each judgement can say ok, warn and fail."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from strop.config.tested import PACKAGES, PYTHON_ACCEPTED, PackageRange
from strop.health.finding import Health
from strop.health.machine import judge_folder, judge_memory, judge_quota, judge_threads
from strop.health.processes import check_processes
from strop.health.sandbox import judge_sandbox
from strop.health.versions import judge_package
from strop.tasks.sandbox.limits import SandboxLevel
from strop.tasks.sandbox.self_check import SelfCheck, strongest_level
from support.command import run_strop, source_environment

ROOT = Path(__file__).parents[3]
NEEDED = PackageRange("thing", "5.19.0", ">=5.19,<5.20")
OPTIONAL = PackageRange("thing", "5.19.0", ">=5.19,<5.20", "extra", "something")


@pytest.mark.parametrize(
    ("package", "installed", "health"),
    [
        (NEEDED, "5.19.0", Health.OK),
        (NEEDED, "5.19.0+cpu", Health.OK),
        (NEEDED, "5.19.3", Health.OK),
        (NEEDED, "5.20.0", Health.FAIL),
        (NEEDED, "5.18.9", Health.FAIL),
        (NEEDED, None, Health.FAIL),
        (OPTIONAL, "5.20.0", Health.WARN),
        (OPTIONAL, None, Health.WARN),
    ],
)
def test_a_package_is_judged_by_what_is_accepted(package: PackageRange, installed: str | None, health: Health) -> None:
    finding = judge_package(package, installed)
    assert finding.health is health
    assert bool(finding.remedy) == (health is not Health.OK)


def test_a_version_that_was_not_tested_is_named_with_the_one_that_was() -> None:
    assert "tested with 5.19.0" in judge_package(NEEDED, "5.19.3").detail


def test_the_accepted_versions_are_those_of_the_package_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == PYTHON_ACCEPTED
    assert {f"{package.name}{package.accepted}" for package in PACKAGES if package.extra is None} == set(
        project["dependencies"]
    )
    extras = {package.extra for package in PACKAGES if package.extra is not None}
    for extra in extras:
        accepted = [f"{package.name}{package.accepted}" for package in PACKAGES if package.extra == extra]
        assert project["optional-dependencies"][extra] == accepted


def test_the_tested_versions_are_those_of_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    constraints = {name.lower().replace("_", "-"): version for name, version in pins}
    assert {package.name: package.tested for package in PACKAGES} == {
        package.name: constraints[package.name] for package in PACKAGES
    }


@pytest.mark.parametrize(
    ("setting", "health"),
    [(None, Health.OK), ("2", Health.OK), ("3", Health.WARN), ("0", Health.WARN), ("x", Health.WARN)],
)
def test_more_threads_than_cores_are_a_warning(setting: str | None, health: Health) -> None:
    assert judge_threads(2, setting).health is health


def test_a_container_with_less_time_than_cores_is_a_warning() -> None:
    assert judge_quota(8, None).health is Health.OK
    assert judge_quota(8, 8.0).health is Health.OK
    assert "run.threads=2" in judge_quota(8, 2.5).remedy


def test_little_memory_is_a_warning() -> None:
    assert judge_memory(None).health is Health.OK
    assert judge_memory(2**34).health is Health.OK
    assert judge_memory(2**30).health is Health.WARN


def test_a_folder_that_is_not_there_yet_is_judged_by_its_parent_and_stays_away(tmp_path: Path) -> None:
    assert judge_folder(tmp_path / "a" / "b").health is not Health.FAIL
    assert list(tmp_path.iterdir()) == []


def test_a_folder_under_a_file_or_without_write_access_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert judge_folder(tmp_path / "file" / "runs").health is Health.FAIL
    assert judge_folder(Path("/proc/1")).health is Health.FAIL


def test_each_level_of_the_sandbox_is_told_and_none_that_holds_is_a_warning() -> None:
    strong, broken = (SelfCheck(SandboxLevel.NAMESPACES, problem) for problem in (None, "no user namespaces"))
    weak, escaped = (SelfCheck(SandboxLevel.LANDLOCK, problem) for problem in (None, "a program could write"))
    assert judge_sandbox(strong, weak).health is judge_sandbox(broken, weak).health is Health.OK
    assert judge_sandbox(broken, weak).detail == "namespaces does not: no user namespaces; landlock holds"
    nothing = judge_sandbox(broken, escaped)
    assert nothing.health is Health.WARN
    assert "landlock does not: a program could write" in nothing.detail
    assert "remote_url" in nothing.remedy


def test_processes_that_cannot_meet_fail_in_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", source_environment()["PYTHONPATH"])
    finding = check_processes(timeout_seconds=0.1)
    assert finding.health is Health.FAIL
    assert "not done after 0 s" in finding.detail


def test_a_wrong_network_interface_is_a_failure_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", source_environment()["PYTHONPATH"])
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nothing0")
    finding = check_processes()
    assert finding.health is Health.FAIL
    assert "GLOO_SOCKET_IFNAME" in finding.remedy


def test_the_doctor_looks_at_the_real_machine(tmp_path: Path) -> None:
    result = run_strop("doctor", "--json", folder=tmp_path)
    findings = {finding["name"]: finding for finding in map(json.loads, result.stdout.splitlines())}
    assert result.returncode == (1 if any(finding["health"] == "fail" for finding in findings.values()) else 0)
    assert sys.version.split()[0] in findings["python"]["detail"]
    assert {"torch", "transformers", "cores", "OMP_NUM_THREADS", "demo model", "devices"} <= set(findings)
    assert findings["two processes over gloo"]["health"] == "ok"
    assert f"{strongest_level()} holds" in findings["sandbox"]["detail"]


def test_a_failure_ends_with_exit_code_1_and_its_remedy(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file where the folder should be")
    result = run_strop("doctor", folder=tmp_path)
    assert result.returncode == 1
    assert "fail  run folders in runs" in result.stdout
    assert "Choose another run.output_dir." in result.stdout
