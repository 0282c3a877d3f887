"""Asks a server that speaks OpenAI's chat completions (`POST URL/chat/completions`), as many do.

    answer --(a slot of `concurrency`)--> try --ok--> text
                                           | busy (429), failing (408, 5xx), out of reach, out of time
                                           +--> wait, twice as long each time or as the server says --> next try

A try ends with its time limit, whatever the server does, and reads at most `MAX_BODY_BYTES`, as UTF-8 whatever the
headers say; a wait is at most `LONGEST_PAUSE_SECONDS`. The key is read
once from the environment, is sent in the header alone, and is cut out of whatever an error repeats.
"""

import asyncio
import json
import math
import os
from collections.abc import Mapping
from typing import Any

from strop.config.judges import ServerJudge
from strop.data.errors import SettingError, require_package
from strop.tasks.llm_judge.body import BodyReader
from strop.tasks.llm_judge.engine import JudgeError

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
_BUSY_OR_FAILING = frozenset({408, 429}) | frozenset(range(500, 600))
_SHOWN_CHARACTERS = 200


class _PassingError(Exception):
    """A failure that may pass."""

    def __init__(self, reason: str, pause_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.pause_seconds = pause_seconds
        """How long the server asks to wait."""


class ServerEngine:
    """Answers through a server; implements `ChatEngine`.

    Raises SettingError where the environment lacks the key, MissingPackageError without the HTTP client.
    """

    def __init__(
        self,
        config: ServerJudge,
        *,
        temperature: float,
        max_new_tokens: int,
        timeout_seconds: float,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        require_package("httpx2", "judge", "a judge behind a server")
        import httpx2

        self._address = f"{config.url.rstrip('/')}/chat/completions"
        try:
            httpx2.URL(self._address)
        except httpx2.InvalidURL as error:
            raise SettingError(f"rewards.judge.engine.url must be an address, got {config.url!r}: {error}") from error
        self._fields = {
            "model": config.model,
            "temperature": temperature,
            "max_tokens": max_new_tokens,
            **config.options,
        }
        self._key = _key(config.api_key_variable)
        self._tries, self._concurrency = config.retries + 1, config.concurrency
        self._timeout_seconds, self._first_pause_seconds = timeout_seconds, first_pause_seconds
        self._certificates = httpx2.create_ssl_context()
        self._slots: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    async def answer(self, question: str) -> str:
        """The server's answer; raises JudgeError where all tries failed, or the first in a way that will not pass."""
        body = json.dumps({**self._fields, "messages": [{"role": "user", "content": question}]}).encode()
        async with self._slot():
            for number in range(self._tries):
                try:
                    return await self._try(body)
                except _PassingError as error:
                    last = error
                if number + 1 < self._tries:
                    await asyncio.sleep(self._pause_seconds(number, last.pause_seconds))
        tries = "1 try" if self._tries == 1 else f"{self._tries} tries"
        raise JudgeError(f"the judge's server gave no answer in {tries}, the last: {last}")

    def _slot(self) -> asyncio.Semaphore:
        """The slots of this event loop: a semaphore belongs to one, and the self-test has one of its own."""
        loop = asyncio.get_running_loop()
        if self._slots is None or self._slots[0] is not loop:
            self._slots = loop, asyncio.Semaphore(self._concurrency)
        return self._slots[1]

    async def _try(self, body: bytes) -> str:
        import httpx2

        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip, deflate"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            async with (
                asyncio.timeout(self._timeout_seconds),
                httpx2.AsyncClient(verify=self._certificates, timeout=None) as client,
                client.stream("POST", self._address, content=body, headers=headers) as response,
            ):
                content = await BodyReader(response.headers.get("content-encoding", "")).read(response.aiter_raw())
        except TimeoutError:
            raise _PassingError(f"it must answer within {self._timeout_seconds:g} s, and did not") from None
        except httpx2.TransportError as error:
            raise _PassingError(f"{type(error).__name__}: {error}") from error
        return self._read(response.status_code, response.headers, content.decode("utf-8", errors="replace"))

    def _read(self, status: int, headers: Mapping[str, str], text: str) -> str:
        if status in _BUSY_OR_FAILING:
            raise _PassingError(f"status {status}: {self._shown(text)}", _asked_pause(headers.get("retry-after")))
        if status != 200:
            raise JudgeError(f"the judge's server must answer with status 200, got {status}: {self._shown(text)}")
        content, finish = _content(text)
        if content is None:
            raise JudgeError(f"the judge's server must send a chat completion with text, got {self._shown(text)}")
        if finish == "length":
            raise JudgeError("the judge's answer was cut by judge.max_new_tokens, or by the server's own limit")
        if finish == "content_filter":
            raise JudgeError("the judge's answer was cut by the server's content filter")
        return content

    def _pause_seconds(self, number: int, asked: float | None) -> float:
        own = self._first_pause_seconds * 2.0**number
        return min(own if asked is None else max(own, asked), LONGEST_PAUSE_SECONDS)

    def _shown(self, text: str) -> str:
        """The beginning of a server's text, without the key: some repeat it."""
        return repr(text.replace(self._key, "(key)")[:_SHOWN_CHARACTERS] if self._key else text[:_SHOWN_CHARACTERS])


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise SettingError(
            f"rewards.judge.engine.api_key_variable must name an environment variable with a key, got {variable!r}, "
            "which is empty or not set",
            f"Run: export {variable}=... before strop.",
        )
    if not (key.isascii() and key.isprintable()):
        raise SettingError(f"the key in the environment variable {variable!r} must be printable ASCII")
    return key


def _content(text: str) -> tuple[str | None, Any]:
    """The text of the first choice and how it finished; None where the answer is no chat completion."""
    try:
        choice = json.loads(text)["choices"][0]
        content, finish = choice["message"]["content"], choice.get("finish_reason")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None, None
    return (content if isinstance(content, str) else None), finish


def _asked_pause(header: str | None) -> float | None:
    """The seconds of a Retry-After header; dates are not read."""
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
