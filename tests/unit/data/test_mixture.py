"""Mixtures: the ratio, every row once a pass, the ramp, and going on from a state."""

import json
from collections import Counter
from typing import Any

import pytest

from strop.config.data import DataConfig
from strop.config.load import load_config
from strop.data import MixtureStream, PromptStream, PromptTable, build_stream, data_parts
from strop.data.mixture import MixtureWeights
from strop.errors import ConfigError
from strop.records import Prompt
from support.prompt_table import make_table


def mixed(
    sizes: dict[str, int],
    weights: dict[str, float] | None = None,
    *,
    final: dict[str, float] | None = None,
    ramp: int | None = None,
    **settings: Any,
) -> MixtureStream | PromptStream:
    parts = [
        {
            "source": {"type": "jsonl", "path": name},
            "weight": None if weights is None else weights[name],
            "final_weight": None if final is None else final[name],
        }
        for name in sizes
    ]
    source = {"type": "mixture", "parts": parts, "ramp_prompts": ramp}
    rows = [row for name, size in sizes.items() for row in make_table(size, source=name).rows]
    config = DataConfig.model_validate({"source": source, "task": "columns", **settings})
    return build_stream(PromptTable(tuple(rows)), config, seed=5)


def names(prompts: list[Prompt]) -> list[tuple[str, int]]:
    return [(prompt.prompt_id, prompt.visit) for prompt in prompts]


@pytest.mark.parametrize("weights", [{"a": 3, "b": 1}, {"a": 0.5, "b": 0.2, "c": 0.3}, {"a": 1, "b": 1, "c": 5}])
def test_after_any_number_of_prompts_each_part_has_served_its_share(weights: dict[str, float]) -> None:
    stream = mixed(dict.fromkeys(weights, 4), weights)
    counts: Counter[str] = Counter()
    for number in range(1, 400):
        counts[stream.take(1)[0].source] += 1
        for name, weight in weights.items():
            assert abs(counts[name] - number * weight / sum(weights.values())) < 2


