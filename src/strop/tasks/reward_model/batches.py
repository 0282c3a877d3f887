"""Scores token rows in padded batches, with the scores that each row has alone.

Padding is known by lengths: an attention mask covers it, and it is filled with an id that stands in no row of the
batch. Models that look for the last token by "not the pad id" (most decoders of transformers) are told that id, so that
they take the last token of the row also where the row ends with the pad token of its tokenizer, as it does where that
is the end of sequence.

Whether a model keeps to that is tried before its first batch: two rows, together and alone. One that does not is given
one row at a time.
"""

from collections.abc import Iterator, Sequence

import torch
from transformers import PreTrainedModel

from strop.tasks.reward_model.conversation import TokenRow

MAX_PADDING_SHARE = 0.25
"""A batch takes no row that would make more than this share of its tokens padding."""
_TRIED_LENGTHS = (3, 9)
_TOLERANCES = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
"""Largest difference between a row's score in a batch and alone, relative to scores above 1."""


class RowScorer:
    """Scores rows with a loaded model."""

    def __init__(self, model: PreTrainedModel, output: int, *, batch_tokens: int, last_id: int | None) -> None:
        """`output` is the place of the score among the logits; `last_id` what rows may end with, for the trial."""
        self._model, self._output, self._batch_tokens = model, output, batch_tokens
        self._text_config = model.config.get_text_config()
        embeddings = model.get_input_embeddings()
        assert isinstance(embeddings, torch.nn.Embedding)
        self._num_ids = embeddings.num_embeddings
        self.pads = self._padding_changes_nothing(last_id)
        """Whether rows of several lengths are scored together."""

    def batches(self, rows: Sequence[TokenRow]) -> Iterator[tuple[list[int], list[float]]]:
        """Yields places and scores of batches, shortest rows first.

        Each has at most `batch_tokens` with padding, and little padding; a longer row is alone.
        """
        waiting = sorted(range(len(rows)), key=lambda place: rows[place].num_tokens)
        while waiting:
            count = 1
            while self.pads and count < len(waiting) and self._fits(rows, waiting[: count + 1]):
                count += 1
            places, waiting = waiting[:count], waiting[count:]
            yield places, self._scores([rows[place] for place in places])

    def _fits(self, rows: Sequence[TokenRow], places: Sequence[int]) -> bool:
        """Whether these rows, the last as long as any, are within the bounds and leave an id to pad with."""
        chosen = [rows[place] for place in places]
        num_tokens = len(chosen) * chosen[-1].num_tokens
        num_padding = num_tokens - sum(row.num_tokens for row in chosen)
        is_within = num_tokens <= self._batch_tokens and num_padding <= MAX_PADDING_SHARE * num_tokens
        return is_within and self._absent_id(chosen) is not None

    def _absent_id(self, rows: Sequence[TokenRow]) -> int | None:
        """The smallest id that stands in no row."""
        used = {token for row in rows for token in row.token_ids}
        return next((token for token in range(self._num_ids) if token not in used), None)

    @torch.no_grad()
    def _scores(self, rows: Sequence[TokenRow]) -> list[float]:
        pad_id = self._absent_id(rows)
        self._text_config.pad_token_id = pad_id
        device = self._model.device
        longest = max(row.num_tokens for row in rows)
        inputs = {
            "input_ids": _padded([row.token_ids for row in rows], longest, pad_id or 0),
            "attention_mask": _padded([(1,) * row.num_tokens for row in rows], longest, 0),
        }
        types = [row.type_ids for row in rows if row.type_ids is not None]
        if types:
            inputs["token_type_ids"] = _padded(types, longest, 0)
        logits = self._model(**{name: values.to(device) for name, values in inputs.items()}).logits
        scores: list[float] = logits[:, self._output].float().tolist()
        return scores

    def _padding_changes_nothing(self, last_id: int | None) -> bool:
        generator = torch.Generator().manual_seed(0)
        rows = []
        for length in _TRIED_LENGTHS:
            ids = torch.randint(self._num_ids, (length,), generator=generator).tolist()
            rows.append(TokenRow((*ids, ids[0] if last_id is None else last_id)))
        alone = torch.tensor([self._scores([row])[0] for row in rows])
        together = torch.tensor(self._scores(rows))
        tolerance = _TOLERANCES[self._model.dtype] * alone.abs().clamp(min=1)
        return bool(((together - alone).abs() <= tolerance).all())


def _padded(rows: Sequence[Sequence[int]], longest: int, value: int) -> torch.Tensor:
    """[B, longest]; each row, and `value` behind it."""
    return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows], dtype=torch.int64)
