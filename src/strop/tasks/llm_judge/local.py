"""Asks a language model of this process, through a sampler that is built for it.

The model is found when the run is prepared; its weights are loaded, and the sampler is built, with the first question.
"""

import asyncio
import hashlib
from collections.abc import Callable
from functools import cached_property

import torch

from strop.config.judges import NativeJudge
from strop.config.model import ModelConfig
from strop.data.renderer import ChatRenderer
from strop.errors import StropError
from strop.models.load import LoadedModel, load_model_config, load_policy, load_tokenizer
from strop.protocols import Sampler
from strop.records import FinishState, GroupRequest, Message, SamplingParams, StreamKey
from strop.tasks.llm_judge.engine import JudgeError

BuildSampler = Callable[[LoadedModel, torch.device], Sampler]
"""Builds the sampler of a loaded model on a device."""


class LocalModel:
    """A language model whose weights are loaded when they are first needed.

    Raises ModelError where the model is missing or of a kind that cannot be run.
    """

    def __init__(self, section: NativeJudge, device: Callable[[], torch.device], build_sampler: BuildSampler) -> None:
        self._section = ModelConfig(path=section.path, dtype=section.dtype)
        load_model_config(self._section)
        self.renderer = ChatRenderer(load_tokenizer(self._section))
        self._device, self._build_sampler = device, build_sampler

    @cached_property
    def loaded(self) -> LoadedModel:
        """The model with its weights."""
        return load_policy(self._section)

    @cached_property
    def sampler(self) -> Sampler:
        """What samples from it."""
        return self._build_sampler(self.loaded, self._device())


class LocalEngine:
    """Answers through a model of this process; implements `ChatEngine`.

    The random numbers of an answer are named by its question: the same question has the same answer.
    """

    def __init__(self, model: LocalModel, *, temperature: float, max_new_tokens: int, timeout_seconds: float) -> None:
        self._model = model
        self._temperature, self._max_new_tokens = temperature, max_new_tokens
        self._timeout_seconds = timeout_seconds

    async def answer(self, question: str) -> str:
        """The model's answer, special tokens left out; raises JudgeError where it has none within tokens and time."""
        stops = self._model.loaded.stops.token_ids
        sampling = SamplingParams(self._max_new_tokens, self._temperature, stop_token_ids=stops)
        name = hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()
        prompt_ids = self._model.renderer.render([Message(role="user", content=question)])
        request = GroupRequest(prompt_ids, (StreamKey(0, name, 0, 0, "judge"),), sampling)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                [completion] = await self._model.sampler.generate(request)
        except TimeoutError:
            raise JudgeError(f"the judge must answer within {self._timeout_seconds:g} s, and did not") from None
        except StropError as error:
            raise JudgeError(f"the judge cannot be asked: {error.message}") from error
        match completion.finish:
            case FinishState.STOPPED:
                return self._model.renderer.decode(completion.token_ids)
            case FinishState.LENGTH:
                raise JudgeError("the judge's answer was cut by judge.max_new_tokens, or by the model's maximum")
            case _:
                raise JudgeError(
                    f"the judge's answer {completion.finish.value}: {completion.error or 'no reason given'}"
                )
