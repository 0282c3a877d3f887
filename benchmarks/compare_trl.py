"""Runs the same work on strop and on TRL in turn and prints the ratios pair by pair, with their medians.

    python3 -m venv .venv-trl && .venv-trl/bin/pip install torch==2.13.0 trl==1.16.0
    .venv/bin/python benchmarks/compare_trl.py --model FOLDER --prompt-tokens 64 --pairs 3

FOLDER is a Hugging Face folder of SmolLM2-135M-Instruct, such as the one that `make demo` leaves in the cache.
Both sides get the same prompts per step, group size, token counts and threads; TRL trains `--micro-batch`
sequences at once, strop the tokens of as many samples of one group.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def last_json(command: list[str]) -> dict[str, Any]:
    """Runs a command and reads the JSON object of its last line that has one."""
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in output.splitlines() if line.startswith('{"')]
    report: dict[str, Any] = json.loads(lines[-1])
    return report


def run_strop(options: argparse.Namespace) -> dict[str, Any]:
    micro_batch_tokens = options.prompt_tokens + options.micro_batch * options.new_tokens
    command = [str(Path(sys.executable).parent / "strop"), "bench", "step", "--json", "--model", options.model]
    command += ["--prompts", "4", "--group-size", "8", "--prompt-tokens", str(options.prompt_tokens)]
    command += ["--new-tokens", str(options.new_tokens), "--steps", str(options.steps)]
    return last_json([*command, "--micro-batch-tokens", str(micro_batch_tokens)])


def run_trl(options: argparse.Namespace) -> dict[str, Any]:
    command = [options.trl_python, str(HERE / "trl_step.py"), "--model", options.model]
    command += ["--prompt-tokens", str(options.prompt_tokens), "--new-tokens", str(options.new_tokens)]
    return last_json([*command, "--steps", str(options.steps + 1), "--micro-batch", str(options.micro_batch)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--micro-batch", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1, help="counted steps of a run, after one to warm up")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--trl-python", default=".venv-trl/bin/python")
    options = parser.parse_args()
    speed, memory = [], []
    for pair in range(options.pairs):
        ours, theirs = run_strop(options), run_trl(options)
        speed.append(statistics.median(theirs["step_seconds"]) / statistics.median(ours["step_seconds"]))
        memory.append(ours["peak_memory_bytes"] / theirs["peak_memory_bytes"])
        print(json.dumps({"pair": pair, "strop": ours, "trl": theirs}), flush=True)
        print(f"pair {pair}: {speed[-1]:.2f} times as fast, {memory[-1]:.2f} of the peak memory", flush=True)
    faster, smaller = statistics.median(speed), statistics.median(memory)
    print(f"median of {options.pairs}: {faster:.2f} times as fast, {smaller:.2f} of the peak memory")


if __name__ == "__main__":
    main()
