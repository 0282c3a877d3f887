"""A prompt and a completion become the tokens that a reward model reads, in the way that the run file names.

    chat         the reward model's own chat template, the completion as the assistant's turn; one BOS where it wants it
    pair         prompt and completion as the tokenizer's pair of texts
    completion   the completion alone

Nothing is cut here: a row that is too long is refused by who scores it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jinja2
from transformers import PreTrainedTokenizerBase

from strop.config.judges import RewardModelConfig
from strop.data.errors import SettingError
from strop.data.renderer import ChatRenderer
from strop.records import Message
from strop.tasks.llm_judge.rubric import conversation_text

_TRIED = (Message(role="user", content="Is it so?"), Message(role="assistant", content="It is indeed."))


class UnreadableError(Exception):
    """A conversation that the chat template refuses, in words; it becomes data."""


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One conversation as a reward model reads it."""

    token_ids: tuple[int, ...]
    type_ids: tuple[int, ...] | None = None
    """Which text of a pair each token is of, for models that ask for it."""

    @property
    def num_tokens(self) -> int:
        """The length of the row."""
        return len(self.token_ids)


class ConversationReader:
    """Makes token rows; raises SettingError where `chat` is asked of a tokenizer whose template cannot show answers."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, section: RewardModelConfig, reward: str) -> None:
        self._tokenizer = tokenizer
        self._reads = section.reads
        if section.reads == "chat":
            self._renderer = ChatRenderer(tokenizer)
            self._check_template(reward, section.path)

    def read(self, messages: Sequence[Message], completion: str) -> TokenRow:
        """The row of one sample; raises UnreadableError where the chat template refuses its messages."""
        match self._reads:
            case "chat":
                text = self._chat_text([*messages, Message(role="assistant", content=completion)])
                return TokenRow(tuple(self._renderer.encode_many([text])[0].tolist()))
            case "pair":
                return self._plain_row(conversation_text(messages), completion)
            case "completion":
                return self._plain_row(completion)

    def _plain_row(self, *texts: str) -> TokenRow:
        """Texts with the tokenizer's own special tokens."""
        encoded = self._tokenizer(*texts, truncation=False, verbose=False)
        types = encoded.get("token_type_ids")
        return TokenRow(tuple(encoded["input_ids"]), None if types is None else tuple(types))

    def _chat_text(self, messages: Sequence[Message]) -> str:
        turns: list[Any] = [dict(message) for message in messages]
        try:
            return str(self._tokenizer.apply_chat_template(turns, tokenize=False))
        except jinja2.TemplateError as error:
            raise UnreadableError(f"the reward model's chat template refuses the conversation: {error}") from error

    def _check_template(self, reward: str, path: str) -> None:
        if not self._renderer.has_template:
            raise SettingError(
                f"reward {reward!r}: the tokenizer of {path} must have a chat template to read a chat, got none",
                "Set rewards.model.reads to pair (prompt and completion) or completion, as the model was trained.",
            )
        try:
            shown = self._chat_text(_TRIED)
        except UnreadableError as error:
            raise SettingError(f"reward {reward!r}: {error}") from error
        if _TRIED[1]["content"] not in shown:
            raise SettingError(
                f"reward {reward!r}: the chat template of {path} must show the assistant's turn, it drops it"
            )
