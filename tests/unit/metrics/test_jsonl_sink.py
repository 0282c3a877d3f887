"""`metrics.jsonl` holds every finished step once, whatever happened to the process that wrote it."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strop.errors import ConfigError, DataError
from strop.metrics import maximum, mean
from strop.metrics.sinks import JsonlSink, read_metrics

KEEP_WRITING = """
import itertools, sys
from pathlib import Path
from strop.metrics import mean
from strop.metrics.sinks import JsonlSink
sink = JsonlSink(Path(sys.argv[1]))
for step in itertools.count(1):
    sink.log(step, {"reward/mean": mean(step, 1)})
    print(step, flush=True)
"""


def write(path: Path, steps: range, resume_step: int | None = None) -> None:
    sink = JsonlSink(path, resume_step)
    for step in steps:
        sink.log(step, {"reward/mean": mean(step, 2)})
    sink.close()


def steps_of(path: Path) -> list[int]:
    return [line["step"] for line in read_metrics(path)]


def test_a_line_is_a_flat_json_object_with_the_step_first(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    sink = JsonlSink(path)
    sink.log(3, {"b": maximum(math.inf), "a": mean(1, 2), "c": mean(0, 0)})
    sink.close()
    assert list(json.loads(path.read_text()).items()) == [("step", 3), ("a", 0.5), ("b", math.inf)]


def test_a_new_run_refuses_the_file_of_another_and_names_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 3))
    with pytest.raises(ConfigError, match=r"run\.name"):
        JsonlSink(path)
    assert steps_of(path) == [1, 2]


def test_a_step_that_is_logged_twice_is_refused(tmp_path: Path) -> None:
    sink = JsonlSink(tmp_path / "metrics.jsonl")
    sink.log(4, {})
    with pytest.raises(ValueError, match="got step 4 after 4"):
        sink.log(4, {})


def test_resume_cuts_later_steps_and_a_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(6))
    with path.open("ab") as file:
        file.write(b'{"step": 6, "reward/me')
    assert steps_of(path) == [0, 1, 2, 3, 4, 5]
    write(path, range(4, 6), resume_step=3)
    assert steps_of(path) == [0, 1, 2, 3, 4, 5]
    assert path.read_bytes().endswith(b"}\n")


def test_resume_where_nothing_was_written_yet_starts_the_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    write(path, range(1, 3), resume_step=0)
    assert steps_of(path) == [1, 2]


def test_a_damaged_line_is_named_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\nnonsense\n')
    with pytest.raises(DataError, match="line 2"):
        read_metrics(path)


def test_a_killed_process_loses_no_step_that_it_had_logged(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", KEEP_WRITING, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    confirmed = [int(line) for line in process.stdout.read().split()]
    process.wait()
    assert steps_of(path)[: confirmed[-1]] == list(range(1, confirmed[-1] + 1))
