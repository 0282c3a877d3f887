"""What every PromptSource must do, run on every implementation."""

import json
from collections import Counter
from collections.abc import Callable
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.data import MixtureStream, PromptStream
from strop.data.mixture import MixtureWeights
from strop.protocols import PromptSource
from strop.records import Prompt
from support.prompt_table import make_table

Make = Callable[..., PromptSource]


def make_stream(num_rows: int, *, seed: int = 0, epochs: int | None = 1, first_token: int = 0) -> PromptSource:
    return PromptStream(make_table(num_rows, first_token), seed=seed, epochs=epochs)


def make_mixture(num_rows: int, *, seed: int = 0, epochs: int | None = 1, first_token: int = 0) -> PromptSource:
    """A mixture of one part, which must be as good as its part."""
    part = PromptStream(make_table(num_rows, first_token), seed=seed, epochs=epochs)
    return MixtureStream({"made": part}, MixtureWeights({"made": 2.0}, {"made": 2.0}))


@pytest.fixture(params=[make_stream, make_mixture], ids=["PromptStream", "MixtureStream"])
def make(request: pytest.FixtureRequest) -> Make:
    factory: Make = request.param
    return factory


def drain(source: PromptSource, batch: int) -> list[list[str]]:
    batches = []
    while prompts := source.take(batch):
        batches.append([prompt.prompt_id for prompt in prompts])
    return batches


def test_seven_rows_in_batches_of_four_are_four_then_three(make: Make) -> None:
    batches = drain(make(7), 4)
    assert [len(batch) for batch in batches] == [4, 3]
    assert Counter(chain.from_iterable(batches)) == Counter(f"made:{index}" for index in range(7))


def test_a_batch_crosses_the_end_of_an_epoch(make: Make) -> None:
    batches = drain(make(7, epochs=2), 4)
    assert [len(batch) for batch in batches] == [4, 4, 4, 2]


def test_a_batch_larger_than_the_data_spans_epochs_or_ends(make: Make) -> None:
    assert [len(batch) for batch in drain(make(3, epochs=1), 8)] == [3]
    assert [prompt.visit for prompt in make(3, epochs=None).take(8)] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_the_order_depends_on_seed_and_epoch_only(make: Make) -> None:
    orders = {seed: list(chain.from_iterable(drain(make(20, seed=seed, epochs=2), 7))) for seed in (0, 1)}
    assert orders[0] == list(chain.from_iterable(drain(make(20, seed=0, epochs=2), 3)))
    assert orders[0] != orders[1]
    assert orders[0][:20] != orders[0][20:]


@settings(deadline=None)
@given(
    num_rows=st.integers(1, 9),
    seed=st.integers(0, 2**31),
    epochs=st.integers(1, 3),
    actions=st.lists(st.one_of(st.integers(0, 12), st.just("restart"), st.just("give back")), max_size=20),
)
def test_any_course_of_events_serves_each_row_once_an_epoch_in_one_order(
    num_rows: int, seed: int, epochs: int, actions: list[int | str]
) -> None:
    def fresh() -> PromptSource:
        return make_stream(num_rows, seed=seed, epochs=epochs)

    expected = [(prompt.prompt_id, prompt.visit) for prompt in fresh().take(num_rows * epochs)]
    source = fresh()
    served: list[tuple[str, int]] = []
    last: list[Prompt] = []
    for action in actions:
        if action == "restart":
            state = json.loads(json.dumps(source.state()))
            source = fresh()
            source.restore(state)
        elif action == "give back":
            keep = len(last) // 2
            source.give_back(last[keep:])
            del served[len(served) - (len(last) - keep) :]
            last = last[:keep]
        else:
            last = source.take(int(action))
            served += [(prompt.prompt_id, prompt.visit) for prompt in last]
    served += [(prompt.prompt_id, prompt.visit) for prompt in source.take(num_rows * epochs)]
    assert served == expected
    assert source.take(1) == []


def test_a_state_of_another_data_set_is_refused(make: Make) -> None:
    state = make(7).state()
    for other in (make(6), make(7, first_token=5)):
        with pytest.raises(ValueError, match="must be those of the checkpoint"):
            other.restore(state)
