"""Writes the demo's word problems: `python examples/demo_problems.py` makes the two files in examples/data anew.

Each row has a question and an answer. Held-out questions share no pair of numbers with the training ones.
"""

import json
import random
from pathlib import Path

NAMES = ("Mia", "Tom", "Ana", "Ben", "Zoe", "Max", "Ida", "Leo")
THINGS = ("apples", "books", "coins", "shells", "marbles", "pencils")
LARGEST = 20
NUM_TRAINING, NUM_HELD_OUT = 600, 128


def problem(rng: random.Random, first: int, second: int) -> dict[str, str]:
    """A story about two numbers: one gets more, or gives some away."""
    name, thing = rng.choice(NAMES), rng.choice(THINGS)
    if rng.random() < 0.5:
        question = f"{name} has {first} {thing} and gets {second} more. How many {thing} does {name} have now?"
        return {"question": question, "answer": str(first + second)}
    most, least = max(first, second), min(first, second)
    question = f"{name} has {most} {thing} and gives away {least}. How many {thing} are left?"
    return {"question": question, "answer": str(most - least)}


def main() -> None:
    """Writes both files next to this one."""
    rng = random.Random(0)
    pairs = [(first, second) for first in range(1, LARGEST + 1) for second in range(1, LARGEST + 1)]
    rng.shuffle(pairs)
    held_out, training = pairs[:NUM_HELD_OUT], pairs[NUM_HELD_OUT:]
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    rows = {
        "demo_train.jsonl": [problem(rng, *rng.choice(training)) for _ in range(NUM_TRAINING)],
        "demo_held_out.jsonl": [problem(rng, *pair) for pair in held_out],
    }
    for name, problems in rows.items():
        text = "".join(json.dumps(row) + "\n" for row in problems)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
