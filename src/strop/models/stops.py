"""Which tokens end a completion, and who says so."""

from collections.abc import Iterable
from dataclasses import dataclass

from jinja2 import TemplateError
from transformers import GenerationConfig, PreTrainedTokenizerBase

from strop.errors import ModelError

_SENTINEL = "sentinel"


@dataclass(frozen=True, slots=True)
class StopToken:
    """A token that ends a completion."""

    token_id: int
    text: str
    origins: tuple[str, ...]
    """Who says that it stops: generation_config, tokenizer eos, chat turn end, user."""

    def __str__(self) -> str:
        return f"{self.token_id} {self.text!r} ({', '.join(self.origins)})"


@dataclass(frozen=True, slots=True)
class StopSet:
    """The tokens that end a completion, by id; printing it shows each with its origins."""

    tokens: tuple[StopToken, ...]

    @property
    def token_ids(self) -> frozenset[int]:
        """The ids, as sampling parameters take them."""
        return frozenset(token.token_id for token in self.tokens)

    def __str__(self) -> str:
        return ", ".join(map(str, self.tokens)) or "none: every completion runs to its token budget"


def find_stops(
    tokenizer: PreTrainedTokenizerBase, generation_config: GenerationConfig, user_ids: Iterable[int] = ()
) -> StopSet:
    """Returns the union of all stop ids. Raises ModelError where a user's id is outside the vocabulary."""
    user_ids = tuple(user_ids)
    unknown = [token_id for token_id in user_ids if not 0 <= token_id < len(tokenizer)]
    if unknown:
        raise ModelError(
            f"stop token ids must be in the vocabulary of {len(tokenizer)} tokens, got {unknown}",
            "Correct rollout.stop_token_ids.",
        )
    sources = {
        "generation_config": _as_ids(generation_config.eos_token_id),
        "tokenizer eos": _as_ids(tokenizer.eos_token_id),
        "chat turn end": _as_ids(chat_turn_end(tokenizer)),
        "user": user_ids,
    }
    ids = sorted({token_id for ids in sources.values() for token_id in ids})
    return StopSet(tuple(_stop_token(tokenizer, token_id, sources) for token_id in ids))


def chat_turn_end(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Returns the special token that the chat template puts behind an assistant's turn, None where it puts none."""
    if not tokenizer.chat_template:
        return None
    turns = [{"role": "user", "content": "question"}, {"role": "assistant", "content": _SENTINEL}]
    try:
        text = str(tokenizer.apply_chat_template(turns, tokenize=False))
    except TemplateError as error:
        raise ModelError(
            f"the chat template must render one user and one assistant turn, got {error}",
            "Give a working one with model.chat_template.",
        ) from error
    _, found, rest = text.rpartition(_SENTINEL)
    ids = tokenizer.encode(rest.lstrip(), add_special_tokens=False) if found else []
    return ids[0] if ids and ids[0] in _special_ids(tokenizer) else None


def _special_ids(tokenizer: PreTrainedTokenizerBase) -> set[int]:
    added = {token_id for token_id, token in tokenizer.added_tokens_decoder.items() if token.special}
    return added | set(tokenizer.all_special_ids)


def _as_ids(eos: int | list[int] | None) -> tuple[int, ...]:
    if eos is None:
        return ()
    return (eos,) if isinstance(eos, int) else tuple(eos)


def _stop_token(tokenizer: PreTrainedTokenizerBase, token_id: int, sources: dict[str, tuple[int, ...]]) -> StopToken:
    origins = tuple(name for name, ids in sources.items() if token_id in ids)
    return StopToken(token_id, str(tokenizer.convert_ids_to_tokens(token_id)), origins)
