"""Serves examples: each exactly once an epoch, in an order that depends on seed and epoch only."""

from collections.abc import Mapping
from typing import Any

from strop.data.offline.examples import Example, ExampleTable
from strop.data.rows import DataRow
from strop.data.stream import PromptStream
from strop.data.table import PromptTable, RenderedRow
from strop.protocols import StreamPosition
from strop.records import Group


class ExampleStream:
    """The order of a `PromptStream` over the examples of a table."""

    def __init__(self, table: ExampleTable, *, seed: int, shuffle: bool, epochs: int | None) -> None:
        self._examples = {example.row_id: example for example in table.examples}
        self._fingerprint = table.fingerprint
        prompts = PromptTable(tuple(_rendered(example) for example in table.examples))
        self._prompts = PromptStream(prompts, seed=seed, shuffle=shuffle, epochs=epochs)

    @property
    def position(self) -> StreamPosition:
        """Where the stream stands."""
        return self._prompts.position

    @property
    def num_examples(self) -> int:
        """How many examples an epoch has."""
        return len(self._examples)

    def take(self, num_examples: int) -> list[Group]:
        """The next examples, crossing epoch ends; at the end of the last epoch fewer, then none."""
        served = self._prompts.take(num_examples)
        return [self._examples[prompt.prompt_id].group(prompt.visit) for prompt in served]

    def state(self) -> dict[str, Any]:
        """A JSON-able state from which `restore` goes on exactly."""
        return {"examples": self._fingerprint, "order": self._prompts.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state; raises ValueError where it is of other examples."""
        if state.get("examples") != self._fingerprint:
            raise ValueError(
                "the rows must be those of the checkpoint: data, method, chat template or tokenizer have changed; "
                "start a new run for other rows"
            )
        self._prompts.restore(state["order"])


def _rendered(example: Example) -> RenderedRow:
    first = example.rows[0]
    return RenderedRow(DataRow(example.row_id, {}, example.source), (), first.token_ids.astype("int64"), "")
