"""A person reads plain lines in a file, a display in a terminal, and a heartbeat where it is silent."""

import io
import threading
import time
from dataclasses import dataclass

import pytest

from strop.config.metrics import MetricsConfig
from strop.metrics import Metrics, maximum, mean, total
from strop.metrics.console import Console
from strop.metrics.heartbeat import Heartbeat
from strop.metrics.score import Score


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass(frozen=True)
class Beats:
    heartbeat_seconds: float


def step_metrics(**extra: float) -> Metrics:
    metrics = {
        "reward/mean": mean(17, 32),
        "reward/std": mean(0.41, 1),
        "reward/solved_share": mean(17, 32),
        "groups/zero_signal_share": mean(1, 4),
        "samples/truncated_share": mean(1, 32),
        "samples/error_share": mean(0, 32),
        "update/gradient_norm": maximum(0.4213),
        "tokens/sampled": total(820),
        "timing/step_seconds": maximum(4.1),
        "timing/rollout_seconds": maximum(2.2),
        "timing/update_seconds": maximum(1.6),
    }
    return metrics | {name.replace("__", "/"): maximum(value) for name, value in extra.items()}


def lines_of(stream: io.StringIO) -> list[str]:
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def wait_until_printed(stream: io.StringIO, text: str) -> None:
    deadline = time.monotonic() + 10
    while text not in stream.getvalue():
        assert time.monotonic() < deadline, f"{text!r} was not printed in 10 s: {stream.getvalue()!r}"
        time.sleep(0.01)


def test_a_file_gets_one_plain_line_a_step_with_the_bottleneck_first() -> None:
    stream = io.StringIO()
    console = Console(MetricsConfig(), stream=stream)
    console.run_started(["strop", "run folder: runs/a"], total_steps=60)
    console.step(12, 60, step_metrics())
    console.step(13, 60, step_metrics())
    console.close()
    assert lines_of(stream) == [
        "strop",
        "run folder: runs/a",
        " step reward(std) solved no signal  cut  err   grad tok/s  seconds: longest phase first",
        "12/60  0.53(0.41)    53%       25%   3%   0%  0.421   200  4.1: rollout 2.2, update 1.6, other 0.3",
        "13/60  0.53(0.41)    53%       25%   3%   0%  0.421   200  4.1: rollout 2.2, update 1.6, other 0.3",
    ]
    assert "\x1b" not in stream.getvalue()


def test_a_new_quantity_brings_a_new_heading() -> None:
    stream = io.StringIO()
    console = Console(MetricsConfig(), stream=stream)
    console.step(1, 60, step_metrics())
    console.step(2, 60, step_metrics(kl__reference=0.0031, groups__sampling_rounds=2))
    console.close()
    headings = [line for line in lines_of(stream) if "reward" in line]
    assert ["kl" in line and "rounds" in line for line in headings] == [False, True]


def test_a_terminal_shows_the_running_phase_and_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    stream = Terminal()
    console = Console(MetricsConfig(), stream=stream)
    console.run_started(["strop"], total_steps=60)
    with console.phase("rollout", lambda: "12/32 samples"):
        wait_until_printed(stream, "12/32 samples")
    console.step(1, 60, step_metrics())
    console.close()
    assert "\x1b[" in stream.getvalue()
    assert "4.1: rollout 2.2" in stream.getvalue()


def test_silence_is_broken_by_a_line_that_names_the_phase() -> None:
    stream = io.StringIO()
    console = Console(Beats(0.05), stream=stream)
    with console.phase("rollout", lambda: "12/32 samples"):
        wait_until_printed(stream, "... rollout for 0 s: 12/32 samples")
    console.close()
    after_close = stream.getvalue()
    time.sleep(0.2)
    assert stream.getvalue() == after_close


def test_closing_twice_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    console = Console(Beats(30.0), stream=io.StringIO())
    began = time.monotonic()
    console.close()
    console.close()
    assert threading.active_count() == before
    assert time.monotonic() - began < 5


def test_a_line_in_time_keeps_the_heartbeat_quiet() -> None:
    beats: list[float] = []
    heartbeat = Heartbeat(1.0, lambda: beats.append(time.monotonic()))
    heartbeat.start()
    for _ in range(8):
        time.sleep(0.2)
        heartbeat.heard()
    heartbeat.stop()
    assert beats == []


def test_the_seconds_of_a_phase_reach_the_metrics() -> None:
    console = Console(MetricsConfig(), stream=io.StringIO())
    with console.phase("update"):
        time.sleep(0.02)
    metrics = console.clock.take()
    console.close()
    assert metrics["timing/update_seconds"].value >= 0.02


def test_the_table_of_before_and_after_is_plain_in_a_file() -> None:
    stream = io.StringIO()
    console = Console(MetricsConfig(), stream=stream)
    console.evaluation("before training", {"sampled": Score(0.031, 0.015, 128)})
    console.comparison({"sampled": Score(0.031, 0.015, 128)}, {"sampled": Score(0.782, 0.02, 128)})
    console.close()
    text = stream.getvalue()
    assert "evaluation before training: sampled 3.1% ± 1.5 (128 prompts, ± standard error)" in text
    assert "78.2% ± 2.0" in text
    assert "+75.1 ± 2.5" in text
    assert "\x1b" not in text
