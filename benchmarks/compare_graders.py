"""Compares our scores of a JSONL file with those of verl, TRL and math-verify, and the speed with math-verify's.

    python benchmarks/compare_graders.py FILE.jsonl --python OTHER_ENVIRONMENT/bin/python [--speed]

Rows have scorer (`gsm8k`, `math` or `final_answer`), response, gold, score and perhaps mode. The other scorers run in
an environment of their own, in a child process a row, so that one which hangs or crashes costs that row:

    python -m venv OTHER && OTHER/bin/pip install math-verify packaging pylatexenc numpy
    OTHER/bin/pip install --no-deps verl trl

Their scoring files are run as released. Of verl and TRL only those files are imported, since the packages around them
want Ray and torch (verl's prime_math wants torch all the same). A grader of theirs is asked about the rows that it is
made for. TRL's None (a gold answer that it cannot read) is counted as no score, which agrees with nothing.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGE_VARIABLE = "COMPARE_GRADERS_PACKAGE"
ROW_SECONDS = 40.0
SPEED_SECONDS = 10.0
OTHERS = {
    "verl gsm8k": ("gsm8k",),
    "verl math_reward": ("math",),
    "verl math_dapo": ("math", "final_answer"),
    "verl prime_math": ("math",),
    "verl math_verify": ("math",),
    "TRL accuracy_reward": ("math",),
    "math-verify": ("gsm8k", "math", "final_answer"),
}


def enter_package(path: str) -> None:
    """Lets modules of a package be imported without running the packages around them."""
    import importlib.util
    import types

    parts = path.split(".")
    root = Path(importlib.util.find_spec(parts[0]).submodule_search_locations[0])
    for depth in range(len(parts)):
        module = types.ModuleType(".".join(parts[: depth + 1]))
        module.__path__ = [str(root.joinpath(*parts[1 : depth + 1]))]
        sys.modules[module.__name__] = module


if PACKAGE_VARIABLE in os.environ:  # in the processes that a scorer of theirs starts
    enter_package(os.environ[PACKAGE_VARIABLE])


def load_other(name: str) -> Callable[[str, str], float | None]:
    """A scorer of another package; runs in the other environment."""
    import importlib

    kind, _, scorer = name.partition(" ")
    package = {"verl": "verl.utils.reward_score", "TRL": "trl.rewards"}.get(kind)
    if package is not None:
        os.environ[PACKAGE_VARIABLE] = package
        enter_package(package)
    if kind == "verl":
        module = importlib.import_module(f"verl.utils.reward_score.{scorer}")
        return lambda response, gold: as_number(module.compute_score(response, gold))
    if kind == "TRL":
        reward = importlib.import_module("trl.rewards.accuracy_rewards").accuracy_reward
        return lambda response, gold: reward([[{"role": "assistant", "content": response}]], [gold])[0]
    from math_verify import parse, verify

    return lambda response, gold: float(verify(parse(rf"\boxed{{{gold}}}"), parse(response)))


def as_number(result: Any) -> float:
    """verl's scorers return a number, a dictionary or a tuple; DAPO's gives -1 for wrong."""
    if isinstance(result, dict):
        result = result["score"]
    if isinstance(result, tuple | list):
        result = result[0]
    return max(0.0, float(result))


def serve(name: str) -> None:
    """Scores rows from standard input, one JSON line each; the child's side."""
    replies, sys.stdout = sys.stdout, sys.stderr  # some scorers print
    score = load_other(name)
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        row = json.loads(line)
        try:
            result: Any = score(row["response"], row["gold"])
        except (Exception, SystemExit) as error:  # noqa: BLE001 - what a scorer of theirs raises is a result here
            result = f"{type(error).__name__}"
        print(json.dumps({"score": result}), file=replies, flush=True)


class Child:
    """One process of the other environment, started anew where a row hangs or kills it."""

    def __init__(self, python: str, name: str) -> None:
        self.command = [python, __file__, "--serve", name]
        self.process: subprocess.Popen[str] | None = None

    def score(self, row: dict[str, Any]) -> float | str | None:
        """The score, or the name of what went wrong."""
        import selectors

        if self.process is None:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            if self.process.stdout.readline().strip() != "ready":
                return self.stopped("cannot be loaded")
        self.process.stdin.write(json.dumps(row) + "\n")
        self.process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(ROW_SECONDS):
                return self.stopped(f"over {ROW_SECONDS:g} s")
        line = self.process.stdout.readline()
        return json.loads(line)["score"] if line else self.stopped("crashed")

    def stopped(self, reason: str) -> str:
        """Ends the process; returns the reason."""
        self.process.kill()
        self.process.wait()
        self.process = None
        return reason


