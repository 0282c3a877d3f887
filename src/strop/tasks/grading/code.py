"""Programs: the last Python block of the response is run in a sandbox against the tests of the row.

The gold answer is JSON with test cases (see `sandbox.cases`). What a program prints or returns is compared here, never
in the process that ran it.
"""

import re
from functools import cache

from pydantic import Field, model_validator

from strop.tasks.grading.extract import after_thought
from strop.tasks.grading.grade import Grade, GradeMode
from strop.tasks.grading.options import GraderOptions
from strop.tasks.sandbox.cases import Cases, read_cases
from strop.tasks.sandbox.limits import SandboxLevel, SandboxLimits
from strop.tasks.sandbox.remote import RemoteSandbox
from strop.tasks.sandbox.self_check import NoSandboxError, strongest_level
from strop.tasks.sandbox.verdict import Tally, run_cases

_BLOCK = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*(\w*)[^\n`]*\n(.*?)^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
_PYTHON = ("python", "python3", "py", "")


class CodeOptions(GraderOptions):
    """How programs are run. Refused where the machine has no sandbox that holds, unless it is allowed or remote."""

    partial_credit: bool = False
    """The share of tests that pass, instead of 1 for all and 0 otherwise."""
    test_seconds: float = Field(default=6.0, gt=0)
    """Time limit of one test."""
    total_seconds: float = Field(default=40.0, gt=0)
    """Time limit of all tests of a program; keep it below `rewards.timeout_seconds`."""
    memory_mib: int = Field(default=1024, ge=64)
    """Memory limit of a program."""
    allow_unsandboxed: bool = False
    """Run programs with the rights of this user where the machine has no sandbox."""
    remote_url: str | None = None
    """A sandbox server that is asked instead; docs/sandbox.md has the protocol."""

    @model_validator(mode="after")
    def _check_sandbox(self) -> "CodeOptions":
        if self.remote_url is None:
            _level(self.allow_unsandboxed)
        elif not self.remote_url.startswith(("http://", "https://")):
            raise ValueError(f"remote_url must begin with http:// or https://, got {self.remote_url!r}")
        return self


def grade_code(
    response: str, gold: str, mode: GradeMode = GradeMode.STRICT, options: CodeOptions | None = None
) -> Grade:
    """Grades by running tests.

    STRICT: the same lines, white space at their ends aside; the same JSON value and kind. LENIENT: integers
    exactly, other numbers within 1e-6, white space of any kind. Raises GoldError for tests that cannot be read,
    SandboxError where the sandbox fails.
    """
    options = options or CodeOptions()
    problem = read_cases(gold)
    program = last_program(after_thought(response))
    if program is None:
        return Grade(0.0, None, mode, "no closed Python block in the response")
    tally = _tally(program, problem, mode, options)
    share = tally.num_passed / tally.num_tests
    score = share if options.partial_credit else float(tally.num_passed == tally.num_tests)
    if tally.first_failure is None:
        return Grade(score, program, mode, f"all {tally.num_tests} tests pass")
    counted = f"{tally.num_passed} of {tally.num_tests} tests pass; " if options.partial_credit else ""
    return Grade(score, program, mode, f"{counted}{tally.first_failure}")


def last_program(text: str) -> str | None:
    """The last fenced block that is marked as Python, or else the last without a mark; None where there is none."""
    blocks = [(match[2].lower(), match[3]) for match in _BLOCK.finditer(text)]
    marked = [source for language, source in blocks if language in _PYTHON[:3]]
    unmarked = [source for language, source in blocks if language == ""]
    return next(iter(marked[-1:] or unmarked[-1:]), None)


def _tally(program: str, problem: Cases, mode: GradeMode, options: CodeOptions) -> Tally:
    limits = SandboxLimits(
        wall_seconds=options.test_seconds,
        cpu_seconds=max(1, round(options.test_seconds + 0.5)),
        memory_bytes=options.memory_mib * 2**20,
    )
    if options.remote_url is not None:
        return RemoteSandbox(options.remote_url, options.total_seconds).run_cases(program, problem, mode, limits)
    return run_cases(
        program,
        problem,
        mode,
        level=_level(options.allow_unsandboxed),
        limits=limits,
        total_seconds=options.total_seconds,
        run_all=options.partial_credit,
    )


@cache
def _level(allow_unsandboxed: bool) -> SandboxLevel:
    try:
        return strongest_level()
    except NoSandboxError:
        if allow_unsandboxed:
            return SandboxLevel.NONE
        raise
