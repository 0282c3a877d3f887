"""The same task, weights and hyperparameters on TRL and on strop: do both learn alike?

A self-written oracle can share a wrong sign, mask or denominator with the code it tests; another library cannot.
Usage, from the checkout:

    python3 -m venv .venv-trl && .venv-trl/bin/pip install torch==2.13.0 trl==1.16.0
    .venv/bin/python benchmarks/learning.py replay
    .venv/bin/python benchmarks/learning.py curves --svg docs/learning.svg

`replay` trains strop on the samples that TRL drew in its first steps: prompts and rewards must be equal, the first
gradient and the way that the weights went within tolerances. `curves` trains both sides, each on its own samples, with
every seed, and compares the mean rewards at the end and over the whole run. Both exit with 1 where the sides differ; of
six means, one may lie beyond two standard errors by chance: run more seeds. The task is in `learning_task.py`.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from learning_plot import as_svg
from learning_task import make_model

FOLDER = Path(__file__).parent
SIDES = ("strop", "trl")
LAST_STEPS = 10
"""The final reward is the mean over so many last steps."""
GRADIENT_TOLERANCE = 1e-4
"""Relative norm of the difference, the largest of all parameters, in float32."""
MOVE_TOLERANCE = 1e-2
"""The same for what was added to the weights in `REPLAYED_STEPS` updates."""
REPLAYED_STEPS = 10

Curve = dict[str, list[float]]


def ask(side: str, options: argparse.Namespace, **work: Any) -> Any:
    """Runs one side in its own environment and returns what it answers."""
    python = options.trl_python if side == "trl" else sys.executable
    environment = {**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [python, str(FOLDER / f"learning_{side}.py")],
        input=json.dumps(work) + "\n",
        capture_output=True,
        text=True,
        env=environment,
    )
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


# -------------------------------------------------------------------------------------------- replay


def compare_replay(options: argparse.Namespace, model: str) -> bool:
    equal = True
    print(
        "| algorithm | samples | cut by the budget | prompts that differ | rewards | first gradient | weights moved |"
    )
    print("|---|---|---|---|---|---|---|")
    for algorithm in options.algorithm:
        work = {"mode": "replay", "model": model, "algorithm": algorithm, "seed": 0, "steps": REPLAYED_STEPS}
        work |= {"learning_rate": options.learning_rate, "reward_weight": options.reward_weight, "out": model}
        drawn = ask("trl", options, **work)
        found = ask("strop", options, **work, samples=drawn, overrides=options.override)
        print(
            f"| {algorithm} | {found['samples']} | {found['samples_cut']} | {found['different_prompts']} "
            f"| {found['reward_difference']:.1g} | {found['gradient_difference']:.1e} "
            f"| {found['move_difference']:.1e} |",
            flush=True,
        )
        same_data = found["different_prompts"] == 0 and found["reward_difference"] < GRADIENT_TOLERANCE
        same_gradient = found["gradient_difference"] < GRADIENT_TOLERANCE
        equal = equal and same_data and same_gradient and found["move_difference"] < MOVE_TOLERANCE
    return equal


# -------------------------------------------------------------------------------------------- curves


def compare_curves(options: argparse.Namespace, model: str) -> bool:
    runs: dict[str, dict[str, list[Curve]]] = {}
    for algorithm in options.algorithm:
        runs[algorithm] = {side: [] for side in SIDES}
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            work = {"mode": "train", "model": model, "algorithm": algorithm, "seed": seed, "steps": options.steps}
            work["learning_rate"] = options.learning_rate
            runs[algorithm]["strop"].append(ask("strop", options, **work, overrides=options.override))
            runs[algorithm]["trl"].append(ask("trl", options, **work))
            print(f"{algorithm}, seed {seed}: {finals(runs[algorithm])}", file=sys.stderr, flush=True)
    if options.json:
        options.json.write_text(json.dumps(runs))
    return report(runs, options.svg)


def report(runs: dict[str, dict[str, list[Curve]]], svg: Path | None) -> bool:
    agree = print_finals(runs)
    print_curves(runs)
    if svg:
        rewards = {
            algorithm: {side: [run["rewards"] for run in sides[side]] for side in SIDES}
            for algorithm, sides in runs.items()
        }
        svg.write_text(as_svg(rewards))
    return agree


def finals(sides: dict[str, list[Curve]]) -> dict[str, list[float]]:
    return {side: [round(mean(run["rewards"][-LAST_STEPS:]), 3) for run in sides[side]] for side in SIDES}


def print_finals(runs: dict[str, dict[str, list[Curve]]]) -> bool:
    """Prints the table of rewards, at the end and over the whole run; says whether both agree."""
    agree = True
    print("| algorithm | reward | strop | TRL | difference | in standard errors |")
    print("|---|---|---|---|---|---|")
    for algorithm, sides in runs.items():
        for name, last in ((f"mean of the last {LAST_STEPS} steps", LAST_STEPS), ("mean of all steps", None)):
            values = [[mean(run["rewards"][-last if last else 0 :]) for run in sides[side]] for side in SIDES]
            (ours, our_error), (theirs, their_error) = map(mean_and_error, values)
            error = math.hypot(our_error, their_error)
            ratio = (ours - theirs) / error
            agree = agree and abs(ratio) <= 2
            print(
                f"| {algorithm} | {name} | {ours:.3f} ± {our_error:.3f} | {theirs:.3f} ± {their_error:.3f} "
                f"| {ours - theirs:+.3f} ± {error:.3f} | {ratio:+.1f} |"
            )
    return agree


def print_curves(runs: dict[str, dict[str, list[Curve]]], num_parts: int = 10) -> None:
    """Prints mean reward and mean length over the seeds, in parts of the run."""
    for algorithm, sides in runs.items():
        steps = len(sides["trl"][0]["rewards"])
        width = steps // num_parts
        print(f"\n| {algorithm}, steps | strop, reward | TRL, reward | strop, tokens | TRL, tokens |")
        print("|---|---|---|---|---|")
        for start in range(0, steps, width):
            part = slice(start, start + width)
            cells = [
                f"{mean([mean(run[what][part]) for run in sides[side]]):{digits}}"
                for what, digits in (("rewards", ".3f"), ("lengths", ".1f"))
                for side in SIDES
            ]
            print(f"| {start + 1} to {min(start + width, steps)} | {' | '.join(cells)} |")


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def mean_and_error(values: list[float]) -> tuple[float, float]:
    """Returns the mean and its standard error."""
    middle = mean(values)
    variance = sum((value - middle) ** 2 for value in values) / (len(values) - 1)
    return middle, math.sqrt(variance / len(values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["replay", "curves", "report"])
    parser.add_argument("--algorithm", nargs="+", default=["grpo", "dr_grpo", "dapo"])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument(
        "--reward-weight",
        type=float,
        default=1000.0,
        help="in replay; TRL adds 1e-4 to a group's deviation and strop 1e-6, which large rewards make alike",
    )
    parser.add_argument("--override", action="append", default=[], help="a key of strop's run file, to see it differ")
    parser.add_argument("--svg", type=Path, help="where to draw the curves")
    parser.add_argument("--json", type=Path, help="where to keep the curves; `report` reads them again")
    parser.add_argument("--trl-python", default=".venv-trl/bin/python")
    options = parser.parse_args()
    if options.what == "report":
        raise SystemExit(0 if report(json.loads(options.json.read_text()), options.svg) else 1)
    with tempfile.TemporaryDirectory() as model:
        make_model(Path(model))
        compare = compare_replay if options.what == "replay" else compare_curves
        raise SystemExit(0 if compare(options, model) else 1)


if __name__ == "__main__":
    main()
