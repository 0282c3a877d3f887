"""Whole offline runs of a tiny model: rows of every kind, and the config of a run on them."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from strop.config.offline import OfflineConfig
from support.tiny import tiny_folder


def conversations(num_rows: int, first: int = 0) -> list[dict[str, Any]]:
    """Conversations of two exchanges whose answers can be learned."""
    return [
        {
            "messages": [
                {"role": "user", "content": f"What is {index}?"},
                {"role": "assistant", "content": "It is the answer."},
                {"role": "user", "content": f"Is it {index}" + "?" * (index % 3 + 1)},
                {"role": "assistant", "content": "Yes, the answer."},
            ]
        }
        for index in range(first, first + num_rows)
    ]


def pairs(num_rows: int, first: int = 0) -> list[dict[str, Any]]:
    """Prompts of some length, each with a chosen and a rejected answer of other lengths."""
    return [
        {
            "prompt": f"The user asks a question: what is {index}" + "?" * (index % 3 + 1),
            "chosen": "It is the answer.",
            "rejected": "No." if index % 2 else "There is no answer other than the one that is there.",
        }
        for index in range(first, first + num_rows)
    ]


def labelled(num_rows: int, first: int = 0) -> list[dict[str, Any]]:
    """The answers of `pairs` one by one, with a label."""
    return [
        {"prompt": row["prompt"], "completion": row[name], "label": name == "chosen"}
        for row in pairs((num_rows + 1) // 2, first)
        for name in ("chosen", "rejected")
    ][:num_rows]


ROWS = {"sft": conversations, "dpo": pairs, "ipo": pairs, "kto": labelled}


def write_jsonl(path: Path, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Writes rows, one a line."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def offline_run(folder: Path, method: str = "sft", *, rows: int = 7, **sections: dict[str, Any]) -> OfflineConfig:
    """Returns the config of an offline run of the tiny llama, whose files are written where they are missing.

    `sections` are laid over the defaults here, key by key: batches of 3, 2 epochs, a checkpoint after every step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / "llama-0"
    data = write_jsonl(folder / f"{method}-{rows}.jsonl", ROWS[method](rows))
    tree: dict[str, dict[str, Any]] = {
        "run": {"name": method, "output_dir": folder / "runs", "threads": 1, "device": "cpu"},
        "model": {"path": str(model if model.exists() else tiny_folder(folder))},
        "data": {"source": {"type": "jsonl", "path": data}, "epochs": 2},
        "offline": {"type": method},
        "training": {"learning_rate": 1e-3, "batch_size": 3},
        "checkpoint": {"every": 1},
    }
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    return OfflineConfig(**tree)
