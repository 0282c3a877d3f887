"""Runs a program against the tests of its problem and counts those that pass."""

import time
from dataclasses import dataclass

from strop.tasks.grading.grade import GradeMode
from strop.tasks.sandbox.cases import Case, Cases
from strop.tasks.sandbox.client import Jail, Run, RunEnd
from strop.tasks.sandbox.compare import prints_right, returns_right
from strop.tasks.sandbox.limits import SandboxLevel, SandboxLimits


@dataclass(frozen=True, slots=True)
class Tally:
    """How a program did."""

    num_passed: int
    num_tests: int
    first_failure: str | None
    """Which test failed first, and how; None where all passed."""


def run_cases(
    program: str,
    problem: Cases,
    mode: GradeMode,
    *,
    level: SandboxLevel,
    limits: SandboxLimits,
    total_seconds: float,
    run_all: bool,
) -> Tally:
    """Runs the tests in order, up to the first that fails unless `run_all`.

    Tests that do not fit into `total_seconds` fail: a program that is too slow is wrong, not invalid. Raises
    SandboxError where the sandbox itself fails.
    """
    deadline = time.monotonic() + total_seconds
    num_passed, failure = 0, None
    with Jail(level, limits) as jail:
        for number, case in enumerate(problem.cases, start=1):
            left = deadline - time.monotonic()
            if left <= 0:
                failure = failure or f"test {number}: no time left of {total_seconds:g} s"
                break
            run = jail.run(
                program,
                stdin=case.stdin,
                fn_name=problem.fn_name,
                arguments=case.arguments,
                wall_seconds=min(left, limits.wall_seconds),
            )
            wrong = failure_of(run, case, problem.fn_name, mode)
            if wrong is None:
                num_passed += 1
                continue
            failure = failure or f"test {number}: {wrong}"
            if not run_all:
                break
    return Tally(num_passed, len(problem.cases), failure)


def failure_of(run: Run, case: Case, fn_name: str | None, mode: GradeMode) -> str | None:
    """Why a run does not pass its test; None where it does."""
    if run.end is not RunEnd.RETURNED:
        return f"{run.end} {run.detail}".strip()
    is_right = prints_right(run.stdout, case, mode) if fn_name is None else returns_right(run.result, case, mode)
    if is_right:
        return None
    return f"wrong result {(run.stdout if fn_name is None else run.result)[:80]!r}"
