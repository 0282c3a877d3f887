"""A reward model's score as a reward function, in this process.

    groups judged in one turn of the loop --> waiting --> pump: batch, let the loop turn, batch, ... --> scores

The weights are loaded with the first group. The pump is a task that the first group starts and that ends when nothing
waits. Each pump has requests of its own: what it raises reaches everybody who waits for it, and nobody else.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from strop.config.judges import RewardModelConfig
from strop.records import Group, Message, RewardPart
from strop.tasks.parts import lost_part, part_of, place_of
from strop.tasks.returned import read_number
from strop.tasks.reward_model.batches import RowScorer
from strop.tasks.reward_model.conversation import ConversationReader, TokenRow, UnreadableError
from strop.tasks.reward_model.loading import find_model, load_weights


@dataclass(frozen=True)
class _Request:
    rows: Sequence[TokenRow]
    scores: "asyncio.Future[list[float]]"


class ScoringModel:
    """A reward model that many rewards and groups may ask at once."""

    def __init__(self, section: RewardModelConfig, reward: str, device: Callable[[], torch.device]) -> None:
        """Finds and checks the model; the device is asked for when the weights are loaded.

        Raises ModelError where it is no reward model (see `find_model`), SettingError where its tokenizer does not fit
        `reads`.
        """
        self._section, self._device = section, device
        self._found = find_model(section)
        self._reader = ConversationReader(self._found.tokenizer, section, reward)
        self._scorer: RowScorer | None = None
        self._waiting: list[_Request] = []
        """What the newest pump has to answer."""
        self._pump: asyncio.Task[None] | None = None

    @property
    def max_tokens(self) -> int | None:
        """The longest conversation that it reads."""
        return self._found.max_tokens

    def read(self, messages: Sequence[Message], completion: str) -> TokenRow:
        """The tokens of one conversation; raises UnreadableError."""
        return self._reader.read(messages, completion)

    async def score(self, rows: Sequence[TokenRow]) -> list[float]:
        """The scores of rows that are not too long, in order, as each has alone; normalised by `mean` and `scale`."""
        loop = asyncio.get_running_loop()
        if self._pump is None or self._pump.done():
            self._waiting = []
            self._pump = loop.create_task(self._run(self._waiting))
            self._pump.add_done_callback(partial(_pass_on, self._waiting))
        request = _Request(rows, loop.create_future())
        self._waiting.append(request)
        return await request.scores

    async def _run(self, waiting: list[_Request]) -> None:
        await asyncio.sleep(0)
        scorer = self._loaded()
        while waiting:
            taken = list(waiting)
            rows = [row for request in taken for row in request.rows]
            scores = [math.nan] * len(rows)
            for places, values in scorer.batches(rows):
                for place, value in zip(places, values, strict=True):
                    scores[place] = (value - self._section.mean) / self._section.scale
                await asyncio.sleep(0)
            for request in taken:
                own, scores = scores[: len(request.rows)], scores[len(request.rows) :]
                if not request.scores.done():
                    request.scores.set_result(own)
            del waiting[: len(taken)]

    def _loaded(self) -> RowScorer:
        if self._scorer is None:
            model = load_weights(self._section, self._found, self._device())
            last_id = self._found.tokenizer.eos_token_id
            self._scorer = RowScorer(
                model,
                self._found.output,
                batch_tokens=self._section.batch_tokens,
                last_id=last_id if isinstance(last_id, int) else None,
            )
        return self._scorer


def _pass_on(waiting: list[_Request], pump: "asyncio.Task[None]") -> None:
    """Tells everybody who still waits for a pump what ended it."""
    error = None if pump.cancelled() else pump.exception()
    for request in waiting:
        if request.scores.done():
            continue
        if error is None:
            request.scores.cancel()
        else:
            request.scores.set_exception(error)


class ModelReward:
    """Judges samples by a reward model; implements `RewardFunction`.

    A conversation that is longer than the model may read, or that its template refuses, makes its sample invalid: it is
    never cut.
    """

    def __init__(self, name: str, model: ScoringModel) -> None:
        self.name = name
        self._model = model

    def check_columns(self, columns: frozenset[str]) -> None:
        """Does nothing: a reward model reads no columns."""

    async def __call__(self, group: Group, completions: Sequence[str]) -> list[RewardPart]:
        """Returns one part a sample, in order."""
        start = time.perf_counter()
        places = [place_of(self.name, group.prompt.prompt_id, sample.index) for sample in group.samples]
        parts: dict[int, RewardPart] = {}
        rows: dict[int, TokenRow] = {}
        for number, text in enumerate(completions):
            try:
                rows[number] = self._readable(group.prompt.messages, text)
            except UnreadableError as error:
                parts[number] = lost_part(str(error), places[number], time.perf_counter() - start)
        scores = await self._model.score(list(rows.values())) if rows else []
        seconds = time.perf_counter() - start
        for number, score in zip(rows, scores, strict=True):
            parts[number] = part_of(read_number(score), places[number], seconds)
        return [parts[number] for number in range(len(places))]

    def _readable(self, messages: Sequence[Message], text: str) -> TokenRow:
        row, most = self._model.read(messages, text), self._model.max_tokens
        if most is not None and row.num_tokens > most:
            raise UnreadableError(
                f"the reward model reads at most {most} tokens, got a conversation of {row.num_tokens}, and none is cut"
            )
        if row.num_tokens == 0:
            raise UnreadableError("the reward model must have a token to read, got a conversation of none")
        return row
