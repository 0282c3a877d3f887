"""A folder with everything that run files name: models, data of every kind, reward functions, a chat template."""

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from support.gguf import tiny_gguf
from support.reward_models import reward_folder
from support.tiny import tiny_folder

REWARDS = '''
import time


def spread(completion, answer="", shift=0):
    """From 0 to 1, by every byte."""
    return (sum(completion.encode()) + shift) % 11 / 10


def length(completion):
    return len(completion) / 10


def constant(completion):
    return 0.5


def sometimes(completion, answer):
    """No signal where the answer is a multiple of 4."""
    return 0.5 if int(answer) % 4 == 0 else spread(completion)


def slow(completion):
    time.sleep(0.1)
    return spread(completion)


def hungry(completion):
    return len(bytearray(2**28)) and spread(completion)


def counting(completion):
    """How often its process called it."""
    time.sleep(0.1)
    calls.append(completion)
    return len(calls)


calls = []
'''

TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['content'] }}{% if shout %}!!!{% endif %}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONFIGURED = """---
configs:
- config_name: first
  data_files: [{split: train, path: first.parquet}]
- config_name: second
  data_files: [{split: train, path: second.parquet}]
---
"""
CODE = "from transformers import LlamaConfig\n\n\nclass MyConfig(LlamaConfig):\n    model_type = 'mine'\n"


def make_world(folder: Path) -> Path:
    """Fills the folder and returns it."""
    tiny_folder(folder).rename(folder / "model")
    tiny_folder(folder, seed=1).rename(folder / "other-model")
    tiny_gguf(folder / "gguf")
    reward_folder(folder, "llama")
    reward_folder(folder, "gpt2", num_labels=2, id2label={0: "bad", 1: "good"}, label2id={"bad": 0, "good": 1})
    _write_coded_model(folder)
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    (folder / "template.jinja").write_text(TEMPLATE, encoding="utf-8")
    rows, other, held_out = list(_rows(range(6))), list(_rows(range(4))), list(_rows(range(50, 53)))
    for name, some in (("rows", rows), ("other", other), ("held-out", held_out)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
    _write_data_sets(folder, rows, other)
    return folder


def _rows(indices: Iterable[int]) -> Iterable[dict[str, Any]]:
    """Rows whose prompts differ in length."""
    for index in indices:
        yield {
            "prompt": f"What is {index} plus {index}" + "?" * (index % 3 + 1),
            "question": f"Double {index}.",
            "answer": str(2 * index),
            **({"sometimes": "Now?"} if index % 2 else {}),
        }


def _write_coded_model(folder: Path) -> None:
    coded = shutil.copytree(folder / "model", folder / "coded")
    config = json.loads((coded / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.MyConfig"}}
    (coded / "config.json").write_text(json.dumps(config))
    (coded / "mine.py").write_text(CODE)


def _write_data_sets(folder: Path, rows: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    """Parquet files, saved data sets with two splits, and one with two subsets."""
    os.environ.setdefault("HF_DATASETS_CACHE", str(folder / "datasets-cache"))
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import Dataset, DatasetDict

    (folder / "configured").mkdir()
    (folder / "configured" / "README.md").write_text(CONFIGURED)
    for path, some in (("rows", rows), ("other", other), ("configured/first", rows), ("configured/second", other)):
        pq.write_table(pa.Table.from_pylist(some), folder / f"{path}.parquet")
    for name, some in (("hub", rows), ("other-hub", other)):
        splits = DatasetDict(train=Dataset.from_list(some), test=Dataset.from_list(some[:2]))
        splits.save_to_disk(folder / name)
