"""Rewards of a group: decoded, judged, added up, and tested on gold answers."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from strop.config.data import DataConfig
from strop.config.rewards import RewardConfig
from strop.data import ChatRenderer
from strop.records import FinishState, Group, RewardPart, Sample
from strop.tasks import (
    QuestionTask,
    WeightedReward,
    build_rewards,
    build_task,
    check_rewards,
    combine_rewards,
    completion_text,
    reward_group,
    score_gold,
)
from strop.tasks.function_reward import FunctionReward
from support.groups import made_prompt, made_row
from support.tokenizer import IM_END_ID, tiny_tokenizer

STOPPED, LENGTH, ABORTED, FAILED = FinishState


def make_task(name: str = "gsm8k", **settings: Any) -> QuestionTask:
    config = DataConfig.model_validate({"source": {"type": "jsonl", "path": "x"}, "task": name, **settings})
    return build_task(name, config)


@pytest.fixture
def renderer() -> ChatRenderer:
    return ChatRenderer(tiny_tokenizer())


def encode(text: str) -> list[int]:
    return list(tiny_tokenizer().encode(text, add_special_tokens=False))


def make_sample(index: int, text: str, finish: FinishState = STOPPED) -> Sample:
    tail = [IM_END_ID] if finish is STOPPED else []
    return Sample(index, (made_row(([1, 2], False), (encode(text) + tail, True)),), finish)


def make_group(*samples: Sample, **columns: Any) -> Group:
    return Group(made_prompt(**{"question": "?", "answer": "7", **columns}), samples)


def weighted(function: str, name: str, weight: float = 1.0) -> WeightedReward:
    return WeightedReward(FunctionReward(f"support.reward_functions:{function}", name=name), name, weight)


@pytest.mark.parametrize(
    ("parts", "reward"),
    [
        ({"a": RewardPart(1.0), "b": RewardPart(0.5, weight=2.0)}, 2.0),
        ({"a": RewardPart(1.0), "b": RewardPart(0.5, weight=-2.0)}, 0.0),
        ({"a": RewardPart(1.0), "b": RewardPart(None)}, None),
        ({"a": RewardPart(1.0), "b": RewardPart(None, weight=0.0)}, 1.0),
        ({"a": RewardPart(1.0), "b": RewardPart(5.0, weight=0.0)}, 1.0),
        ({"a": RewardPart(None, weight=0.0)}, None),
        ({}, None),
        ({"a": RewardPart(3e38, weight=2.0)}, None),
        ({"a": RewardPart(3e38), "b": RewardPart(3e38)}, None),
        ({"a": RewardPart(3e38), "b": RewardPart(-3e38)}, 0.0),
        ({"a": RewardPart(1e300, weight=1e300), "b": RewardPart(1e300, weight=-1e300)}, None),
    ],
)
def test_a_reward_is_the_weighted_sum_unless_a_part_that_bears_weight_is_invalid(
    parts: dict[str, RewardPart], reward: float | None
) -> None:
    assert combine_rewards(parts) == reward


def test_a_group_is_decoded_and_judged_by_the_grader_of_its_task(renderer: ChatRenderer) -> None:
    rewards = build_rewards([RewardConfig(function="task")], make_task())
    group = make_group(make_sample(0, "#### 7"), make_sample(1, "#### 8"), make_sample(2, "#### 7", LENGTH))
    rewarded = asyncio.run(reward_group(group, rewards, renderer))
    assert [sample.reward for sample in rewarded.samples] == [1.0, 0.0, 1.0]
    assert rewarded.samples[0].reward_parts == {"gsm8k": RewardPart(1.0)}


def test_failed_and_aborted_samples_keep_no_reward_and_are_not_judged(renderer: ChatRenderer) -> None:
    group = make_group(
        make_sample(0, "a", FAILED), make_sample(1, "b"), make_sample(2, "c", ABORTED), make_sample(3, "d", LENGTH)
    )
    counting = weighted("bystander_count", "mine")
    rewarded = asyncio.run(reward_group(group, [counting], renderer))
    assert [sample.reward for sample in rewarded.samples] == [None, 2.0, None, 2.0]
    assert [sample.index for sample in rewarded.samples] == [0, 1, 2, 3]
    unjudged = make_group(make_sample(0, "a", FAILED))
    assert asyncio.run(reward_group(unjudged, [counting], renderer)) == unjudged


def test_parts_of_several_rewards_are_kept_with_weight_and_error(renderer: ChatRenderer) -> None:
    rewards = [
        weighted("length", "length", 0.5),
        weighted("number", "broken", 0.0),
    ]
    [sample] = asyncio.run(reward_group(make_group(make_sample(0, "four")), rewards, renderer)).samples
    assert sample.reward == 2.0
    assert sample.reward_parts["length"] == RewardPart(4.0, weight=0.5)
    assert sample.reward_parts["broken"].value is None
    assert "ValueError" in (sample.reward_parts["broken"].error or "")


def test_only_the_last_sampled_span_is_judged(renderer: ChatRenderer) -> None:
    row = made_row(
        ([1, 2], False), (encode("first"), True), (encode("tool"), False), ([*encode("last"), IM_END_ID], True)
    )
    assert completion_text(Sample(0, (row,), STOPPED), renderer) == "last"
    after = made_row(([1, 2], False), (encode("first"), True), (encode("tool"), False))
    assert completion_text(Sample(0, (after,), STOPPED), renderer) == "first"
    assert completion_text(Sample(0, (made_row(([1, 2], False)),), LENGTH), renderer) == ""


def test_a_stop_token_that_is_an_ordinary_token_is_left_out_where_it_stopped(renderer: ChatRenderer) -> None:
    stop = encode("!")
    row = made_row(([1, 2], False), ([*encode("yes"), *stop], True))
    assert completion_text(Sample(0, (row,), STOPPED), renderer, frozenset(stop)) == "yes"
    assert completion_text(Sample(0, (row,), LENGTH), renderer, frozenset(stop)) == "yes!"
    assert completion_text(Sample(0, (row,), STOPPED), renderer) == "yes!"


def test_a_sum_beyond_float32_is_invalid_with_the_reason(renderer: ChatRenderer) -> None:
    rewards = (weighted("huge", "big", 100.0), weighted("length", "long"))
    group = make_group(make_sample(0, "xx"), make_sample(1, ""))
    lost, kept = asyncio.run(reward_group(group, rewards, renderer)).samples
    assert kept.reward == 0.0
    assert lost.reward is None
    assert lost.reward_parts["long"].value == 2.0
    assert lost.reward_parts["big"].value is None
    told = "reward 'big': the weighted sum of all rewards must be at most 3.4e+38 in size, got 100 x 2e+37 + 1 x 2"
    assert lost.reward_parts["big"].error == told


def test_rewards_are_built_from_the_config(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def brevity(completion, limit): return len(completion) < limit\n")
    configs = [
        RewardConfig(function="task", arguments={"mode": "lenient"}),
        RewardConfig(function=f"{file}:brevity", weight=0.1, arguments={"limit": 20}),
    ]
    rewards = build_rewards(configs, make_task())
    assert [(reward.name, reward.weight, reward.is_task_grader) for reward in rewards] == [
        ("gsm8k", 1.0, True),
        ("brevity", 0.1, False),
    ]
    group = make_group(make_sample(0, "it is 7"), make_sample(1, "it is 7, or rather 8, I think"))
    rewarded = asyncio.run(reward_group(group, rewards, ChatRenderer(tiny_tokenizer())))
    assert [sample.reward for sample in rewarded.samples] == [pytest.approx(1.1), 0.0]


def test_rewards_that_cannot_work_are_refused() -> None:
    grader = RewardConfig(function="task")
    with pytest.raises(ValueError, match="'columns' has no grader"):
        build_rewards([grader], make_task("columns"))
    with pytest.raises(ValueError, match=r"got 'gsm8k' twice: set rewards\.name"):
        build_rewards([grader, grader], make_task())
    with pytest.raises(ValueError, match="must be strict or lenient, got 'loose'"):
        build_rewards([RewardConfig(function="task", arguments={"mode": "loose"})], make_task())
    with pytest.raises(ValueError, match=r"may set `mode` and its options: .* are none, got scale"):
        build_rewards([RewardConfig(function="task", arguments={"scale": 2})], make_task())
    with pytest.raises(ValueError, match="may set nothing, got"):
        build_rewards(
            [RewardConfig(function="task", arguments={"mode": "strict"})], make_task("reasoning_gym:chain_sum")
        )


def test_columns_that_a_reward_needs_are_checked_before_training() -> None:
    rewards = build_rewards([RewardConfig(function="task")], make_task())
    check_rewards(rewards, frozenset({"question", "answer"}))
    with pytest.raises(KeyError, match=r"data\.answer_column .* columns found: question, solution"):
        check_rewards(rewards, frozenset({"question", "solution"}))


def test_a_grader_that_fails_its_gold_answers_is_told() -> None:
    class Contrary(QuestionTask):
        def render_gold(self, row: Any) -> str | None:
            return None if row["answer"] is None else "#### 0"

    task = make_task()
    rewards = build_rewards([RewardConfig(function="task")], task)
    contrary = Contrary(**{name: getattr(task, name) for name in task.__dataclass_fields__})
    prompts = [made_prompt("made:0", answer="7"), made_prompt("made:1", answer="0"), made_prompt("made:2", answer=None)]
    report = asyncio.run(score_gold(contrary, rewards, prompts))
    assert report.num_without_gold == 1
    [failure] = report.failures
    assert "must score a gold answer 1 and an empty one 0, got 0 and 0 on made:0" in failure


def test_a_grader_that_pays_for_empty_answers_is_told() -> None:
    generous = replace(weighted("one", "generous"), is_task_grader=True)
    report = asyncio.run(score_gold(make_task(), [generous], [made_prompt(answer="7")]))
    [failure] = report.failures
    assert "got 1 and 1 on made:0" in failure


@pytest.mark.parametrize(
    ("function", "num_warnings"),
    [
        ("score", 0),
        ("one", 1),
        ("nothing", 1),
        ("inverse_length", 1),
    ],
)
def test_a_function_of_the_users_that_prefers_nothing_is_warned_about(function: str, num_warnings: int) -> None:
    task = make_task("columns", answer_column="answer")
    report = asyncio.run(score_gold(task, [weighted(function, "mine")], [made_prompt(answer="7")]))
    assert len(report.warnings) == num_warnings
    assert report.failures == []


def test_arrays_of_rewards_are_lists() -> None:
    group = make_group(make_sample(0, "a"), make_sample(1, "b"))
    assert [part.value for part in asyncio.run(weighted("array", "mine").function(group, ["a", "b"]))] == [1.0, 0.0]
