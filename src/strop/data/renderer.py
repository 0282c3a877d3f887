"""The renderer: chat template and tokenizer behind one door, so that text becomes token ids exactly once.

    messages --(system prompt)--> conversation --(chat template)--> text --(tokenizer, nothing added)--> ids

The template's text is encoded without special tokens of the tokenizer's own, since templates write theirs. Where
the tokenizer would have begun with a BOS and the template did not write one, it is put in front: so a prompt has
exactly one where the model wants one, and none where it does not. A template is tried on a question before any row is:
one that drops the question, or writes a BOS twice or behind other text, is refused.

A tokenizer without a chat template (a base model) gets the plain text of the question. What cannot work that way
(several turns, a system prompt, template arguments) is refused, never left out in silence.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
from numpy.typing import NDArray

from strop.config.data import DataConfig
from strop.data.errors import SettingError
from strop.records import Continuation, Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase  # two seconds of import that reading data does not need

PLAIN_TEXT_NOTICE = (
    "the tokenizer has no chat template: prompts are the plain text of the question "
    "(set model.chat_template to a Jinja file to use one)"
)
_TRIED = "What is 4711?"
_REMEDY = "Set model.chat_template to a Jinja file that does."
_SHOWN_CHARACTERS = 40


class ChatRenderer:
    """Renders conversations to token ids, and token ids to text, with a Hugging Face tokenizer.

    It raises SettingError at construction where a setting would do nothing or cannot work: a system prompt that the
    template refuses or drops, an argument that the template never reads, either of them without a template, a template
    that drops the question or writes a BOS where none belongs.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        *,
        system_prompt: str | None = None,
        template: str | None = None,
        template_arguments: dict[str, Any] | None = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._system_prompt = system_prompt
        self._template = template if template is not None else _own_template(tokenizer)
        self._template_arguments = dict(template_arguments or {})
        self._bos_id = _added_bos_id(tokenizer)
        self._check_template_arguments()
        self._check_system_prompt()
        self._special = _special_text(tokenizer)
        self.notices = (PLAIN_TEXT_NOTICE,) if self._template is None else self._try_template()
        """What a person should be told at the start."""

    @property
    def has_template(self) -> bool:
        """Whether there is a chat template."""
        return self._template is not None

    def special_token(self, messages: Sequence[Message]) -> str | None:
        """The first special token that the messages hold as text, and that will be one in the prompt; None for none."""
        if self._special is None:
            return None
        found = (self._special.search(message["content"]) for message in messages)
        return next((match.group() for match in found if match), None)

    def conversation(self, messages: Sequence[Message]) -> list[Message]:
        """Returns the messages behind the system prompt, which is not put twice.

        Raises SettingError where the messages bring another system message, and where they do not end with a turn
        that the policy can answer.
        """
        if not messages or messages[-1]["role"] in ("assistant", "system"):
            last = messages[-1]["role"] if messages else "no message at all"
            raise SettingError(f"a prompt must end with a turn to answer, such as a user's, got {last}")
        if self._system_prompt is None:
            return list(messages)
        if messages[0]["role"] != "system":
            return [Message(role="system", content=self._system_prompt), *messages]
        if messages[0]["content"] == self._system_prompt:
            return list(messages)
        raise SettingError("data.system_prompt must be left out where the rows bring system messages of their own")

    def render(self, messages: Sequence[Message]) -> NDArray[np.int64]:
        """The prompt's [P] ids: system prompt and generation prompt included, one BOS where the model wants one."""
        return self.encode_many([self.render_text(messages)])[0]

    def encode_many(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Encodes rendered texts, all at once, which is much faster than one by one."""
        if not texts:
            return []
        return [self._with_bos(ids) for ids in self._encode(texts)]

    def encode_behind(self, texts: Sequence[str]) -> list[NDArray[np.int64]]:
        """Encodes texts that stand behind other tokens of their sequences: without any BOS."""
        return [np.asarray(ids, dtype=np.int64) for ids in self._encode(texts)] if texts else []

    def render_text(self, messages: Sequence[Message]) -> str:
        """The prompt as the text that is encoded, generation prompt included."""
        conversation = self.conversation(messages)
        return _plain_text(conversation) if self._template is None else self._templated(conversation)

    def answered_text(self, messages: Sequence[Message]) -> str:
        """The text of a conversation whose last message is an answer, as the template writes it, nothing behind it."""
        before = self.conversation(messages[:-1])
        if self._template is None:
            return _plain_text(before) + messages[-1]["content"]
        return self._templated([*before, messages[-1]], is_answered=True)

    def decode(self, token_ids: NDArray[np.int64]) -> str:
        """The text of a completion, special tokens left out and spaces as they were sampled."""
        text = self._tokenizer.decode(token_ids.tolist(), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return str(text)

    def extend(
        self,
        messages: Sequence[Message],
        turn_token_ids: NDArray[np.int64],
        said: Sequence[Message],
        stop_token_ids: frozenset[int] = frozenset(),
    ) -> Continuation:
        """Goes on behind a sampled turn: the ids of what the template writes behind it, or a new prompt.

        The template renders the conversation with the turn as text. Where this begins with what the policy saw and with
        the text that it sampled (spaces around it aside), only what stands behind is encoded: the end of the turn,
        unless the policy sampled that token itself, with the newline behind it, then `said`. Else the template writes
        what was before in another way, and the continuation is its whole text: a fork.

        Args:
            messages: what the turn answers.
            turn_token_ids: [C] the turn as it was sampled, its stop token included.
            said: the messages that answer the turn; the last one is what the policy answers next.
            stop_token_ids: ids that end a turn.
        """
        before = self.conversation(messages)
        ids = turn_token_ids.tolist()
        stop = ids.pop() if ids and ids[-1] in stop_token_ids else None
        content = str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        after = self.conversation([*before, Message(role="assistant", content=content), *said])
        text = self.render_text(after)
        behind = _behind(text, self.render_text(before), content)
        if behind is None:
            return Continuation(tuple(after), self.encode_many([text])[0], forks=True)
        added = self._encode([behind])[0]
        if stop is not None and added[:1] == [stop]:
            added = added[1:]
        return Continuation(tuple(after), np.asarray(added, dtype=np.int64), forks=False)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self._tokenizer(list(texts), add_special_tokens=False, return_attention_mask=False, verbose=False)
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def _with_bos(self, ids: list[int]) -> NDArray[np.int64]:
        if self._bos_id is not None and (not ids or ids[0] != self._bos_id):
            ids = [self._bos_id, *ids]
        return np.asarray(ids, dtype=np.int64)

    def _templated(self, conversation: Sequence[Message], *, is_answered: bool = False) -> str:
        try:
            return self._apply_template(conversation, is_answered=is_answered)
        except jinja2.TemplateError as error:
            raise SettingError(f"the chat template must accept the messages of every row, it says: {error}") from error

    def _apply_template(self, conversation: Sequence[Message], *, is_answered: bool = False) -> str:
        turns: list[Any] = [dict(message) for message in conversation]
        text = self._tokenizer.apply_chat_template(
            turns,
            chat_template=self._template,
            tokenize=False,
            add_generation_prompt=not is_answered,
            **self._template_arguments,
        )
        return str(text)

    def _try_template(self) -> tuple[str, ...]:
        """Renders a question; raises SettingError where it or the BOS goes wrong, and returns what should be told.

        A template that refuses it may still take the rows, which say so themselves.
        """
        try:
            asked = self.conversation([Message(role="user", content=_TRIED)])
            text, unasked = self._apply_template(asked), self._apply_template(asked, is_answered=True)
        except jinja2.TemplateError:
            return ()
        if _TRIED not in text:
            raise SettingError(
                f"the chat template must write what the user says, it makes {text[:_SHOWN_CHARACTERS]!r} of {_TRIED!r}",
                _REMEDY,
            )
        self._check_bos(text)
        if text != unasked:
            return ()
        end = text[-_SHOWN_CHARACTERS:]
        return (
            f"the chat template has no generation prompt: prompts end with {end!r}, as the user's turn does (right for "
            "models that answer behind it at once)",
        )

    def _check_bos(self, text: str) -> None:
        bos_id, eos_id = self._tokenizer.bos_token_id, self._tokenizer.eos_token_id
        if bos_id is None:
            return
        ids = self._encode([text])[0]
        comes_late = self._bos_id is not None and bos_id != eos_id and ids[0] != bos_id and bos_id in ids
        if comes_late or ids[:2] == [bos_id, bos_id]:
            fault = "behind other text, before which the tokenizer puts one too" if comes_late else "twice"
            raise SettingError(
                f"the chat template must write the BOS {self._tokenizer.bos_token!r} once and first, or leave it out, "
                f"it writes it {fault}: {text[:_SHOWN_CHARACTERS]!r}",
                _REMEDY,
            )

    def _check_template_arguments(self) -> None:
        if self._template is None and self._template_arguments:
            raise SettingError(
                "data.chat_template_kwargs must be empty: the tokenizer has no chat template to read them"
            )
        for name in self._template_arguments:
            if not re.search(rf"\b{re.escape(name)}\b", self._template or ""):
                raise SettingError(f"data.chat_template_kwargs: the chat template reads no argument {name!r}")

    def _check_system_prompt(self) -> None:
        if self._system_prompt is None:
            return
        if self._template is None:
            raise SettingError(
                "data.system_prompt must be left out: the tokenizer has no chat template to put it "
                "(use data.instruction, or set model.chat_template)"
            )
        try:
            text = self._apply_template(self.conversation([Message(role="user", content="?")]))
        except jinja2.TemplateError as error:
            raise SettingError(
                f"data.system_prompt must be left out: the chat template refuses the system role ({error}); "
                "put the text into data.instruction"
            ) from error
        if self._system_prompt.strip() not in text:
            raise SettingError(
                "data.system_prompt must be left out: the chat template drops system messages; "
                "put the text into data.instruction"
            )


def build_renderer(
    tokenizer: "PreTrainedTokenizerBase", config: DataConfig, template_file: Path | None = None
) -> ChatRenderer:
    """Returns the renderer of a run; `template_file` (model.chat_template) replaces the tokenizer's template."""
    return ChatRenderer(
        tokenizer,
        system_prompt=config.system_prompt,
        template=None if template_file is None else _read_template(template_file),
        template_arguments=config.chat_template_kwargs,
    )


def _read_template(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(f"model.chat_template must be a readable Jinja file, got {file}: {error}") from error


def _own_template(tokenizer: "PreTrainedTokenizerBase") -> str | None:
    return tokenizer.get_chat_template() if tokenizer.chat_template else None


def _added_bos_id(tokenizer: "PreTrainedTokenizerBase") -> int | None:
    """The BOS that the tokenizer puts before plain text on its own, None where it puts none."""
    bos_id = tokenizer.bos_token_id
    ids = tokenizer("a")["input_ids"]
    return int(bos_id) if bos_id is not None and ids and ids[0] == bos_id else None


def _special_text(tokenizer: "PreTrainedTokenizerBase") -> "re.Pattern[str] | None":
    """Finds the special tokens of a tokenizer in a text."""
    added = tokenizer.added_tokens_decoder.values()
    texts = {*tokenizer.all_special_tokens, *(token.content for token in added if token.special)} - {""}
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True)))) if texts else None


def _plain_text(conversation: Sequence[Message]) -> str:
    if len(conversation) > 1:
        raise SettingError(
            f"a prompt must be one message where the tokenizer has no chat template, got {len(conversation)} turns "
            "(set model.chat_template)"
        )
    return conversation[0]["content"]


def _behind(text: str, before: str, content: str) -> str | None:
    """What stands in the text behind a turn; None where it does not begin with what was before, and the turn."""
    if not text.startswith(before):
        return None
    rest = text[len(before) :]
    for written in (content, content.strip()):
        if rest.startswith(written):
            return rest[len(written) :]
    return None
