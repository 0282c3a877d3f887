"""Counts gradings a second in isolated processes, as a run makes them: group by group, from an event loop.

    .venv/bin/python benchmarks/gradings.py

Prints one JSON line a grader: gsm8k and math through `GradedReward`, a plain function through `FunctionReward`, and
programs in the sandbox (two tests each).
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from strop.protocols import RewardFunction
from strop.records import FinishState, Group, Prompt, Sample
from strop.tasks.choice import ColumnChoice
from strop.tasks.function_reward import FunctionReward
from strop.tasks.graded import GradedReward

GROUP_SIZE = 8
TESTS = json.dumps({"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]})
PROGRAM = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
THOUGHT = "First I add the apples and the pears, which gives 40. Then I take away what was eaten.\n" * 10


def group_of(**columns: Any) -> Group:
    samples = tuple(Sample(index=index, rows=(), finish=FinishState.STOPPED) for index in range(GROUP_SIZE))
    return Group(Prompt("bench:0", 0, np.array([1]), (), task="columns", columns=columns), samples)


async def judge(reward: RewardFunction, group: Group, completion: str, num_groups: int) -> float:
    """Returns the seconds for all groups, started together as the end of a rollout does."""
    start = time.perf_counter()
    answers = await asyncio.gather(*(reward(group, [completion] * GROUP_SIZE) for _ in range(num_groups)))
    seconds = time.perf_counter() - start
    wrong = [part for parts in answers for part in parts if part.value != 1]
    if wrong:
        raise RuntimeError(f"every grading must give 1, got {wrong[0]}")
    return seconds


def measure(name: str, reward: RewardFunction, group: Group, completion: str, num_groups: int) -> None:
    start = time.perf_counter()
    asyncio.run(judge(reward, group, completion, 1))
    first = time.perf_counter() - start
    times = [asyncio.run(judge(reward, group, completion, num_groups)) for _ in range(3)]
    count = num_groups * GROUP_SIZE
    rates = sorted(count / seconds for seconds in times)
    print(json.dumps({"grader": name, "gradings": count, "first_seconds": first, "per_second": rates}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--programs", type=int, default=10, help="groups of programs")
    options = parser.parse_args()
    answer = ColumnChoice("data.answer_column", None, ("answer",))
    gsm8k, math, code = (GradedReward.by_answer(name, answer) for name in ("gsm8k", "math", "code"))
    measure("gsm8k", gsm8k, group_of(answer="42"), f"{THOUGHT}#### 42", options.groups)
    measure("math", math, group_of(answer=r"\frac{1}{2}"), rf"{THOUGHT}\boxed{{\frac12}}", options.groups)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mine.py"
        file.write_text("def reward(completion, answer):\n    return float(completion.endswith(answer))\n")
        measure("a function", FunctionReward(f"{file}:reward"), group_of(answer="42"), f"{THOUGHT}42", options.groups)
    measure("code", code, group_of(answer=TESTS), PROGRAM, options.programs)


if __name__ == "__main__":
    main()