def compare(rows: list[dict[str, Any]], python: str) -> None:
    """Prints the table of agreement, and every row that somebody gets wrong."""
    from strop.tasks.grade_rows import grade_answer
    from strop.tasks.grading.grade import GradeMode

    results: dict[str, dict[int, Any]] = {"strop": {}}
    for place, row in enumerate(rows):
        mode = GradeMode(row["mode"]) if "mode" in row else None
        results["strop"][place] = grade_answer(row["scorer"], row["response"], row["gold"], mode).score
    for name, scorers in OTHERS.items():
        child = Child(python, name)
        asked = [place for place, row in enumerate(rows) if row["scorer"] in scorers]
        results[name] = {place: child.score(rows[place]) for place in asked}
        if child.process is not None:
            child.stopped("")
    kinds = ("gsm8k", "math", "final_answer")
    print(f"| scorer | {' | '.join(kinds)} | right answers given 0 | wrong answers given 1 | errors |")
    print("|---|---|---|---|---|---|---|")
    for name, scores in results.items():
        print(table_row(name, scores, rows, kinds))
    for name, scores in results.items():
        wrong = [f"{rows[p].get('id', p)} ({s})" for p, s in scores.items() if s != rows[p]["score"]]
        print(f"\n{name}: {', '.join(wrong) or 'all right'}", file=sys.stderr)


def table_row(name: str, scores: dict[int, Any], rows: list[dict[str, Any]], kinds: tuple[str, ...]) -> str:
    """One line of the table."""
    cells = []
    for kind in kinds:
        of_kind = [place for place in scores if rows[place]["scorer"] == kind]
        right = sum(scores[place] == rows[place]["score"] for place in of_kind)
        cells.append(f"{right} of {len(of_kind)}" if of_kind else "")
    numbers = {place: score for place, score in scores.items() if isinstance(score, float | int)}
    too_low = sum(score < rows[place]["score"] for place, score in numbers.items())
    too_high = sum(score > rows[place]["score"] for place, score in numbers.items())
    return f"| {name} | {' | '.join(cells)} | {too_low} | {too_high} | {len(scores) - len(numbers)} |"


def gradings_a_second(score: Callable[[str, str], Any], rows: list[dict[str, Any]]) -> float:
    """Repeats the rows for some seconds in this process."""
    for row in rows:
        score(row["response"], row["gold"])
    start, done = time.perf_counter(), 0
    while time.perf_counter() - start < SPEED_SECONDS:
        for row in rows:
            score(row["response"], row["gold"])
        done += len(rows)
    return done / (time.perf_counter() - start)


def speed_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows on maths that both can take: short ones, without the tower of powers that costs math-verify seconds."""
    return [
        row for row in rows if row["scorer"] == "math" and len(row["response"]) < 300 and "^{9^" not in row["response"]
    ]


def main() -> None:
    """Reads the arguments and runs what they ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--python", default=sys.executable, help="Python of the other environment.")
    parser.add_argument("--speed", action="store_true", help="Measure gradings a second instead.")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    rows = [json.loads(line) for line in arguments.file.read_text().splitlines() if line.strip()]
    if not arguments.speed:
        compare(rows, arguments.python)
        return
    measure(speed_rows(rows))


def measure(rows: list[dict[str, Any]]) -> None:
    """Prints the speeds of our graders and of math-verify, all in this process."""
    from strop.tasks.grading.grade import GradeMode
    from strop.tasks.grading.math import clear_cache, grade_math

    def uncached(response: str, gold: str) -> Any:
        clear_cache()
        return grade_math(response, gold, GradeMode.LENIENT)

    print(f"{len(rows)} rows, each repeated for {SPEED_SECONDS:g} seconds, one process")
    for name, score in (
        ("strop math, strict", lambda response, gold: grade_math(response, gold, GradeMode.STRICT)),
        ("strop math, lenient", lambda response, gold: grade_math(response, gold, GradeMode.LENIENT)),
        ("strop math, lenient, nothing kept between gradings", uncached),
        ("math-verify", load_other("math-verify")),
    ):
        print(f"{name}: {gradings_a_second(score, rows):,.0f} gradings a second", flush=True)


if __name__ == "__main__":
    main()
