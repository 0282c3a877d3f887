"""The demo's rewards: plain functions that get the completion and the columns of the row by name."""

import re

NUMBER = re.compile(r"\d+")


def answers(completion: str, answer: str, finish: str) -> float:
    """1 where the answer ends by itself and its last number is the right one."""
    numbers = NUMBER.findall(completion)
    return float(finish == "stopped" and bool(numbers) and numbers[-1] == answer)


def number_anywhere(completion: str, answer: str) -> float:
    """1 where the right number stands anywhere, whatever the form: reported beside, never trained on."""
    return float(answer in NUMBER.findall(completion))
