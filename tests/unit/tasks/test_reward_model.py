"""Reward models: each sample has the score that its conversation has alone, however it was batched and padded."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from strop.config.judges import RewardModelConfig
from strop.config.rewards import RewardConfig
from strop.data.errors import SettingError
from strop.errors import ModelError
from strop.records import FinishState, Group, Message, Prompt, RewardPart
from strop.tasks.model_host import ModelHost
from strop.tasks.reward_model.batches import RowScorer
from strop.tasks.reward_model.conversation import TokenRow
from strop.tasks.reward_model.reward import ModelReward
from strop.tasks.rewards import build_rewards
from support.groups import made_group, stopped_group
from support.reward_models import REWARD_FAMILIES, reward_config, reward_folder, reward_tokenizer
from support.tiny import MAX_LENGTH, tiny_folder
from support.tokenizer import EOS_ID, PAD_ID, tiny_tokenizer

TEXTS = ["No.", "It is a strop, which gives a blade its edge.", "", "four", "The answer is 42, and 7 more is 49.", "4"]
DECODERS = ("llama", "qwen2", "gpt2")


def made_reward(folder: Path, **settings: Any) -> ModelReward:
    return ModelHost().model_reward("mine", RewardModelConfig(path=str(folder), **settings))


def judged(reward: ModelReward, group: Group, texts: list[str]) -> list[RewardPart]:
    return asyncio.run(reward(group, texts))


def values(parts: list[RewardPart]) -> list[float]:
    assert [part.error for part in parts] == [None] * len(parts)
    return [part.value for part in parts if part.value is not None]


def alone(folder: Path, ids: list[int], output: int = 0, **inputs: torch.Tensor) -> float:
    """The oracle: transformers reads one row without padding, in float64, at its last token."""
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float64).eval()
    model.config.pad_token_id = None if folder.name.removeprefix("reward-") in DECODERS else PAD_ID
    with torch.no_grad():
        return float(model(input_ids=torch.tensor([ids]), **inputs).logits[0, output])


def chat_ids(group: Group, text: str) -> list[int]:
    turns = [*group.prompt.messages, Message(role="assistant", content=text)]
    tokenizer = reward_tokenizer()
    rendered = tokenizer.apply_chat_template([dict(turn) for turn in turns], tokenize=False)
    return tokenizer(rendered, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("family", REWARD_FAMILIES)
def test_every_sample_has_the_score_that_it_has_alone(tmp_path: Path, family: str) -> None:
    folder = reward_folder(tmp_path, family)
    group = stopped_group(len(TEXTS))
    expected = [alone(folder, chat_ids(group, text)) for text in TEXTS]
    assert max(expected) - min(expected) > 0.1, "an oracle whose scores are all the same shows nothing"
    found = values(judged(made_reward(folder), group, TEXTS))
    assert found == pytest.approx(expected, abs=1e-5, rel=1e-5)


@pytest.mark.parametrize("family", REWARD_FAMILIES)
def test_models_of_every_family_are_padded_not_read_one_by_one(family: str) -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(reward_config(family)).eval()
    scorer = RowScorer(model, 0, batch_tokens=1000, last_id=EOS_ID)
    rows = [TokenRow((9, 8, 7, EOS_ID)), TokenRow((7, EOS_ID, EOS_ID, EOS_ID, EOS_ID)), TokenRow((6, 6, 6))]
    assert [places for places, _ in scorer.batches(rows)] == [[2, 0, 1]]


def test_rows_of_very_different_lengths_are_not_padded_to_the_longest() -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(reward_config("llama")).eval()
    scorer = RowScorer(model, 0, batch_tokens=1000, last_id=EOS_ID)
    rows = [TokenRow(tuple(range(10, 10 + length))) for length in (100, 6, 9, 5, 10)]
    assert [places for places, _ in scorer.batches(rows)] == [[3, 1], [2, 4], [0]]


def test_rows_that_end_with_the_pad_token_are_read_to_their_end(tmp_path: Path) -> None:
    """The trap: transformers itself would look for the last token that is not the pad token."""
    folder = reward_folder(tmp_path)
    group = stopped_group(1)
    ids = chat_ids(group, "four")
    assert ids[-1] == EOS_ID
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    assert model.config.pad_token_id == EOS_ID
    with torch.no_grad():
        trapped = float(model(input_ids=torch.tensor([ids])).logits[0, 0])
    [found] = values(judged(made_reward(folder), group, ["four"]))
    assert abs(found - trapped) > 1e-2
    assert found == pytest.approx(alone(folder, ids), abs=1e-5)


def test_a_batch_holds_at_most_its_tokens_with_padding() -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(reward_config("llama")).eval()
    scorer = RowScorer(model, 0, batch_tokens=12, last_id=EOS_ID)
    rows = [TokenRow(tuple(range(10, 10 + length))) for length in (20, 3, 4, 5, 4)]
    assert [places for places, _ in scorer.batches(rows)] == [[1, 2, 4], [3], [0]]


def test_rows_that_use_every_token_id_are_scored_all_the_same() -> None:
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_config(reward_config("llama", vocab_size=12)).eval()
    scorer = RowScorer(model, 0, batch_tokens=1000, last_id=EOS_ID)
    rows = [TokenRow((*range(12), 3)), TokenRow((1, 2)), TokenRow((3, 4, 5))]
    found = dict(pair for places, scores in scorer.batches(rows) for pair in zip(places, scores, strict=True))
    model.config.pad_token_id = None
    with torch.no_grad():
        expected = [float(model(input_ids=torch.tensor([row.token_ids])).logits[0, 0]) for row in rows]
    assert [found[place] for place in range(3)] == pytest.approx(expected, abs=1e-5)


class _Careless(torch.nn.Module):
    """A classifier that reads the last place of the batch, padding or not."""

    def __init__(self) -> None:
        super().__init__()
        self.config = reward_config("llama")
        self.embeddings = torch.nn.Embedding(50, 1)
        self.device, self.dtype = torch.device("cpu"), torch.float32

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.embeddings

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        return type("Output", (), {"logits": self.embeddings(input_ids[:, -1])})


def test_a_model_that_padding_disturbs_is_given_one_row_at_a_time() -> None:
    torch.manual_seed(0)
    model: Any = _Careless()
    scorer = RowScorer(model, 0, batch_tokens=1000, last_id=9)
    rows = [TokenRow((1, 2)), TokenRow((3, 4, 5))]
    assert [places for places, _ in scorer.batches(rows)] == [[0], [1]]


def test_groups_that_are_judged_at_once_share_batches_and_keep_their_scores(tmp_path: Path) -> None:
    reward = made_reward(reward_folder(tmp_path))
    groups = [stopped_group(2) for _ in range(3)]
    texts = [TEXTS[0:2], TEXTS[2:4], TEXTS[4:6]]

    async def at_once() -> list[list[RewardPart]]:
        return list(await asyncio.gather(*(reward(group, own) for group, own in zip(groups, texts, strict=True))))

    together = [values(parts) for parts in asyncio.run(at_once())]
    apart = [values(judged(reward, group, own)) for group, own in zip(groups, texts, strict=True)]
    assert together == [pytest.approx(own, abs=1e-5) for own in apart]


def test_a_group_that_comes_when_the_last_one_is_just_done_is_scored_too(tmp_path: Path) -> None:
    reward = made_reward(reward_folder(tmp_path, "llama"))

    async def one_behind_the_other() -> list[list[RewardPart]]:
        return [await reward(stopped_group(1), ["four"]) for _ in range(3)]

    async def at_many_moments() -> list[list[RewardPart]]:
        async def late(turns: int) -> list[RewardPart]:
            for _ in range(turns):
                await asyncio.sleep(0)
            return await reward(stopped_group(1), ["four"])

        return await asyncio.gather(*(late(turns) for turns in range(24)))

    found = [values(parts)[0] for work in (one_behind_the_other, at_many_moments) for parts in asyncio.run(work())]
    assert found == pytest.approx([found[0]] * 27, abs=1e-5)


def test_a_conversation_that_is_too_long_is_invalid_and_the_others_are_not(tmp_path: Path) -> None:
    reward = made_reward(reward_folder(tmp_path))
    [short, long] = judged(reward, stopped_group(2), ["four", "four " * MAX_LENGTH])
    assert short.value is not None
    assert long.value is None
    assert long.error is not None
    assert f"at most {MAX_LENGTH} tokens, got a conversation of" in long.error
    assert long.error.startswith("reward 'mine', prompt made:0, sample 1: ")


def test_a_conversation_of_exactly_the_maximum_is_read(tmp_path: Path) -> None:
    reward = made_reward(reward_folder(tmp_path), reads="completion")
    one_by_one = ["7" * MAX_LENGTH, "7" * (MAX_LENGTH + 1)]
    assert [part.value is None for part in judged(reward, stopped_group(2), one_by_one)] == [False, True]


def test_a_pair_and_a_completion_are_read_with_the_tokens_of_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    names = ["input_ids", "token_type_ids", "attention_mask"]
    tokenizer.model_input_names = tokenizer.init_kwargs["model_input_names"] = names
    tokenizer._tokenizer.post_processor = _bert_pairs()
    folder = reward_folder(tmp_path, "bert", tokenizer)
    group = stopped_group(2)
    question = group.prompt.messages[0]["content"]
    pairs = [tokenizer(question, text) for text in TEXTS[:2]]
    assert {1} < set(pairs[0]["token_type_ids"])
    expected = [
        alone(folder, pair["input_ids"], token_type_ids=torch.tensor([pair["token_type_ids"]])) for pair in pairs
    ]
    assert values(judged(made_reward(folder, reads="pair"), group, TEXTS[:2])) == pytest.approx(expected, abs=1e-5)
    expected = [alone(folder, tokenizer(text)["input_ids"]) for text in TEXTS[:2]]
    found = values(judged(made_reward(folder, reads="completion"), group, TEXTS[:2]))
    assert found == pytest.approx(expected, abs=1e-5)


def _bert_pairs() -> Any:
    from tokenizers.processors import BertProcessing

    return BertProcessing(("<|endoftext|>", EOS_ID), ("<|bos|>", 1))


def test_without_a_chat_template_a_chat_is_refused_with_the_way_out(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(SettingError, match="must have a chat template to read a chat") as caught:
        made_reward(reward_folder(tmp_path, "bert", tokenizer))
    assert "rewards.model.reads" in str(caught.value)


def test_a_template_that_drops_the_answer_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = "{% for message in messages if message.role == 'user' %}{{ message.content }}{% endfor %}"
    with pytest.raises(SettingError, match="must show the assistant's turn"):
        made_reward(reward_folder(tmp_path, "bert", tokenizer))


def test_a_conversation_that_the_template_refuses_is_invalid(tmp_path: Path) -> None:
    tokenizer = reward_tokenizer()
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('no system turns') }}{% endif %}"
    tokenizer.chat_template = refusal + str(tokenizer.chat_template)
    group = stopped_group(1)
    messages = (Message(role="system", content="Be brief."), *group.prompt.messages)
    prompt = Prompt("refused", 0, group.prompt.token_ids, messages, task="columns")
    [part] = judged(made_reward(reward_folder(tmp_path, "llama", tokenizer)), Group(prompt, group.samples), ["four"])
    assert part.value is None
    assert "no system turns" in str(part.error)


def test_one_of_several_labels_must_be_named(tmp_path: Path) -> None:
    labels = {"num_labels": 2, "id2label": {0: "bad", 1: "good"}, "label2id": {"bad": 0, "good": 1}}
    folder = reward_folder(tmp_path, "llama", **labels)
    with pytest.raises(ModelError, match=r"reward 'mine': .* has 2 labels \(bad, good\)"):
        made_reward(folder)
    with pytest.raises(ModelError, match=r"must be a label of .* got 'goood' \(did you mean 'good'\?\)"):
        made_reward(folder, label="goood")
    group = stopped_group(1)
    [found] = values(judged(made_reward(folder, label="good"), group, ["four"]))
    assert found == pytest.approx(alone(folder, chat_ids(group, "four"), output=1), abs=1e-5)


def test_a_language_model_is_no_reward_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"must be a sequence classification model .* got LlamaForCausalLM"):
        made_reward(tiny_folder(tmp_path))


def test_a_checkpoint_without_a_head_is_refused_rather_than_given_random_numbers(tmp_path: Path) -> None:
    folder = reward_folder(tmp_path)
    body = AutoModelForCausalLM.from_config(reward_config("llama"))
    body.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["LlamaForSequenceClassification"]}))
    reward = made_reward(folder)
    with pytest.raises(ModelError, match="must hold every weight of the reward model, its head too"):
        judged(reward, stopped_group(1), ["four"])


def test_a_missing_folder_is_told_with_the_name_of_the_reward(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="reward 'mine': "):
        made_reward(tmp_path / "nowhere")


def test_scores_are_shifted_and_scaled(tmp_path: Path) -> None:
    folder = reward_folder(tmp_path)
    plain = values(judged(made_reward(folder), stopped_group(2), TEXTS[:2]))
    moved = values(judged(made_reward(folder, mean=0.5, scale=4.0), stopped_group(2), TEXTS[:2]))
    assert moved == pytest.approx([(value - 0.5) / 4.0 for value in plain])


def test_bfloat16_weights_give_the_score_nearly(tmp_path: Path) -> None:
    folder = reward_folder(tmp_path)
    plain = values(judged(made_reward(folder), stopped_group(2), TEXTS[:2]))
    rounded = values(judged(made_reward(folder, dtype="bfloat16"), stopped_group(2), TEXTS[:2]))
    assert rounded != plain
    assert rounded == pytest.approx(plain, abs=0.1)


def test_a_score_that_is_no_number_makes_the_sample_invalid(tmp_path: Path) -> None:
    [part] = judged(made_reward(reward_folder(tmp_path), scale=1e-45), stopped_group(1), ["four"])
    assert part.value is None
    assert part.error is not None


def test_one_model_serves_every_reward_and_task_that_names_it(tmp_path: Path) -> None:
    host = ModelHost()
    section = RewardModelConfig(path=str(reward_folder(tmp_path)))
    first, second = host.model_reward("first", section), host.model_reward("second", section)
    assert first._model is second._model
    assert [reward.name for reward in (first, second)] == ["first", "second"]


def test_a_run_file_builds_the_reward_of_a_model(tmp_path: Path) -> None:
    from strop.config.data import DataConfig
    from strop.tasks import build_task

    data = DataConfig.model_validate({"source": {"type": "jsonl", "path": "x"}, "task": "columns"})
    config = RewardConfig(model=RewardModelConfig(path=str(reward_folder(tmp_path))), weight=0.5)
    [reward] = build_rewards([config], build_task("columns", data))
    assert (reward.name, reward.weight, reward.is_task_grader) == ("model", 0.5, False)
    reward.function.check_columns(frozenset())
    group = made_group([FinishState.LENGTH])
    [part] = asyncio.run(reward.function(group, ["four"]))
    assert part.value is not None


def test_a_failure_while_the_model_runs_reaches_everybody_who_waits(tmp_path: Path) -> None:
    folder = reward_folder(tmp_path)
    reward = made_reward(folder)
    for file in folder.glob("*.safetensors"):
        file.unlink()

    async def both() -> list[Any]:
        calls = (reward(stopped_group(1), ["four"]) for _ in range(2))
        return list(await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10))

    assert [type(error) for error in asyncio.run(both())] == [ModelError, ModelError]
