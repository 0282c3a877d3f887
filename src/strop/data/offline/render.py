"""Conversations become token-exact rows: each trained turn stands behind the tokens that the policy would answer.

    prompt of turn 1 | turn 1 <end> | what the template writes behind it | turn 2 <end>
      no loss          loss            no loss                              loss

The prompt of each trained turn is what the template writes of the messages before it, generation prompt included; the
turn is what the template writes behind that, to the token that ends it. Each piece is encoded on its own, as it is when
a policy is sampled. Where the prompt of a later turn does not begin with the text so far, since the template writes
what was before in another way (without earlier thoughts, say), a row of its own begins there: a fork.

A template that ends no turn, and a tokenizer without a template, leave it open where an answer stops: the end of
sequence is put behind the last turn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from strop.data.errors import SettingError
from strop.data.offline.columns import Conversation
from strop.data.renderer import ChatRenderer
from strop.models.stops import StopSet
from strop.records import Message, Row


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One sequence and which of its tokens are trained; compact, because a data set is held in memory whole."""

    token_ids: NDArray[np.int32]
    """[T]"""
    loss_mask: NDArray[np.bool_]
    """[T]"""

    def row(self) -> Row:
        """The record that is packed: advantage 1 on what is trained; nobody sampled it."""
        return Row(
            token_ids=self.token_ids.astype(np.int64),
            loss_mask=self.loss_mask,
            rollout_logprobs=np.zeros(len(self.token_ids), np.float32),
            policy_versions=np.where(self.loss_mask, 0, -1),
            advantages=self.loss_mask.astype(np.float32),
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    is_trained: bool


@dataclass(slots=True)
class RowText:
    """The pieces of one row before they are encoded."""

    pieces: list[_Piece] = field(default_factory=list)
    is_whole: bool = False
    """Whether everything but the first token is trained."""
    lacks_end: bool = False
    """Whether an end of sequence must be put behind it."""

    @property
    def text(self) -> str:
        """All pieces together."""
        return "".join(piece.text for piece in self.pieces)


class ConversationRenderer:
    """Renders conversations with a chat template and a tokenizer."""

    def __init__(self, renderer: ChatRenderer, stops: StopSet, eos_id: int | None) -> None:
        self._renderer = renderer
        self._ends = tuple(token.text for token in stops.tokens)
        self._eos_id = eos_id

    def texts(self, conversation: Conversation) -> list[RowText]:
        """Returns the rows of a conversation as text.

        Raises SettingError where the template refuses it, or does not write a turn behind its own generation prompt.
        """
        messages = conversation.messages
        if conversation.is_whole:
            text, has_end = self._cut(self._renderer.answered_text(messages))
            return [RowText([_Piece(text, True)], is_whole=True, lacks_end=not has_end)]
        rows: list[RowText] = []
        for place in conversation.trained:
            before = self._renderer.render_text(messages[:place])
            turn, has_end = self._turn(messages[: place + 1], before)
            so_far = rows[-1].text if rows else None
            if so_far is None or not before.startswith(so_far):
                rows.append(RowText([_Piece(before, False)]))
            elif len(before) > len(so_far):
                rows[-1].pieces.append(_Piece(before[len(so_far) :], False))
            rows[-1].pieces.append(_Piece(turn, True))
            rows[-1].lacks_end = not has_end and place == len(messages) - 1
        return rows

    def encode(self, rows: Sequence[RowText]) -> list[TokenRow]:
        """Encodes rows, all at once. Raises SettingError where the end of an answer cannot be said."""
        heads = iter(self._renderer.encode_many([row.pieces[0].text for row in rows]))
        behind = iter(self._renderer.encode_behind([piece.text for row in rows for piece in row.pieces[1:]]))
        return [self._row(row, next(heads), behind) for row in rows]

    def _row(self, row: RowText, head: NDArray[np.int64], behind: Iterator[NDArray[np.int64]]) -> TokenRow:
        parts = [head, *(next(behind) for _ in row.pieces[1:])]
        flags = [piece.is_trained for piece in row.pieces]
        if row.lacks_end:
            if self._eos_id is None:
                raise SettingError(
                    "the chat template must write a token that ends an answer, or the tokenizer have an end of "
                    "sequence, got neither: set model.chat_template"
                )
            parts, flags = [*parts, np.array([self._eos_id])], [*flags, True]
        masks = [np.full(len(ids), flag) for ids, flag in zip(parts, flags, strict=True)]
        loss_mask = np.concatenate(masks)
        loss_mask[:1] = False
        return TokenRow(np.concatenate(parts).astype(np.int32), loss_mask)

    def _turn(self, messages: Sequence[Message], before: str) -> tuple[str, bool]:
        """What the template writes of the last message behind its prompt, and whether a token ends it."""
        whole = self._renderer.answered_text(messages)
        if not whole.startswith(before):
            raise SettingError(
                "the chat template must write an answer behind its own generation prompt, got another text there; "
                "set model.chat_template, or data.chat_template_kwargs"
            )
        return self._cut(whole[len(before) :])

    def _cut(self, text: str) -> tuple[str, bool]:
        """The text up to the last token that ends a turn, and whether there is one."""
        stop = max((text.rfind(end) + len(end) for end in self._ends if end in text), default=None)
        return (text, False) if stop is None else (text[:stop], True)
