"""A judge on the sampler of this process, and whole runs that models judge."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GenerationConfig

from strop import api
from strop.config.judges import JudgeConfig, LabelVerdict, NativeJudge, RewardModelConfig
from strop.config.rewards import RewardConfig
from strop.config.root import Config
from strop.data.errors import SettingError
from strop.errors import ModelError
from strop.records import Completion, FinishState, GroupRequest, Message, RewardPart
from strop.tasks.llm_judge.engine import JudgeError
from strop.tasks.llm_judge.local import LocalEngine, LocalModel
from strop.tasks.model_host import ModelHost
from strop.trainers.errors import NoRewardError
from strop.trainers.judge_sampler import _sampler, build_model_host
from support.groups import stopped_group
from support.reward_models import reward_folder
from support.runs import stored_metrics, tiny_run
from support.tiny import tiny_folder, tiny_model
from support.tokenizer import EOS_ID, tiny_tokenizer

LETTERS = {letter: place / 25 for place, letter in enumerate("abcdefghijklmnopqrstuvwxyz")}


def made_engine(folder: Path, **settings: Any) -> LocalEngine:
    model = LocalModel(NativeJudge(path=str(folder)), lambda: torch.device("cpu"), _sampler)
    return LocalEngine(model, **{"temperature": 0.0, "max_new_tokens": 8, "timeout_seconds": 60.0, **settings})


def brief_folder(tmp_path: Path) -> Path:
    """A tiny model that ends its turn with any of many tokens, so that its answers are whole."""
    folder = tiny_folder(tmp_path)
    GenerationConfig(eos_token_id=[EOS_ID, *range(8, 100)]).save_pretrained(folder)
    return folder


@torch.no_grad()
def greedy_ids(prompt_ids: list[int], stops: frozenset[int]) -> list[int]:
    """The oracle: the tiny model by transformers alone, one token after another, without cache."""
    model, ids = tiny_model("llama", attn="eager"), list(prompt_ids)
    while len(ids) - len(prompt_ids) < 40 and (len(ids) == len(prompt_ids) or ids[-1] not in stops):
        ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt_ids) :]


def test_the_answer_is_what_the_model_says_greedily(tmp_path: Path) -> None:
    engine = made_engine(brief_folder(tmp_path), max_new_tokens=40)
    for question in ("Is 1 good?", "Is it four?", "Why?"):
        prompt_ids = engine._model.renderer.render([Message(role="user", content=question)]).tolist()
        expected = greedy_ids(prompt_ids, engine._model.loaded.stops.token_ids)
        assert len(expected) < 40, "an answer that is cut shows nothing"
        assert asyncio.run(engine.answer(question)) == tiny_tokenizer().decode(expected, skip_special_tokens=True)


def test_an_answer_that_is_cut_or_late_or_cannot_be_asked_for_is_no_verdict(tmp_path: Path) -> None:
    folder = tiny_folder(tmp_path)
    with pytest.raises(JudgeError, match=r"was cut by judge\.max_new_tokens"):
        asyncio.run(made_engine(folder, max_new_tokens=1).answer("Is it good?"))
    with pytest.raises(JudgeError, match="must answer within 1e-06 s"):
        asyncio.run(made_engine(folder, timeout_seconds=1e-6, max_new_tokens=400).answer("Is it good?"))
    with pytest.raises(JudgeError, match="cannot be asked: a prompt must leave room"):
        asyncio.run(made_engine(folder).answer("good " * 600))


def test_the_same_question_has_the_same_answer_and_another_draws_anew(tmp_path: Path) -> None:
    engine = made_engine(brief_folder(tmp_path), temperature=1.0, max_new_tokens=200)

    async def answers(*questions: str) -> list[str]:
        return list(await asyncio.gather(*(engine.answer(one) for one in questions)))

    first = asyncio.run(answers("Good?", "Bad?", "Good?"))
    assert first[0] == first[2] != first[1]


class Recording:
    """A sampler that says nothing, and knows what it was asked."""

    def __init__(self) -> None:
        self.requests: list[GroupRequest] = []

    async def generate(self, request: GroupRequest) -> list[Completion]:
        self.requests.append(request)
        return [Completion(np.array([EOS_ID]), np.zeros(1, np.float32), np.zeros(1, np.int64), FinishState.STOPPED)]


def test_every_question_has_random_numbers_of_its_own(tmp_path: Path) -> None:
    recording = Recording()
    model = LocalModel(NativeJudge(path=str(tiny_folder(tmp_path))), lambda: torch.device("cpu"), lambda *_: recording)
    engine = LocalEngine(model, temperature=1.0, max_new_tokens=8, timeout_seconds=9.0)
    for question in ("Good?", "Bad?", "Good?"):
        assert asyncio.run(engine.answer(question)) == ""
    first, second, third = (request.streams for request in recording.requests)
    assert first == third != second


def native_judge(folder: Path, **settings: Any) -> JudgeConfig:
    return JudgeConfig(
        engine=NativeJudge(path=str(folder)),
        rubric="{completion}",
        verdict=LabelVerdict(labels=LETTERS),
        **{"max_new_tokens": 256, **settings},
    )


def test_a_judge_of_this_process_needs_a_sampler_and_a_model(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="must be asked in a run"):
        ModelHost().judge_reward("mine", native_judge(tmp_path), 1.0)
    with pytest.raises(ModelError, match="reward 'mine': "):
        build_model_host("cpu").judge_reward("mine", native_judge(tmp_path / "nowhere"), 1.0)


def test_two_judges_of_one_model_share_its_weights(tmp_path: Path) -> None:
    folder, host = tiny_folder(tmp_path), build_model_host("cpu")
    one, other = (host.judge_reward("mine", native_judge(folder, temperature=t), 1.0) for t in (0.0, 1.0))
    assert isinstance(one._engine, LocalEngine)
    assert isinstance(other._engine, LocalEngine)
    assert one._engine is not other._engine
    assert one._engine._model is other._engine._model


def test_a_group_is_judged_by_the_model_of_this_process(tmp_path: Path) -> None:
    judge = build_model_host("cpu").judge_reward("mine", native_judge(brief_folder(tmp_path), temperature=1.0), 60.0)
    parts: list[RewardPart] = asyncio.run(judge(stopped_group(64), [f"text {number}" for number in range(64)]))
    assert all((part.value is None) == (part.error is not None) for part in parts)
    assert all("must hold one of a, b" in part.error for part in parts if part.error)
    assert len({part.value for part in parts}) > 2


def with_rewards(config: Config, *rewards: RewardConfig) -> Config:
    return config.model_copy(update={"rewards": list(rewards)})


def test_a_run_is_trained_by_a_reward_model(tmp_path: Path) -> None:
    model = RewardConfig(model=RewardModelConfig(path=str(reward_folder(tmp_path))), name="liked")
    config = with_rewards(tiny_run(tmp_path / "run", run={"steps": 1}), model)
    result = api.train(config)
    [line] = [line for line in stored_metrics(result.folder) if line["step"] == 1]
    assert line["samples/error_share"] == 0
    assert line["reward/std"] > 0
    assert line["update/gradient_norm"] > 0


def test_a_run_that_only_a_silent_judge_judges_fails_with_the_reason(tmp_path: Path) -> None:
    run = tiny_run(tmp_path / "run", run={"steps": 4})
    judge = RewardConfig(judge=native_judge(Path(run.model.path), max_new_tokens=1), name="strict")
    with pytest.raises(NoRewardError, match=r"reward 'strict', prompt .*was cut by judge\.max_new_tokens"):
        api.train(with_rewards(run, judge))
