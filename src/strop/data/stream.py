"""The prompt stream: every row exactly once an epoch, for any batch size, from wherever it was stopped.

    epoch 0: order drawn from (seed, 0)     epoch 1: order drawn from (seed, 1)     ...
    [ r3 r0 r4 | r1 r2 ]                    [ r1 r4 ...
      taken      offset points here           a take crosses the end of an epoch

The order depends on seed and epoch only: a counter-based generator (Philox) keyed by both gives every row a 64-bit
number, and rows are sorted by it. So the state is a position, not a generator, and it stays valid when numpy
changes how it shuffles.

Prompts that were taken but not trained (an interrupted step) are given back and served again first, with the visit
that they had, hence with the random numbers that they had.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strop.data.table import PromptTable
from strop.protocols import StreamPosition
from strop.records import Prompt


class PromptStream:
    """Serves the prompts of a table; implements `PromptSource`.

    `epochs` bounds the passes over the data, None goes on for ever. `visit` of a served prompt is its epoch. `salt`
    (32 bits) tells the orders of several streams of one seed apart.
    """

    def __init__(
        self, table: PromptTable, *, seed: int, shuffle: bool = True, epochs: int | None = None, salt: int = 0
    ) -> None:
        if len(table) == 0:
            raise ValueError("a prompt stream must have at least one prompt, got 0")
        if epochs is not None and epochs < 1:
            raise ValueError(f"epochs must be at least 1, or None for no end, got {epochs}")
        self._table = table
        self._seed = seed
        self._salt = salt
        self._shuffle = shuffle
        self._epochs = epochs
        self._row_indices = {row.row.row_id: index for index, row in enumerate(table.rows)}
        if len(self._row_indices) < len(table):
            raise ValueError(f"row ids must be unique, got {len(table)} rows with {len(self._row_indices)} ids")
        self._returned: list[tuple[int, int]] = []
        self._move_to(StreamPosition(epoch=0, offset=0))

    @property
    def position(self) -> StreamPosition:
        """Where the stream stands, prompts given back aside."""
        return StreamPosition(self._epoch, self._offset)

    @property
    def num_returned(self) -> int:
        """How many prompts were given back and wait to be served again."""
        return len(self._returned)

    def take(self, num_prompts: int) -> list[Prompt]:
        """The next prompts: first those given back, then on through the epochs; at the very end fewer, then none."""
        if num_prompts < 0:
            raise ValueError(f"num_prompts must not be negative, got {num_prompts}")
        served = self._returned[:num_prompts]
        self._returned = self._returned[num_prompts:]
        while len(served) < num_prompts and not self._has_ended:
            served += self._advance(num_prompts - len(served))
        return [self._table.prompt(index, visit) for index, visit in served]

    def give_back(self, prompts: Sequence[Prompt]) -> None:
        """Takes back prompts that were not trained; they are served again first, in the order given.

        Raises ValueError where a prompt was not handed out by this stream, or was given back already.
        """
        entries = [self._handed_out_entry(prompt) for prompt in prompts]
        if len(set(entries)) < len(entries) or set(entries) & set(self._returned):
            raise ValueError("a prompt must be given back once, got one twice")
        self._returned = entries + self._returned

    def state(self) -> dict[str, Any]:
        """A JSON-able state from which `restore` goes on exactly."""
        return {
            "fingerprint": self._table.fingerprint,
            "columns": self._table.columns_fingerprint,
            "num_prompts": len(self._table),
            "seed": self._seed,
            "shuffle": self._shuffle,
            "epoch": self._epoch,
            "offset": self._offset,
            "returned": [[index, visit] for index, visit in self._returned],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state; raises ValueError where it is of other prompts, or of another order of them."""
        if "fingerprint" not in state:
            raise ValueError(
                "the prompts must be those of the checkpoint, a mixture of several data sets, got one data set; "
                "start a new run for other prompts"
            )
        if state["fingerprint"] != self._table.fingerprint:
            raise ValueError(
                "the prompts must be those of the checkpoint: data, task, chat template or tokenizer have changed "
                f"({state['num_prompts']} prompts then, {len(self._table)} now); start a new run for other prompts"
            )
        if state.get("columns") != self._table.columns_fingerprint:
            raise ValueError(
                "the rows must be those of the checkpoint: their prompts are the same, and other columns, such as gold "
                "answers, have changed; put the old data back, or start a new run for other rows"
            )
        for setting, now in (("seed", self._seed), ("shuffle", self._shuffle)):
            if state[setting] != now:
                raise ValueError(
                    f"{setting} of the prompt stream must be that of the checkpoint ({state[setting]}), got {now}"
                )
        self._returned = [(int(index), int(visit)) for index, visit in state["returned"]]
        self._move_to(StreamPosition(int(state["epoch"]), int(state["offset"])))

    @property
    def is_exhausted(self) -> bool:
        """Whether every pass is over and nothing was given back."""
        return self._has_ended and not self._returned

    @property
    def _has_ended(self) -> bool:
        return self._epochs is not None and self._epoch >= self._epochs

    def _move_to(self, position: StreamPosition) -> None:
        self._epoch, self._offset = position
        self._order = epoch_order(len(self._table), self._seed, self._epoch, self._shuffle, self._salt)

    def _advance(self, num_prompts: int) -> list[tuple[int, int]]:
        """Serves at most `num_prompts` rows (index, visit) of the running epoch, and enters the next at its end."""
        entries = [(int(index), self._epoch) for index in self._order[self._offset : self._offset + num_prompts]]
        self._offset += len(entries)
        if self._offset == len(self._table):
            self._move_to(StreamPosition(self._epoch + 1, 0))
        return entries

    def _handed_out_entry(self, prompt: Prompt) -> tuple[int, int]:
        index = self._row_indices.get(prompt.prompt_id)
        was_served = index is not None and (
            0 <= prompt.visit < self._epoch or (prompt.visit == self._epoch and index in self._order[: self._offset])
        )
        if index is None or not was_served:
            raise ValueError(
                f"only prompts that this stream handed out can be given back, got {prompt.prompt_id!r}, "
                f"visit {prompt.visit}"
            )
        return index, prompt.visit


def epoch_order(num_rows: int, seed: int, epoch: int, shuffle: bool = True, salt: int = 0) -> NDArray[np.int64]:
    """The [num_rows] row indices in the order of an epoch: a permutation drawn from (seed, epoch, salt) alone."""
    if not shuffle:
        return np.arange(num_rows, dtype=np.int64)
    generator = np.random.Philox(key=np.array([seed, epoch + (salt << 32)], dtype=np.uint64))
    numbers = generator.random_raw(num_rows)
    return np.argsort(numbers, kind="stable").astype(np.int64)
