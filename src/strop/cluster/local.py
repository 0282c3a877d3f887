"""Everything in this process, driven by one event loop.

    caller, no loop running      run(coroutine) --> the loop turns in the caller's thread
    caller inside a loop         run(coroutine) --> the same loop turns in a helper thread, the caller waits
    (a notebook)

There is one loop for the cluster's whole life, whoever turns it, so that engines may keep tasks and locks between two
calls. Between two calls nothing turns: what happens depends on the order of calls only.
"""

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, TypeVar

from strop.errors import StropError

_logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class StallError(StropError):
    """Work did not end within its bound; says who was waiting where."""

    exit_code = 3


class LocalCluster(AbstractContextManager["LocalCluster"]):
    """Hosts objects in this process and owns the event loop that drives them."""

    def __init__(self, *, close_timeout_seconds: float = 10.0) -> None:
        """Makes a cluster; `close_timeout_seconds` bounds how long `close` waits for tasks to end."""
        self._runner: asyncio.Runner | None = asyncio.Runner()
        self._helper: concurrent.futures.ThreadPoolExecutor | None = None
        self._hosted: dict[str, Any] = {}
        self._close_timeout_seconds = close_timeout_seconds

    def host(self, name: str, factory: Callable[[], _Result]) -> _Result:
        """Makes an object that lives here under a name of its own and returns it."""
        self._open_runner()
        if name in self._hosted:
            raise ValueError(f"each hosted object must have its own name, got {name!r} twice")
        self._hosted[name] = made = factory()
        return made

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what is hosted, in order."""
        return tuple(self._hosted)

    def run(self, coroutine: Coroutine[Any, Any, _Result], *, timeout_seconds: float | None = None) -> _Result:
        """Runs a coroutine to its end on the cluster's loop and returns its result.

        May be called while another loop runs in the calling thread; that loop stands still meanwhile. Raises
        StallError after `timeout_seconds`, naming every task that waits and where.
        """
        try:
            runner = self._open_runner()
        except RuntimeError:
            coroutine.close()
            raise
        work = coroutine if timeout_seconds is None else _bounded(coroutine, timeout_seconds)
        if _is_inside_a_loop():
            return self._run_in_helper(runner, work)
        return runner.run(work)

    def close(self) -> None:
        """Cancels what still runs, waits for it at most `close_timeout_seconds`, and lets the hosted objects go."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        self._hosted.clear()
        try:
            if _is_inside_a_loop():
                self._helper_thread().submit(self._end, runner).result()
            else:
                self._end(runner)
        finally:
            if self._helper is not None:
                self._helper.shutdown(wait=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open_runner(self) -> asyncio.Runner:
        if self._runner is None:
            raise RuntimeError("the cluster must be open, it was closed: make a new one")
        return self._runner

    def _run_in_helper(self, runner: asyncio.Runner, work: Coroutine[Any, Any, _Result]) -> _Result:
        future = self._helper_thread().submit(runner.run, work)
        try:
            return future.result()
        except BaseException:
            if not future.done():
                _cancel_soon(runner)
                concurrent.futures.wait([future], self._close_timeout_seconds)
            raise

    def _helper_thread(self) -> concurrent.futures.ThreadPoolExecutor:
        if self._helper is None:
            self._helper = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="strop-loop")
        return self._helper

    def _end(self, runner: asyncio.Runner) -> None:
        unwilling = runner.run(_cancel_all(self._close_timeout_seconds))
        if not unwilling:
            runner.close()
            return
        _logger.warning("left behind, since they did not end when cancelled: %s", "; ".join(unwilling))
        runner.get_loop().close()


def _is_inside_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _bounded(coroutine: Coroutine[Any, Any, _Result], timeout_seconds: float) -> _Result:
    work = asyncio.ensure_future(coroutine)
    try:
        done, _ = await asyncio.wait([work], timeout=timeout_seconds)
        if not done:
            waiting = "\n".join(f"  {line}" for line in _describe(asyncio.all_tasks() - {asyncio.current_task()}))
            raise StallError(f"work must end within {timeout_seconds:g} s, it did not. Waiting:\n{waiting}")
        return work.result()
    finally:
        work.cancel()


async def _cancel_all(timeout_seconds: float) -> list[str]:
    """Cancels all other tasks and describes those that do not end in time."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if not tasks:
        return []
    _, unwilling = await asyncio.wait(tasks, timeout=timeout_seconds)
    return _describe(unwilling)


def _cancel_soon(runner: asyncio.Runner) -> None:
    """Cancels the tasks of a loop that turns in another thread."""
    loop = runner.get_loop()
    loop.call_soon_threadsafe(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])


def _describe(tasks: "set[asyncio.Task[Any]] | set[asyncio.Task[Any] | None]") -> list[str]:
    """Returns one line for each task that still runs: its name and where it waits."""
    return sorted(
        f"{task.get_name()} waits in {_place(task)}" for task in tasks if task is not None and not task.done()
    )


def _place(task: "asyncio.Task[Any]") -> str:
    stack = task.get_stack(limit=1)
    if not stack:
        return "an unknown place"
    code = stack[0].f_code
    return f"{code.co_qualname} ({code.co_filename}:{stack[0].f_lineno})"
