"""Objects in processes of their own, called over a pipe: what a cluster of actors does, in a few lines."""

import asyncio
import functools
import inspect
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

_END_SECONDS = 10


class Child:
    """A process that hosts one object at a time; a `transfer.Channel` to it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        self.was_killed = False
        theirs.close()
        self._numbers = itertools.count()
        self._waiting: dict[int, tuple[asyncio.AbstractEventLoop, asyncio.Future[Any]]] = {}
        threading.Thread(target=self._read, daemon=True).start()

    async def make(self, factory: Callable[[], Any]) -> None:
        """Makes the hosted object anew."""
        await self._ask("make", factory)

    async def call(self, method: str, *args: Any) -> Any:
        """Calls a method of the hosted object; raises ConnectionError where the process has ended."""
        return await self._ask("call", method, args)

    def kill(self) -> None:
        """Ends the process as the system would."""
        self.was_killed = True
        os.kill(self.process.pid or 0, signal.SIGKILL)

    def end(self) -> None:
        """Ends the process."""
        if self.process.is_alive():
            self.kill()
        self.process.join(_END_SECONDS)

    async def _ask(self, *question: Any) -> Any:
        number, loop = next(self._numbers), asyncio.get_running_loop()
        answer = loop.create_future()
        self._waiting[number] = (loop, answer)
        try:
            self._pipe.send((number, *question))
        except OSError as error:
            raise ConnectionError("its process has ended") from error
        return await answer

    def _read(self) -> None:
        while True:
            try:
                number, result, error = self._pipe.recv()
            except (EOFError, OSError):
                self._fail_all()
                return
            self._answer(number, result, error)

    def _fail_all(self) -> None:
        for number in list(self._waiting):
            self._answer(number, None, ConnectionError("its process has ended"))

    def _answer(self, number: int, result: Any, error: BaseException | None) -> None:
        loop, answer = self._waiting.pop(number)
        if not loop.is_closed():
            loop.call_soon_threadsafe(_settle, answer, result, error)


class Pool:
    """Processes that are used again by the next test, as long as they live."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        self._num_taken = 0

    def take(self) -> Child:
        """Returns a process that nobody has taken since the last `give_back`."""
        if self._num_taken == len(self._children):
            self._children.append(Child())
        self._num_taken += 1
        return self._children[self._num_taken - 1]

    def give_back(self) -> None:
        """Makes all processes free again, and forgets those that were killed."""
        self._children = [child for child in self._children if not child.was_killed]
        self._num_taken = 0

    def end(self) -> None:
        """Ends all processes."""
        for child in self._children:
            child.end()


def _settle(answer: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)


def _serve(pipe: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    asyncio.run(_Server(pipe).run())


class _Server:
    """Coroutines run on the loop, everything else in one thread, in the order of the calls."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._made: Any = None
        self._thread = ThreadPoolExecutor(1)
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                question = await loop.run_in_executor(None, self._pipe.recv)
            except (EOFError, OSError):
                os._exit(0)
            task = asyncio.create_task(self._answer(*question))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, kind: str, what: Any, args: tuple[Any, ...] = ()) -> None:
        try:
            if kind == "make":
                self._made = what()
                result = None
            else:
                result = await self._result(getattr(self._made, what), args)
            self._pipe.send((number, result, None))
        except Exception as error:  # noqa: BLE001 - the border of the process: the caller raises it again
            self._pipe.send((number, None, _portable(error)))

    async def _result(self, method: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if inspect.iscoroutinefunction(method):
            return await method(*args)
        return await asyncio.get_running_loop().run_in_executor(self._thread, functools.partial(method, *args))


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - any exception class may refuse to be pickled in any way
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
