"""vLLM's asynchronous engine on an event loop and thread of its own, in front of the processes that it starts.

    caller's loop --call(coroutine)--> host's loop: AsyncLLM --sockets--> vLLM's engine process --> its workers

vLLM's client belongs to the loop it was made in; callers may come from one loop after another.
"""

import asyncio
import atexit
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from strop.errors import ModelError
from strop.rollout.vllm.settings import set_environment

_Answer = TypeVar("_Answer")


class VllmHost:
    """Owns the thread, its loop, and vLLM's `AsyncLLM`."""

    def __init__(self, args: Mapping[str, Any], variables: Mapping[str, str]) -> None:
        """Starts vLLM and waits until its model is loaded. Raises ModelError where it does not start."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vllm-host", daemon=True)
        self._thread.start()
        self.llm: Any = None
        try:
            with set_environment(variables):
                self.llm = asyncio.run_coroutine_threadsafe(_start(args), self._loop).result()
        except (RuntimeError, ValueError, OSError) as error:
            self._stop_loop()
            raise ModelError(
                f"vLLM did not start: {error}", "The lines above, from vLLM's processes, say why."
            ) from error
        atexit.register(self.close)

    async def call(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Runs a coroutine on the host's loop; cancelling the call cancels it there."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    def call_and_wait(self, coroutine: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Runs a coroutine on the host's loop and blocks; for callers without a loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def on_workers(self, method: str, *args: Any) -> Any:
        """Calls a method of the worker and returns its answer; on the host's loop only."""
        (answer,) = await self.llm.collective_rpc(method, args=args)
        return answer

    def close(self) -> None:
        """Ends vLLM's processes. Safe to call twice; happens by itself at exit."""
        if self.llm is None:
            return
        self.call_and_wait(_shut_down(self.llm))
        self.llm = None
        self._stop_loop()
        atexit.unregister(self.close)

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)


async def _start(args: Mapping[str, Any]) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    return AsyncLLM.from_engine_args(AsyncEngineArgs(**args))


async def _shut_down(llm: Any) -> None:
    """Ends vLLM's processes, then lets its own tasks end."""
    llm.shutdown()
    await asyncio.sleep(0.1)
