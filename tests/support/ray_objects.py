"""What tests host in Ray actors."""

import asyncio
import os
import time

from strop.errors import ConfigError
from strop.training.errors import TooManySkippedUpdates


class Counter:
    def __init__(self, start: int = 0) -> None:
        print(f"a counter begins at {start}", flush=True)
        self.value = start
        self.order: list[int] = []

    def add(self, amount: int, *, seconds: float = 0.0) -> int:
        time.sleep(seconds)
        self.order.append(amount)
        self.value += amount
        return self.value

    def calls(self) -> list[int]:
        return self.order

    async def wait(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "waited"

    def variable(self, name: str) -> str | None:
        return os.environ.get(name)

    def refuse(self) -> None:
        raise ConfigError("it must be 1, got 2", "Set it to 1.")

    def skip_too_often(self) -> None:
        raise TooManySkippedUpdates(3, [(0, 1)])

    def die(self) -> None:
        os._exit(1)


def refusing() -> Counter:
    raise ConfigError("a counter must have a start, got none")
