"""A language model's judgement as a reward function."""

import asyncio
import time
from collections.abc import Sequence

from strop.config.judges import JudgeConfig
from strop.records import Group, RewardPart
from strop.tasks.llm_judge.engine import ChatEngine, JudgeError
from strop.tasks.llm_judge.rubric import Rubric
from strop.tasks.llm_judge.verdict import verdict_reader
from strop.tasks.parts import lost_part, part_of, place_of
from strop.tasks.returned import read_number


class JudgeReward:
    """Asks a language model about every sample, all samples of a group at once; implements `RewardFunction`.

    Where there is no answer, or no verdict in it, the sample is invalid, with the reason. Raises SettingError for a
    rubric or a pattern that cannot be read.
    """

    def __init__(self, name: str, config: JudgeConfig, engine: ChatEngine) -> None:
        self.name = name
        self._engine = engine
        self._rubric = Rubric.read(config.rubric, name)
        self._read = verdict_reader(config.verdict, name)

    def check_columns(self, columns: frozenset[str]) -> None:
        """Raises SettingError where the rubric names something that is no column of every row."""
        self._rubric.check_columns(columns)

    async def __call__(self, group: Group, completions: Sequence[str]) -> list[RewardPart]:
        """Returns one part a sample, in order."""
        pairs = zip(group.samples, completions, strict=True)
        return list(await asyncio.gather(*(self._judge(group, sample.index, text) for sample, text in pairs)))

    async def _judge(self, group: Group, index: int, completion: str) -> RewardPart:
        place, start = place_of(self.name, group.prompt.prompt_id, index), time.perf_counter()
        try:
            value = self._read(await self._engine.answer(self._rubric.fill(group.prompt, completion)))
        except JudgeError as error:
            return lost_part(str(error), place, time.perf_counter() - start)
        return part_of(read_number(value), place, time.perf_counter() - start)
