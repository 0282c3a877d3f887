"""A small server that speaks OpenAI's chat completions over real sockets, and misbehaves as it is told."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reply:
    """What a request gets."""

    text: str = "Score: 7"
    """The answer, where `status` is 200 and `raw` is left out."""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """The whole body instead of a chat completion."""
    finish: str = "stop"
    seconds: float = 0.0
    """How long it takes."""
    drops: bool = False
    """Whether the connection is closed in the middle of the answer."""

    def body(self) -> bytes:
        if self.raw is not None:
            return self.raw
        message = {"role": "assistant", "content": self.text}
        return json.dumps({"choices": [{"message": message, "finish_reason": self.finish}]}).encode()


HANGS = Reply(seconds=3600.0)
DROPS = Reply(drops=True)
BUSY = Reply(status=429, raw=b"slow down")


@dataclass
class ChatServer:
    """What the server was asked, and where it is."""

    reply: Callable[[int, dict[str, Any]], Reply]
    """From the number of the request and its body to what it gets."""
    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    most_at_once: int = 0
    _num_open: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers the requests of one connection."""
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.paths.append(head[0])
        self.headers.append(headers)
        self.bodies.append(body)
        self.times.append(asyncio.get_running_loop().time())
        reply = self.reply(len(self.bodies) - 1, body)
        self._num_open += 1
        self.most_at_once = max(self.most_at_once, self._num_open)
        try:
            await asyncio.sleep(reply.seconds)
        finally:
            self._num_open -= 1
        content = reply.body()
        extra = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        writer.write(f"HTTP/1.1 {reply.status} X\r\nContent-Length: {len(content)}\r\n{extra}\r\n".encode())
        writer.write(content[: len(content) // 2] if reply.drops else content)
        await writer.drain()
        return not reply.drops


@contextmanager
def chat_server(reply: Callable[[int, dict[str, Any]], Reply] | Sequence[Reply]) -> Iterator[ChatServer]:
    """Serves in a thread of its own; a sequence of replies is given in order, the last one to all that follow."""
    script = reply if callable(reply) else lambda number, _: reply[min(number, len(reply) - 1)]
    server = ChatServer(script)
    loop = asyncio.new_event_loop()
    listening = loop.run_until_complete(asyncio.start_server(server.serve, "127.0.0.1", 0))
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(_stop(listening), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _stop(listening: asyncio.Server) -> None:
    listening.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
