"""Given conversations become token-exact rows: what the policy would see, then what it should say."""

from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from strop.config.offline import OfflineMethodName
from strop.data.offline.columns import ColumnReader, TrainOn
from strop.data.offline.examples import Example, ExampleRules, build_examples
from strop.data.offline.render import ConversationRenderer, TokenRow
from strop.data.renderer import ChatRenderer
from strop.data.rows import DataRow, SourceRows
from strop.errors import DataError
from strop.models.stops import StopSet, StopToken
from support.chat_templates import TEMPLATES, chat_tokenizer, end_of_turn
from support.tokenizer import BOS_ID, EOS_ID, tiny_tokenizer

QUESTION = {"role": "user", "content": "What is two plus two?"}
ANSWER = {"role": "assistant", "content": "The answer is four."}
AGAIN = {"role": "user", "content": "Is it four?"}
YES = {"role": "assistant", "content": "Yes."}
TALK = [QUESTION, ANSWER, AGAIN, YES]


def renderer_of(tokenizer: PreTrainedTokenizerFast, *ends: int, **settings: Any) -> ConversationRenderer:
    stops = (*ends, EOS_ID)
    tokens = tuple(StopToken(one, str(tokenizer.convert_ids_to_tokens(one)), ()) for one in stops)
    return ConversationRenderer(ChatRenderer(tokenizer, **settings), StopSet(tokens), EOS_ID)


def family_renderer(family: str) -> tuple[PreTrainedTokenizerFast, ConversationRenderer]:
    tokenizer = chat_tokenizer(family)
    return tokenizer, renderer_of(tokenizer, end_of_turn(family, tokenizer))


def read(
    renderer: ConversationRenderer,
    *rows: dict[str, Any],
    method: OfflineMethodName = "sft",
    train_on: TrainOn = "assistant",
    rules: ExampleRules | None = None,
    **names: str,
) -> list[Example]:
    numbered = tuple(DataRow(f"rows:{i}", row, "rows", f"rows.jsonl, line {i + 1}") for i, row in enumerate(rows))
    reader = ColumnReader(method, names, train_on)
    table, _ = build_examples(SourceRows("rows", numbered), reader, renderer, rules or ExampleRules(512))
    return list(table.examples)


