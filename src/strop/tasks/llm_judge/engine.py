"""Who answers a judge's question."""

from typing import Protocol


class JudgeError(Exception):
    """Why a sample has no verdict, in words; it becomes data."""


class ChatEngine(Protocol):
    """Answers one question, put as the only message of a chat."""

    async def answer(self, question: str) -> str:
        """The whole answer; raises JudgeError where there is none, or where it was cut by its budget."""
