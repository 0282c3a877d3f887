"""Writes the demo's word problems: `python examples/demo_problems.py` makes the two files in examples/data anew.

Each row has a question and an answer. Held-out questions share no pair of numbers, in
either order, with the training ones, and no question comes twice.
"""

import json
import random
from pathlib import Path

NAMES = ("Mia", "Tom", "Ana", "Ben", "Zoe", "Max", "Ida", "Leo")
THINGS = ("apples", "books", "coins", "shells", "marbles", "pencils")
LARGEST = 12
NUM_TRAINING, NUM_HELD_OUT = 600, 128
NUM_HELD_OUT_PAIRS = 28


def problem(rng: random.Random, first: int, second: int) -> dict[str, str]:
    """A story about two numbers: one gets more, or gives some away."""
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    if rng.random() < 0.5:
        question = f"{name} has {first} {thing} and gets {second} more. How many {thing} does {name} have now?"
        return {"question": question, "answer": str(first + second)}
    most, least = max(first, second), min(first, second)
    question = f"{name} has {most} {thing} and gives away {least}. How many {thing} are left?"
    return {"question": question, "answer": str(most - least)}


def problems_of(rng: random.Random, pairs: list[tuple[int, int]], count: int) -> list[dict[str, str]]:
    """Different problems about these pairs, in either order."""
    problems: dict[str, dict[str, str]] = {}
    while len(problems) < count:
        first, second = rng.sample(rng.choice(pairs), 2)
        row = problem(rng, first, second)
        problems[row["question"]] = row
    return list(problems.values())


def main() -> None:
    """Writes both files next to this one."""
    rng = random.Random(0)
    pairs = [(first, second) for first in range(1, LARGEST + 1) for second in range(1, first + 1)]
    rng.shuffle(pairs)
    held_out, training = pairs[:NUM_HELD_OUT_PAIRS], pairs[NUM_HELD_OUT_PAIRS:]
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    rows = {
        "demo_train.jsonl": problems_of(rng, training, NUM_TRAINING),
        "demo_held_out.jsonl": problems_of(rng, held_out, NUM_HELD_OUT),
    }
    for name, problems in rows.items():
        text = "".join(json.dumps(row) + "\n" for row in problems)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