def trained_texts(tokenizer: PreTrainedTokenizerFast, row: TokenRow) -> list[str]:
    """The runs of trained tokens as text."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], row.loss_mask.astype(int), [0]])))
    return [tokenizer.decode(row.token_ids[start:stop]) for start, stop in zip(edges[::2], edges[1::2], strict=True)]


@pytest.mark.parametrize("family", TEMPLATES)
def test_every_answer_is_trained_with_its_end_behind_the_prompt_that_a_policy_sees(family: str) -> None:
    tokenizer, renderer = family_renderer(family)
    end = tokenizer.decode([end_of_turn(family, tokenizer)])
    (example,) = read(renderer, {"messages": TALK})
    (row,) = example.rows
    assert trained_texts(tokenizer, row) == [f"The answer is four.{end}", f"Yes.{end}"]
    chat = ChatRenderer(tokenizer)
    first = int(row.loss_mask.argmax())
    assert row.token_ids[:first].tolist() == chat.render([QUESTION]).tolist()
    whole = tokenizer.apply_chat_template(TALK, tokenize=False).rstrip("\n")
    assert tokenizer.decode(row.token_ids) == whole
    assert int((row.token_ids == BOS_ID).sum()) == whole.count("<|bos|>")


def test_a_tokenizer_that_wants_a_bos_gets_exactly_one() -> None:
    tokenizer = tiny_tokenizer()
    (example,) = read(renderer_of(tokenizer, 4), {"messages": TALK})
    assert int((example.rows[0].token_ids == BOS_ID).sum()) == 1
    assert example.rows[0].token_ids[0] == BOS_ID


def test_a_template_that_rewrites_thoughts_forks_the_conversation() -> None:
    tokenizer, renderer = family_renderer("qwen3")
    thought = {"role": "assistant", "content": "<think>\nTwo and two.\n</think>\n\nFour."}
    (example,) = read(renderer, {"messages": [QUESTION, thought, AGAIN, YES]})
    first, second = example.rows
    assert trained_texts(tokenizer, first) == ["<think>\nTwo and two.\n</think>\n\nFour.<|im_end|>"]
    assert trained_texts(tokenizer, second) == ["Yes.<|im_end|>"]
    assert "think" not in tokenizer.decode(second.token_ids)
    assert len(example.group().samples[0].rows) == 2


@pytest.mark.parametrize("mark", [{"train": False}, {"weight": 0}, {"weight": 0.0}])
def test_a_marked_turn_is_read_and_not_trained(mark: dict[str, Any]) -> None:
    tokenizer, renderer = family_renderer("chatml")
    (example,) = read(
        renderer, {"messages": [QUESTION, {**ANSWER, **mark}, AGAIN, {**YES, "train": True, "weight": 1}]}
    )
    (row,) = example.rows
    assert trained_texts(tokenizer, row) == ["Yes.<|im_end|>"]
    assert "The answer is four." in tokenizer.decode(row.token_ids)


def test_the_last_turn_alone_or_the_whole_text_can_be_trained() -> None:
    tokenizer, renderer = family_renderer("chatml")
    (last,) = read(renderer, {"messages": TALK}, train_on="last")
    assert trained_texts(tokenizer, last.rows[0]) == ["Yes.<|im_end|>"]
    (whole,) = read(renderer, {"messages": TALK}, train_on="all")
    assert whole.rows[0].loss_mask.tolist() == [False] + [True] * (len(whole.rows[0].token_ids) - 1)
    assert tokenizer.decode(whole.rows[0].token_ids) == tokenizer.decode(last.rows[0].token_ids)


def test_prompt_and_completion_are_a_user_and_an_assistant() -> None:
    tokenizer, renderer = family_renderer("chatml")
    texts, turns, messages = read(
        renderer,
        {"prompt": QUESTION["content"], "completion": ANSWER["content"]},
        {"prompt": [QUESTION], "completion": [ANSWER]},
        {"messages": [QUESTION, ANSWER]},
    )
    assert texts.rows[0].token_ids.tolist() == messages.rows[0].token_ids.tolist()
    assert turns.rows[0].token_ids.tolist() == messages.rows[0].token_ids.tolist()
    assert trained_texts(tokenizer, turns.rows[0]) == ["The answer is four.<|im_end|>"]


def test_answers_in_the_prompt_are_not_trained() -> None:
    tokenizer, renderer = family_renderer("chatml")
    (example,) = read(renderer, {"prompt": [QUESTION, ANSWER, AGAIN], "completion": "Yes."})
    assert trained_texts(tokenizer, example.rows[0]) == ["Yes.<|im_end|>"]


def test_without_a_template_an_answer_ends_with_the_end_of_sequence() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    (example,) = read(renderer_of(tokenizer), {"prompt": "What is two? ", "completion": "two"})
    (row,) = example.rows
    assert tokenizer.decode(row.token_ids) == "What is two? two<|endoftext|>"
    assert row.token_ids[row.loss_mask].tolist() == [*tokenizer.encode("two", add_special_tokens=False), EOS_ID]
    with pytest.raises(DataError, match="one message where the tokenizer has no chat template"):
        read(renderer_of(tokenizer), {"messages": TALK})


def test_a_template_that_ends_no_turn_gets_the_end_of_sequence_behind_the_last_one() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    (example,) = read(renderer_of(tokenizer), {"messages": TALK})
    assert trained_texts(tokenizer, example.rows[0]) == ["The answer is four.\n", "Yes.\n<|endoftext|>"]


def test_a_system_prompt_is_put_in_front() -> None:
    tokenizer = chat_tokenizer("chatml")
    renderer = renderer_of(tokenizer, end_of_turn("chatml", tokenizer), system_prompt="Be short.")
    (example,) = read(renderer, {"messages": TALK})
    assert tokenizer.decode(example.rows[0].token_ids).startswith("<|bos|><|im_start|>system\nBe short.<|im_end|>")


def test_a_pair_is_read_with_its_prompt_or_without() -> None:
    tokenizer, renderer = family_renderer("chatml")
    no = {"role": "assistant", "content": "No."}
    examples = read(
        renderer,
        {"prompt": QUESTION["content"], "chosen": "The answer is four.", "rejected": "No."},
        {"prompt": [QUESTION], "chosen": [ANSWER], "rejected": [no]},
        {"chosen": [QUESTION, ANSWER], "rejected": [QUESTION, no]},
        {"prompt": "What is two plus two?", "chosen": [QUESTION, ANSWER], "rejected": [QUESTION, no]},
        method="dpo",
    )
    for example in examples:
        (chosen,), (rejected,) = example.answers
        assert trained_texts(tokenizer, chosen) == ["The answer is four.<|im_end|>"]
        assert trained_texts(tokenizer, rejected) == ["No.<|im_end|>"]
        assert [sample.index for sample in example.group().samples] == [0, 1]
        assert example.rows[0].token_ids.tolist() == examples[0].rows[0].token_ids.tolist()


def test_a_label_becomes_the_reward_of_the_answer() -> None:
    _, renderer = family_renderer("chatml")
    good, bad, talk = read(
        renderer,
        {"prompt": "Is it?", "completion": "Yes.", "label": True},
        {"prompt": "Is it?", "completion": "No.", "label": 0},
        {"messages": TALK, "label": True},
        method="kto",
    )
    assert [one.group().samples[0].reward for one in (good, bad, talk)] == [1.0, 0.0, 1.0]
    assert talk.num_trained_tokens == good.num_trained_tokens


def test_columns_may_have_other_names() -> None:
    _, renderer = family_renderer("chatml")
    (example,) = read(renderer, {"conversation": TALK}, messages="conversation")
    assert example.num_trained_tokens > 0


BAD: list[tuple[OfflineMethodName, dict[str, Any], str]] = [
    ("sft", {"mesages": TALK}, r"must name a column of the data, got 'messages' \(did you mean 'mesages'\?\)"),
    ("sft", {"messages": "hello"}, "must have an assistant turn that may be trained"),
    ("sft", {"messages": []}, "got an empty list"),
    ("sft", {"messages": 3}, "must hold a text or a list of messages, got int"),
    ("sft", {"messages": [QUESTION]}, "must have an assistant turn that may be trained, got none"),
    ("sft", {"messages": [QUESTION, {**ANSWER, "train": False}]}, "must have an assistant turn"),
    ("sft", {"messages": [QUESTION, {"role": "assistant"}]}, "message 2 of column 'messages' must have a text"),
    ("sft", {"messages": [QUESTION, {"content": "x"}]}, "message 2 of column 'messages' must have a role"),
    ("sft", {"messages": [QUESTION, "x"]}, "message 2 of column 'messages' must be an object"),
    ("sft", {"messages": [QUESTION, {**ANSWER, "weight": 0.5}]}, "weight of message 2 .* must be 0 or 1, got 0.5"),
    ("sft", {"messages": [QUESTION, {**ANSWER, "train": "no"}]}, "train of message 2 .* must be true or false"),
    ("sft", {"messages": [ANSWER]}, "a prompt must end with a turn to answer"),
    ("sft", {"messages": [QUESTION, ANSWER, YES]}, "a prompt must end with a turn to answer"),
    ("dpo", {"prompt": "a", "chosen": "b"}, "must name a column of the data, got 'rejected'"),
    ("dpo", {"chosen": "b", "rejected": "c"}, "must name a column of the data, got 'prompt'"),
    ("dpo", {"prompt": "a", "chosen": "b", "rejected": "b"}, "chosen and rejected must differ"),
    ("ipo", {"chosen": [QUESTION, ANSWER], "rejected": [AGAIN, YES]}, "must end a conversation with an assistant turn"),
    ("kto", {"prompt": "a", "completion": "b"}, "must name a column of the data, got 'label'"),
    ("kto", {"prompt": "a", "completion": "b", "label": "yes"}, "must hold true or false, got 'yes'"),
    ("kto", {"messages": [QUESTION], "label": True}, "must end a conversation with an assistant turn"),
]


@pytest.mark.parametrize(("method", "row", "message"), BAD)
def test_a_row_that_cannot_be_used_is_named_with_its_line(
    method: OfflineMethodName, row: dict[str, Any], message: str
) -> None:
    _, renderer = family_renderer("chatml")
    good = {
        "sft": {"messages": TALK},
        "dpo": {"prompt": "a", "chosen": "b", "rejected": "c"},
        "ipo": {"prompt": "a", "chosen": "b", "rejected": "c"},
        "kto": {"prompt": "a", "completion": "b", "label": True},
    }[method]
    with pytest.raises(DataError, match=f"rows.jsonl, line 2: .*{message}"):
        read(renderer, good, row, method=method)
    (kept,) = read(renderer, good, row, method=method, rules=ExampleRules(512, on_bad_row="skip"))
    assert kept.row_id == "rows:0"
    with pytest.raises(DataError, match="none of the 1 rows of rows can be used"):
        read(renderer, row, method=method, rules=ExampleRules(512, on_bad_row="skip"))


def test_overlong_rows_are_counted_and_dropped_or_refused() -> None:
    _, renderer = family_renderer("chatml")
    long = {"messages": [QUESTION, {"role": "assistant", "content": "zq " * 60}]}
    rows = SourceRows(
        "rows",
        tuple(DataRow(f"rows:{i}", row, "rows", f"line {i}") for i, row in enumerate([{"messages": TALK}, long])),
    )
    table, report = build_examples(rows, ColumnReader("sft", {}), renderer, ExampleRules(80))
    assert len(table) == 1
    assert any("1 of 2 rows dropped: overlong" in line for line in report.lines())
    with pytest.raises(
        DataError, match=r"1 of 2 rows of rows are overlong: 80 tokens are allowed, the first \(line 1\)"
    ):
        build_examples(rows, ColumnReader("sft", {}), renderer, ExampleRules(80, on_overlong="error"))
    with pytest.raises(DataError, match="2 of 2 rows"):
        build_examples(rows, ColumnReader("sft", {}), renderer, ExampleRules(8))


def test_the_fingerprint_knows_tokens_masks_and_labels() -> None:
    _, renderer = family_renderer("chatml")

    def fingerprint(row: dict[str, Any], method: OfflineMethodName = "sft", train_on: TrainOn = "assistant") -> str:
        rows = SourceRows("rows", (DataRow("rows:0", row, "rows"),))
        return build_examples(rows, ColumnReader(method, {}, train_on), renderer, ExampleRules(512))[0].fingerprint

    same = {"messages": TALK}
    assert fingerprint(same) == fingerprint(dict(same))
    others = [
        fingerprint(same, train_on="last"),
        fingerprint({"messages": [*TALK[:3], ANSWER]}),
        fingerprint({**same, "label": True}, "kto"),
        fingerprint({**same, "label": False}, "kto"),
    ]
    assert len({fingerprint(same), *others}) == 5
