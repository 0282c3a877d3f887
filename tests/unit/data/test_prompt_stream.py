"""The prompt stream: positions, orders, and prompts that come back."""

import json
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from strop.data import PromptStream, PromptTable
from strop.data.stream import epoch_order
from strop.protocols import StreamPosition
from support.prompt_table import make_table


def test_the_order_of_an_epoch_is_the_same_for_ever() -> None:
    # Written down once: a change would make every old checkpoint serve other rows.
    assert epoch_order(8, seed=7, epoch=0).tolist() == ORDERS[0]
    assert epoch_order(8, seed=7, epoch=1).tolist() == ORDERS[1]


ORDERS = ([4, 1, 6, 3, 2, 7, 5, 0], [3, 1, 6, 2, 5, 4, 0, 7])


def test_orders_are_uniform_over_permutations() -> None:
    counts = np.zeros((4, 4))
    for epoch in range(4000):
        counts[np.arange(4), epoch_order(4, seed=3, epoch=epoch)] += 1
    # Each row is at each place a quarter of the time: 1000 expected, standard deviation 27.
    assert np.abs(counts - 1000).max() < 5 * 27.4


def test_without_shuffling_rows_come_in_the_order_of_the_data() -> None:
    stream = PromptStream(make_table(3), seed=0, shuffle=False, epochs=2)
    assert [prompt.columns["n"] for prompt in stream.take(6)] == [0, 1, 2, 0, 1, 2]


def test_the_position_says_epoch_and_offset() -> None:
    stream = PromptStream(make_table(3), seed=0)
    stream.take(2)
    assert stream.position == StreamPosition(0, 2)
    stream.take(1)
    assert stream.position == StreamPosition(1, 0)


def test_prompts_given_back_come_first_with_the_visit_that_they_had() -> None:
    stream = PromptStream(make_table(3), seed=0)
    first = stream.take(4)
    stream.give_back(first[2:])
    assert stream.num_returned == 2
    again = stream.take(3)
    assert [(prompt.prompt_id, prompt.visit) for prompt in again[:2]] == [
        (prompt.prompt_id, prompt.visit) for prompt in first[2:]
    ]
    assert again[2].visit == 1


def test_what_was_never_handed_out_or_is_back_already_cannot_be_given_back() -> None:
    stream = PromptStream(make_table(3), seed=0)
    ahead = PromptStream(make_table(3), seed=0).take(5)
    with pytest.raises(ValueError, match="only prompts that this stream handed out"):
        stream.give_back(ahead[:1])
    taken = stream.take(2)
    with pytest.raises(ValueError, match="only prompts that this stream handed out"):
        stream.give_back(ahead[4:])
    stream.give_back(taken)
    with pytest.raises(ValueError, match="given back once"):
        stream.give_back(taken[:1])


def test_a_state_of_another_seed_or_order_is_refused() -> None:
    state = PromptStream(make_table(3), seed=0).state()
    with pytest.raises(ValueError, match=r"seed .* \(0\), got 1"):
        PromptStream(make_table(3), seed=1).restore(state)
    with pytest.raises(ValueError, match="shuffle"):
        PromptStream(make_table(3), seed=0, shuffle=False).restore(state)


def test_more_epochs_may_be_asked_of_a_finished_stream() -> None:
    stream = PromptStream(make_table(3), seed=0, epochs=1)
    stream.take(3)
    longer = PromptStream(make_table(3), seed=0, epochs=2)
    longer.restore(stream.state())
    assert [prompt.visit for prompt in longer.take(5)] == [1, 1, 1]


def with_columns(**columns: Any) -> PromptTable:
    [row] = make_table(1).rows
    return PromptTable((replace(row, row=replace(row.row, columns={"n": 0, **columns})),))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"answer": "7"}, {"answer": "8"}),
        ({"answer": "7"}, {"answer": 7}),
        ({"answer": 1}, {"answer": True}),
        ({"answer": "7"}, {}),
        ({"answer": {"a": [b"x"]}}, {"answer": {"a": [b"y"]}}),
        ({"answer": np.array([1, 2])}, {"answer": np.array([1, 3])}),
        ({"answer": Decimal("0.1")}, {"answer": Decimal("0.2")}),
        ({"answer": datetime(2020, 1, 1)}, {"answer": datetime(2020, 1, 2)}),
    ],
)
def test_a_state_of_rows_with_other_columns_is_refused(before: dict[str, Any], after: dict[str, Any]) -> None:
    state = json.loads(json.dumps(PromptStream(with_columns(**before), seed=0).state()))
    PromptStream(with_columns(**before), seed=0).restore(state)
    with pytest.raises(ValueError, match="columns, such as gold answers, have changed"):
        PromptStream(with_columns(**after), seed=0).restore(state)


def test_columns_in_another_order_and_objects_without_a_text_of_their_own_are_the_same() -> None:
    class Picture:
        """Its text holds an address."""

    state = PromptStream(with_columns(a=1, b=Picture(), c="\ud800"), seed=0).state()
    PromptStream(with_columns(c="\ud800", b=Picture(), a=1), seed=0).restore(state)
