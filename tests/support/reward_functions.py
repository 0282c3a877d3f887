"""Reward functions as people write them, good and bad. Loaded in child processes: imports nothing heavy."""

import asyncio
import contextlib
import ctypes
import numbers
import os
import signal
import time
from typing import Any

_CALLS: list[float] = []


def arguments(completion: str, prompt: Any, finish: str, answer: int, scale: float, other: int = 5) -> float:
    """Says by an error what it was given."""
    raise ValueError(repr(locals()))


def group_arguments(completions: list[str], answer: list[int], **rest: Any) -> list[float]:
    raise ValueError(repr(dict(rest, answer=answer)))


def score(completion: str, answer: str) -> float:
    return float(completion == answer)


async def score_async(completion: str, answer: str) -> float:
    await asyncio.sleep(0)
    return float(completion == answer)


def score_group(completions: list[str], answer: list[str], **rest: Any) -> list[float]:
    return [float(completion == gold) for completion, gold in zip(completions, answer, strict=True)]


def number(completion: str) -> float:
    return float(completion)


def length(completion: str) -> int:
    return len(completion)


def huge(completion: str) -> float:
    return 1e37 * len(completion)


def one(completion: str) -> float:
    return 1.0


def nothing(completion: str) -> None:
    return None


def inverse_length(completion: str) -> float:
    return 1 / len(completion)


def scaled(completion: str, scale: float = 1) -> float:
    return scale


def leaving(completion: str) -> float:
    raise SystemExit(3)


def too_few(completions: list[str]) -> list[float]:
    return [1.0]


def bare_number(completions: list[str]) -> float:
    return 1.0


def text(completions: list[str]) -> str:
    return "ab"


def failing_group(completions: list[str]) -> list[float]:
    return [1 / 0]


def array(completions: list[str]) -> Any:
    import numpy as np

    return np.array([float(completion == "a") for completion in completions])


def mixed(completions: list[str]) -> list[Any]:
    return [None, True, "1", float("nan")]


def bystander_count(completions: list[str]) -> list[float]:
    return [float(len(completions))] * len(completions)


def doing(completion: str) -> float:
    """Does to its process what the completion says."""
    if completion == "segfault":
        ctypes.string_at(0)
    if completion == "exit":
        os._exit(0)
    if completion == "slow":
        time.sleep(60)
    if completion == "hoard":
        return len([bytearray(2**24) for _ in range(1000)])
    return 1.0


async def doing_async(completion: str) -> float:
    await asyncio.sleep(60 if completion == "slow" else 0)
    if completion == "raise":
        raise ValueError("as told")
    return 1.0


class _Unreadable:
    """A number whose text and value cannot be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __float__(self) -> float:
        raise RuntimeError("no value")


numbers.Real.register(_Unreadable)


class _NoText:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


async def raising_async(completion: str) -> Any:
    """Ends as the completion says."""
    await asyncio.sleep(0)
    match completion:
        case "cancelled":
            raise asyncio.CancelledError("by a library")
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "out of time":
            raise TimeoutError("my client gave up after 1 s")
        case "cancels itself":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        case "no text":
            return _NoText()
        case "no value":
            return _Unreadable()
        case "Ctrl-C":
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(1)
    return 1.0


async def changing_async(completion: str, prompt: list[dict[str, str]], meta: dict[str, int]) -> float:
    """Changes what it was given, and says how often that was done before."""
    meta["calls"] += 1
    prompt[0]["content"] += "!"
    return float(meta["calls"] + prompt[0]["content"].count("!"))


async def changing_group_async(
    completions: list[str], prompts: list[list[dict[str, str]]], meta: list[dict[str, int]]
) -> list[float]:
    return [await changing_async("", prompts[0], meta[0])] * len(completions)


async def stubborn_async(completion: str) -> float:
    """Does not end when it is cancelled, for some seconds."""
    for _ in range(3):
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0.5)
    return 1.0


def counting(completion: str) -> float:
    """Counts its calls in the module, and says where two overlap."""
    _CALLS.append(time.monotonic())
    time.sleep(0.01)
    if time.monotonic() - _CALLS[-1] < 0.009:
        raise RuntimeError("calls overlap")
    return float(len(_CALLS))


async def counting_async(completion: str) -> float:
    """Says how many calls run."""
    _CALLS.append(0.0)
    await asyncio.sleep(0.05)
    return float(len(_CALLS))


class _Awaitable:
    async def __call__(self, completion: str) -> float:
        return 1.0


awaitable = _Awaitable()


def misspelt(completion: str, anwser: str, level: int = 1) -> float:
    return 1.0


def positional(completion: str, /) -> float:
    return 1.0


def both(completion: str, completions: list[str]) -> float:
    return 1.0


def neither(text: str, **rest: Any) -> float:
    return 1.0