def test_each_part_serves_each_row_once_a_pass_whatever_the_batches() -> None:
    one, other = mixed({"a": 3, "b": 7}, {"a": 1, "b": 1}), mixed({"a": 3, "b": 7}, {"a": 1, "b": 1})
    served = one.take(42)
    assert names(served) == names([prompt for size in (1, 5, 8, 2, 26) for prompt in other.take(size)])
    for name, size in (("a", 3), ("b", 7)):
        own = [prompt for prompt in served if prompt.source == name]
        for visit in range(len(own) // size):
            ids = [prompt.prompt_id for prompt in own[visit * size : (visit + 1) * size]]
            assert sorted(ids) == [f"{name}:{index}" for index in range(size)]
            assert {prompt.visit for prompt in own[visit * size : (visit + 1) * size]} == {visit}


def test_with_passes_counted_every_row_of_every_part_is_served_exactly_so_often() -> None:
    served = mixed({"a": 2, "b": 9, "c": 4}, {"a": 5, "b": 1, "c": 1}, epochs=2).take(1000)
    assert Counter(prompt.prompt_id for prompt in served) == {
        f"{name}:{index}": 2 for name, size in (("a", 2), ("b", 9), ("c", 4)) for index in range(size)
    }
    # a has the largest share and few rows, so it leaves first and b, the longest, is left alone.
    assert {prompt.source for prompt in served[-9:]} == {"b"}


def test_without_weights_parts_are_mixed_so_that_their_passes_end_together() -> None:
    served = mixed({"a": 10, "b": 30}).take(40)
    assert Counter(prompt.visit for prompt in served) == {0: 40}
    assert [prompt.source for prompt in served[:8]].count("a") == 2


def test_on_a_ramp_the_share_moves_from_the_first_weights_to_the_last() -> None:
    stream = mixed({"easy": 5, "hard": 5}, {"easy": 1, "hard": 0}, final={"easy": 0, "hard": 1}, ramp=1000)
    tenths = [Counter(prompt.source for prompt in stream.take(100))["hard"] for _ in range(12)]
    assert tenths[0] <= 6
    assert tenths == sorted(tenths)
    assert abs(tenths[5] - 55) <= 2
    assert tenths[10:] == [100, 100]


def test_a_state_of_a_mixture_is_none_of_a_single_data_set_and_the_other_way_round() -> None:
    mixture, single = mixed({"a": 3}), PromptStream(make_table(3, source="a"), seed=5)
    with pytest.raises(ValueError, match="a mixture of several data sets, got one data set"):
        single.restore(mixture.state())
    with pytest.raises(ValueError, match=r"those of the checkpoint \(none\), got a"):
        mixture.restore(single.state())


def test_a_part_whose_turn_has_not_come_is_served_where_nothing_else_is_left() -> None:
    stream = mixed({"a": 2, "b": 3}, {"a": 1, "b": 0}, final={"a": 1, "b": 1}, ramp=1000, epochs=1)
    assert [prompt.source for prompt in stream.take(9)] == ["a", "a", "b", "b", "b"]


@pytest.mark.parametrize("cut", range(0, 30, 3))
def test_a_stream_goes_on_from_its_state_as_if_it_had_never_stopped(cut: int) -> None:
    arguments: dict[str, Any] = {"final": {"a": 1, "b": 2, "c": 0.1}, "ramp": 17, "epochs": 4}
    sizes, weights = {"a": 3, "b": 5, "c": 2}, {"a": 0.7, "b": 0.1, "c": 0.2}
    whole = mixed(sizes, weights, **arguments)
    whole.take(cut)
    resumed = mixed(sizes, weights, **arguments)
    resumed.restore(json.loads(json.dumps(whole.state())))
    assert names(resumed.take(100)) == names(whole.take(100))
    assert resumed.state() == whole.state()


def test_prompts_given_back_are_served_first_in_their_order_and_change_no_share() -> None:
    stream, other = mixed({"a": 3, "b": 5}, {"a": 1, "b": 2}), mixed({"a": 3, "b": 5}, {"a": 1, "b": 2})
    taken = stream.take(7)
    stream.give_back(taken[2:6])
    resumed = mixed({"a": 3, "b": 5}, {"a": 1, "b": 2})
    resumed.restore(json.loads(json.dumps(stream.state())))
    assert names(resumed.take(4)) == names(taken[2:6])
    other.take(7)
    assert names(resumed.take(9)) == names(other.take(9))


def test_what_cannot_be_given_back_leaves_the_stream_as_it_was() -> None:
    stream = mixed({"a": 3, "b": 5}, {"a": 1, "b": 1})
    taken = stream.take(4)
    before = stream.state()
    with pytest.raises(ValueError, match="given back once"):
        stream.give_back([taken[0], taken[1], taken[1]])
    with pytest.raises(ValueError, match="of this mixture"):
        stream.give_back([make_table(1).prompt(0)])
    assert stream.state() == before


def test_a_state_of_other_parts_or_other_rows_is_refused() -> None:
    state = mixed({"a": 3, "b": 5}).state()
    with pytest.raises(ValueError, match=r"must be those of the checkpoint \(a, b\), got a, c"):
        mixed({"a": 3, "c": 5}).restore(state)
    with pytest.raises(ValueError, match="data, task, chat template or tokenizer have changed"):
        mixed({"a": 3, "b": 6}).restore(state)


def test_parts_of_equal_size_have_orders_of_their_own() -> None:
    served = mixed({"a": 20, "b": 20}).take(40)
    orders = [[prompt.columns["n"] for prompt in served if prompt.source == name] for name in ("a", "b")]
    assert orders[0] != orders[1]


def test_the_shares_are_told_with_the_ramp() -> None:
    weights = MixtureWeights({"a": 3.0, "b": 1.0}, {"a": 1.0, "b": 1.0}, ramp_prompts=50)
    assert weights.lines() == [
        "a: 75.0% of the prompts, 50.0% after 50 prompts",
        "b: 25.0% of the prompts, 50.0% after 50 prompts",
    ]


def test_a_part_takes_from_data_what_it_leaves_out() -> None:
    parts = [
        {"source": {"type": "jsonl", "path": "x/a.jsonl"}, "task": "gsm8k", "prompt_column": "q"},
        {"source": {"type": "jsonl", "path": "y/a.jsonl"}, "name": "other"},
    ]
    config = DataConfig.model_validate(
        {"source": {"type": "mixture", "parts": parts}, "task": "math", "answer_column": "gold"}
    )
    first, second = data_parts(config, config.source)
    assert (first.name, first.data.task, first.data.prompt_column) == ("a.jsonl", "gsm8k", "q")
    assert (second.name, second.data.task, second.data.prompt_column) == ("other", "math", None)
    assert first.data.answer_column == second.data.answer_column == "gold"


def test_parts_of_one_name_are_refused() -> None:
    parts = [{"source": {"type": "jsonl", "path": f"{folder}/a.jsonl"}} for folder in "xy"]
    config = DataConfig.model_validate({"source": {"type": "mixture", "parts": parts}, "task": "math"})
    with pytest.raises(ValueError, match=r"got 'a\.jsonl' twice"):
        data_parts(config, config.source)


PART = "{source={type='jsonl', path='a'}"
REFUSED = {
    "no task at all": (
        f"[{PART}}}]",
        [],
        "data.task must say what is asked of the rows of data.source.parts[0].source",
    ),
    "a task for nobody": (f"[{PART}, task='math'}}]", ["data.task=math"], "data.task does nothing"),
    "an unknown task": (f"[{PART}, task='maths'}}]", [], "data.source.parts[0].task must be one of"),
    "half the weights": (
        f"[{PART}, weight=1}}, {PART}, name='b'}}]",
        ["data.task=math"],
        "data.source.parts[1].weight must be given",
    ),
    "a part never served": (
        f"[{PART}, weight=1}}, {PART}, name='b', weight=0}}]",
        ["data.task=math"],
        "parts[1].weight must be above 0",
    ),
    "a ramp to nowhere": (
        f"[{PART}, weight=1}}]",
        ["data.task=math", "data.source.ramp_prompts=5"],
        "data.source.ramp_prompts does nothing",
    ),
    "no ramp": (f"[{PART}, final_weight=1}}]", ["data.task=math"], "must say over how many prompts"),
    "another generator's task": (
        f"[{PART}, task='reasoning_gym:gcd'}}]",
        [],
        "data.source.parts[0].source.type must be reasoning_gym",
    ),
    "weights in an evaluation": (
        f"[{PART}}}]",
        ["data.task=math", f"evaluation.source={{type='mixture', parts=[{PART}, weight=1}}]}}"],
        "evaluation.source.parts[0].weight does nothing",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mixture_that_cannot_work_is_refused(name: str) -> None:
    from strop.config.checks import check

    parts, overrides, message = REFUSED[name]
    with pytest.raises(ConfigError) as caught:
        check(load_config(None, ["model.path=m", f"data.source={{type='mixture', parts={parts}}}", *overrides]))
    assert message in str(caught.value)
