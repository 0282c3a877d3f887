"""A sandbox on another machine, asked by HTTP; docs/sandbox.md describes the protocol for whoever serves it.

The server gets the program and one input a run, never what is expected of it; outputs are compared here.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from strop.tasks.grading.grade import GradeMode
from strop.tasks.sandbox.cases import Cases
from strop.tasks.sandbox.client import Run, RunEnd, SandboxError
from strop.tasks.sandbox.limits import SandboxLimits
from strop.tasks.sandbox.verdict import Tally, failure_of

_NUM_TRIES = 3
_FIRST_PAUSE_SECONDS = 0.5
_MAX_ANSWER_BYTES = 2**27
_RETRIED = (429, 500, 502, 503, 504)


@dataclass(frozen=True, slots=True)
class RemoteSandbox:
    """A server that runs programs; `timeout_seconds` bounds one request, tries and pauses excluded."""

    url: str
    timeout_seconds: float = 60.0

    def run_cases(self, program: str, problem: Cases, mode: GradeMode, limits: SandboxLimits) -> Tally:
        """Runs all tests with one request.

        Raises SandboxError where the server does not answer, or answers something else, within a bounded number of
        tries: nothing is known of the program then.
        """
        runs = self._runs(_request(program, problem, limits))
        if len(runs) != len(problem.cases):
            raise SandboxError(f"{self.url} must answer one run a test ({len(problem.cases)}), got {len(runs)}")
        failures = [failure_of(run, case, problem.fn_name, mode) for run, case in zip(runs, problem.cases, strict=True)]
        first = next((f"test {place}: {text}" for place, text in enumerate(failures, start=1) if text), None)
        return Tally(failures.count(None), len(failures), first)

    def _runs(self, request: dict[str, Any]) -> list[Run]:
        body = json.dumps(request).encode()
        for number in range(_NUM_TRIES):
            if number:
                time.sleep(_FIRST_PAUSE_SECONDS * 2 ** (number - 1))
            try:
                return _read_runs(self._post(body))
            except urllib.error.HTTPError as error:
                if error.code not in _RETRIED:
                    raise SandboxError(f"{self.url} must answer 200, got {error.code} {error.reason}") from error
                problem = f"{error.code} {error.reason}"
            except (OSError, HTTPException) as error:
                problem = f"{type(error).__name__}: {error}"
            except ValueError as error:
                raise SandboxError(f"{self.url} must answer runs as JSON: {error}") from error
        raise SandboxError(f"{self.url} must answer within {_NUM_TRIES} tries, got {problem}")

    def _post(self, body: bytes) -> Any:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url, data=body, headers=headers, method="POST")
        with urllib.request.urlopen(request, timeout=self.timeout_seconds) as response:
            answer = response.read(_MAX_ANSWER_BYTES + 1)
        if len(answer) > _MAX_ANSWER_BYTES:
            raise ValueError(f"at most {_MAX_ANSWER_BYTES} bytes, got more")
        return json.loads(answer)


def _request(program: str, problem: Cases, limits: SandboxLimits) -> dict[str, Any]:
    tests: Sequence[dict[str, Any]] = [
        {"stdin": case.stdin} if problem.fn_name is None else {"arguments": case.arguments} for case in problem.cases
    ]
    return {
        "language": "python",
        "program": program,
        "fn_name": problem.fn_name,
        "tests": tests,
        "limits": {
            "wall_seconds": limits.wall_seconds,
            "cpu_seconds": limits.cpu_seconds,
            "memory_bytes": limits.memory_bytes,
            "output_bytes": limits.output_bytes,
        },
    }


def _read_runs(answer: Any) -> list[Run]:
    """Reads the answer; raises ValueError where it has another form."""
    if not isinstance(answer, dict) or not isinstance(answer.get("runs"), list):
        raise ValueError(f"an object with the list `runs`, got {str(answer)[:80]}")
    return [_read_run(run) for run in answer["runs"]]


def _read_run(run: Any) -> Run:
    if not isinstance(run, dict) or not all(isinstance(run.get(key, ""), str) for key in ("stdout", "detail")):
        raise ValueError(f"each run must be an object with texts, got {str(run)[:80]}")
    return Run(RunEnd(str(run.get("end"))), run.get("stdout", ""), json.dumps(run.get("result")), run.get("detail", ""))
