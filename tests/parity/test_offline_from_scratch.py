"""SFT and DPO written out by hand, with plain transformers and torch, end with the weights that a run ends with."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

import strop
from support.offline import ROWS, offline_run
from support.runs import stored_metrics, weights

BATCH_SIZE = 3
BETA = 0.1
LEARNING_RATE = 1e-3
Loss = Callable[[PreTrainedModel, PreTrainedModel, PreTrainedTokenizerBase, list[dict[str, Any]]], Tensor]


def token_logprobs(model: PreTrainedModel, ids: list[int]) -> Tensor:
    """The log-prob of every token but the first."""
    scores = torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1], -1)
    return scores.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]


def turn_ids(tokenizer: PreTrainedTokenizerBase, turns: list[dict[str, str]]) -> tuple[list[int], int]:
    """A conversation up to the end of its last turn, and where that turn begins."""

    def ids(some: list[dict[str, str]], **options: bool) -> list[int]:
        text = str(tokenizer.apply_chat_template(some, tokenize=False, **options))
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    newline = tokenizer("\n", add_special_tokens=False)["input_ids"]
    whole = ids(turns)
    assert whole[-1:] == newline
    return whole[:-1], len(ids(turns[:-1], add_generation_prompt=True))


def sft_loss(
    model: PreTrainedModel, _: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, batch: list[dict[str, Any]]
) -> Tensor:
    """The mean over every token that an assistant says."""
    parts = []
    for row in batch:
        for place in (1, 3):
            ids, start = turn_ids(tokenizer, row["messages"][: place + 1])
            parts.append(token_logprobs(model, ids)[start - 1 :])
    return -torch.cat(parts).mean()


def dpo_loss(
    model: PreTrainedModel,
    reference: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    batch: list[dict[str, Any]],
) -> Tensor:
    losses = []
    for row in batch:
        ratios = []
        for name in ("chosen", "rejected"):
            turns = [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row[name]}]
            ids, start = turn_ids(tokenizer, turns)
            with torch.no_grad():
                fixed = token_logprobs(reference, ids)[start - 1 :].sum()
            ratios.append(token_logprobs(model, ids)[start - 1 :].sum() - fixed)
        losses.append(-torch.nn.functional.logsigmoid(BETA * (ratios[0] - ratios[1])))
    return torch.stack(losses).mean()


LOSSES: dict[str, Loss] = {"sft": sft_loss, "dpo": dpo_loss}


@pytest.mark.parametrize("method", LOSSES)
def test_a_run_ends_with_the_weights_of_a_plain_loop(tmp_path: Path, method: str) -> None:
    training = {"learning_rate": LEARNING_RATE, "batch_size": BATCH_SIZE, "micro_batch_tokens": 100}
    config = offline_run(tmp_path, method, rows=7, data={"shuffle": False, "epochs": 1}, training=training)
    folder = {"sft": strop.sft, "dpo": strop.dpo}[method](config).folder

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "llama-0", attn_implementation="eager")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "llama-0")
    reference = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.0)
    rows = ROWS[method](7)
    for line, start in zip(stored_metrics(folder)[1:], range(0, 7, BATCH_SIZE), strict=True):
        loss = LOSSES[method](model, reference, tokenizer, rows[start : start + BATCH_SIZE])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        assert line["offline/loss"] == pytest.approx(float(loss.detach()), rel=1e-4)
        assert line["update/gradient_norm"] == pytest.approx(float(norm), rel=1e-3)
    ended = weights(folder)
    for name, expected in model.named_parameters():
        torch.testing.assert_close(ended[name], expected.detach(), rtol=1e-3, atol=2e-5)
