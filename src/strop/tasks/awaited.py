"""Calls of an async function of the user's, in this process: bounded in time, and whatever they raise is data.

    caller --(time limit)--> task of the call --> values, or what is wrong

The call is a task of its own, so that a function that cancels, or is cancelled by a library of its own, is told from
the run being stopped. Ctrl-C is never taken for a fault of the function, wherever it arrives.
"""

import asyncio
import dis
import signal
from collections.abc import Awaitable, Callable
from copy import deepcopy
from functools import partial
from types import CodeType
from typing import Any

from strop.tasks.isolation.outcome import Outcome
from strop.tasks.isolation.told import told
from strop.tasks.returned import read_list, read_number

_END_SECONDS = 10.0
"""How long a call that is cancelled may take to end; it is left behind then."""
_RAISE = frozenset({dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"]})


async def outcome_of(
    function: Callable[..., Awaitable[Any]], arguments: dict[str, Any], num_samples: int | None, timeout_seconds: float
) -> Outcome:
    """Awaits one call; `num_samples` is None for a function that judges one sample.

    The arguments are copied first: as in a child process, nothing that the function changes in them reaches the data.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    call = loop.create_task(_call(function, arguments, num_samples))
    try:
        await asyncio.wait([call], timeout=timeout_seconds)
        if call.done() and not call.cancelled():
            return Outcome(*call.result(), seconds=loop.time() - start)
    finally:
        if not call.done():
            call.cancel()
            await asyncio.wait([call], timeout=_END_SECONDS)
    seconds = loop.time() - start
    if seconds < timeout_seconds:
        return Outcome(error="must return, and its task was cancelled", seconds=seconds)
    return Outcome(error=f"must return within {timeout_seconds:g} seconds, and did not", seconds=seconds)


async def _call(
    function: Callable[..., Awaitable[Any]], arguments: dict[str, Any], num_samples: int | None
) -> tuple[Any, str | None]:
    """The values of a call, or what is wrong; only Ctrl-C, and being cancelled from outside, get through."""
    try:
        returned = await function(**deepcopy(arguments))
        return [read_number(returned)] if num_samples is None else read_list(returned, num_samples), None
    except BaseException as error:  # the boundary where a failed call becomes data
        own = asyncio.current_task()
        is_cancelled = isinstance(error, asyncio.CancelledError) and own is not None and own.cancelling() > 0
        if is_cancelled or (isinstance(error, KeyboardInterrupt) and is_interrupt(error)):
            raise
        return None, told(error)


def is_interrupt(error: KeyboardInterrupt) -> bool:
    """Whether a signal raised it, between two instructions or in its handler, rather than a line of a function."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    code = trace.tb_frame.f_code
    return code is _handler_code() or code.co_code[trace.tb_lasti] not in _RAISE


def _handler_code() -> CodeType | None:
    """The code of the handler of SIGINT; None where it is none of Python's functions."""
    handler: Any = signal.getsignal(signal.SIGINT)
    while isinstance(handler, partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    return getattr(handler, "__code__", None)
