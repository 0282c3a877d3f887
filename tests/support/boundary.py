"""The command line in this process: its exit code and what it printed."""

import contextlib
import io
import sys
from dataclasses import dataclass

import pytest
import torch

from strop.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    exit_code: int
    stdout: str
    stderr: str


def strop(*arguments: object) -> Outcome:
    """Runs `strop ARGUMENTS...` through the boundary that turns errors into messages."""
    stdout, stderr, exit_code = io.StringIO(), io.StringIO(), 0
    num_threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        patch.setattr(sys, "argv", ["strop", *map(str, arguments)])
        try:
            main()
        except SystemExit as ended:
            exit_code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    torch.set_num_threads(num_threads)
    return Outcome(exit_code, stdout.getvalue(), stderr.getvalue())


def assert_refused(outcome: Outcome, *fragments: str) -> None:
    """The command ended with a message that says all of this, and with the exit code of a mistake."""
    assert outcome.exit_code == 2, outcome.stdout + outcome.stderr
    assert outcome.stderr.startswith("error: ")
    missing = [fragment for fragment in fragments if fragment not in outcome.stderr]
    assert not missing, f"{missing} must be said in: {outcome.stderr}"
