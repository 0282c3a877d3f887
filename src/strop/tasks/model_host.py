"""The models that rewards ask, each loaded once however many rewards and tasks ask it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from strop.config.judges import JudgeConfig, NativeJudge, RewardModelConfig, ServerJudge
from strop.data.errors import SettingError
from strop.errors import ModelError
from strop.tasks.llm_judge.engine import ChatEngine
from strop.tasks.llm_judge.local import BuildSampler, LocalEngine, LocalModel
from strop.tasks.llm_judge.reward import JudgeReward
from strop.tasks.reward_model.reward import ModelReward, ScoringModel


def _main_memory() -> torch.device:
    return torch.device("cpu")


class ModelHost:
    """Builds rewards by models, on the device of the run.

    Its methods raise ModelError and SettingError, naming the reward, where a model cannot be what the run file says.
    """

    def __init__(
        self, device: Callable[[], torch.device] = _main_memory, build_sampler: BuildSampler | None = None
    ) -> None:
        """`device` is asked for when weights are loaded; `build_sampler` is needed for judges of this process only."""
        self._device = device
        self._build_sampler = build_sampler
        self._reward_models: dict[RewardModelConfig, ScoringModel] = {}
        self._local_models: dict[NativeJudge, LocalModel] = {}

    def model_reward(self, name: str, section: RewardModelConfig) -> ModelReward:
        """The reward of a reward model."""
        if section not in self._reward_models:
            with _naming(name):
                self._reward_models[section] = ScoringModel(section, name, self._device)
        return ModelReward(name, self._reward_models[section])

    def judge_reward(self, name: str, judge: JudgeConfig, timeout_seconds: float) -> JudgeReward:
        """The reward of a judge."""
        with _naming(name):
            return JudgeReward(name, judge, self._engine(judge, timeout_seconds))

    def _engine(self, judge: JudgeConfig, timeout_seconds: float) -> ChatEngine:
        temperature, max_new_tokens = judge.temperature, judge.max_new_tokens
        match judge.engine:
            case ServerJudge() as server:
                from strop.tasks.llm_judge.server import ServerEngine

                return ServerEngine(
                    server, temperature=temperature, max_new_tokens=max_new_tokens, timeout_seconds=timeout_seconds
                )
            case NativeJudge() as section:
                return LocalEngine(
                    self._local_model(section),
                    temperature=temperature,
                    max_new_tokens=max_new_tokens,
                    timeout_seconds=timeout_seconds,
                )

    def _local_model(self, section: NativeJudge) -> LocalModel:
        if self._build_sampler is None:
            raise SettingError("a judge with `engine.type` native must be asked in a run, which has a sampler")
        if section not in self._local_models:
            self._local_models[section] = LocalModel(section, self._device, self._build_sampler)
        return self._local_models[section]


@contextmanager
def _naming(reward: str) -> Iterator[None]:
    """Says which reward an error about a model is about."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"reward {reward!r}: {error.message}", error.remedy) from error
