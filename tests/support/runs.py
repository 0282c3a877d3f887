"""Whole runs of a tiny model: a run file with everything it names, and what a run leaves behind."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from strop.config.dump import dump_config
from strop.config.root import Config
from strop.metrics.sinks.jsonl import read_metrics
from support.tiny import tiny_folder

REWARDS = '''
import time


def spread(completion):
    """Some number from 0 to 1 that depends on every character."""
    return sum(place * ord(letter) for place, letter in enumerate(completion, 1)) % 11 / 10


def slow(completion, seconds=0.05):
    """Says that a step is in the middle of its rollout, and takes its time."""
    print("a reward is asked for", flush=True)
    time.sleep(seconds)
    return spread(completion)


def share_of_e(completion):
    return completion.count("e") / 8


def constant(completion):
    return 0.5


def half_constant(completion, question):
    """No signal in every other prompt."""
    return 0.5 if int(question.split()[-1]) % 2 else spread(completion)


def huge(completion):
    """Finite, and far too large for the square of a gradient in float32."""
    return 1e30 * spread(completion)


def beyond_float32(completion):
    """As large as a Python float can be, for some samples."""
    return 1e300 if len(completion) % 2 else spread(completion)


def no_number(completion):
    """Not a number, or beyond all numbers, for some samples."""
    return (float("nan"), float("inf"), spread(completion))[len(completion) % 3]


def huge_once(completion, question):
    return huge(completion) if question == "What is 1" else spread(completion)
'''


SLOW_REWARD_MARK = "a reward is asked for"
"""What the reward `slow` prints at every call."""


def write_rows(path: Path, num_rows: int, first: int = 0) -> Path:
    """Writes a data file whose rows all differ."""
    rows = [{"question": f"What is {index}", "answer": str(index)} for index in range(first, first + num_rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def tiny_run(
    folder: Path,
    *,
    rows: int = 8,
    reward: str = "spread",
    arguments: dict[str, Any] | None = None,
    **sections: dict[str, Any],
) -> Config:
    """Returns the config of a run of the tiny llama in `folder`, whose files are written where they are missing.

    `reward` is a function of `REWARDS` and `arguments` what it is called with.

    `sections` are laid over the defaults here, key by key: 2 prompts x 3 samples x 8 tokens, 4 steps, a
    checkpoint after every step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rewards.py").write_text(REWARDS, encoding="utf-8")
    model = folder / "llama-0"
    tree: dict[str, dict[str, Any]] = {
        "run": {"name": "run", "output_dir": folder / "runs", "steps": 4, "threads": 1, "device": "cpu"},
        "model": {"path": str(model if model.exists() else tiny_folder(folder))},
        "data": {
            "source": {"type": "jsonl", "path": write_rows(folder / f"rows-{rows}.jsonl", rows)},
            "task": "columns",
            "instruction": "",
        },
        "rollout": {"prompts_per_step": 2, "group_size": 3, "max_new_tokens": 8},
        "training": {"learning_rate": 1e-3},
        "checkpoint": {"every": 1},
        "weight_sync": {"probe_tokens": 8},
    }
    for name, section in sections.items():
        tree[name] = {**tree.get(name, {}), **section}
    function = f"{folder / 'rewards.py'}:{reward}"
    return Config(**tree, rewards=[{"function": function, "arguments": arguments or {}}])


def held_out(folder: Path, **settings: Any) -> dict[str, Any]:
    """An evaluation section with three rows that are not trained on."""
    path = write_rows(folder / "held-out.jsonl", 3, first=1000)
    return {"source": {"type": "jsonl", "path": path}, **settings}


def write_run_file(config: Config, path: Path) -> Path:
    """Writes the config as the run file that a person would have written."""
    path.write_text(dump_config(config), encoding="utf-8")
    return path


def newest_checkpoint(run_folder: Path) -> Path:
    """The newest step folder of a run."""
    return max((run_folder / "checkpoints").glob("step-*"))


def checkpoint_tensors(run_folder: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the engine in the newest checkpoint: weights and the optimizer's moments."""
    files = sorted((newest_checkpoint(run_folder) / "engine").glob("*.safetensors"))
    return {f"{file.stem}/{name}": tensor for file in files for name, tensor in load_file(file).items()}


def weights(run_folder: Path) -> dict[str, torch.Tensor]:
    """The trained weights in the newest checkpoint."""
    return load_file(newest_checkpoint(run_folder) / "engine" / "parameters.safetensors")


def stored_samples(run_folder: Path) -> dict[str, bytes]:
    """The sample files of a run, byte for byte."""
    return {path.name: path.read_bytes() for path in sorted((run_folder / "samples").iterdir())}


def stored_metrics(run_folder: Path) -> list[dict[str, Any]]:
    """The lines of `metrics.jsonl` without what depends on the machine's speed and memory."""
    lines = read_metrics(run_folder / "metrics.jsonl")
    return [
        {name: value for name, value in line.items() if not name.startswith(("timing/", "memory/"))} for line in lines
    ]


def assert_same_tensors(actual: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Every tensor is equal bit by bit."""
    assert actual.keys() == expected.keys()
    different = [name for name, tensor in expected.items() if not torch.equal(actual[name], tensor)]
    assert not different


def assert_same_run(actual: Path, expected: Path) -> None:
    """Two runs ended with the same weights and optimizer state, the same samples and the same metrics."""
    assert_same_tensors(checkpoint_tensors(actual), checkpoint_tensors(expected))
    assert stored_samples(actual) == stored_samples(expected)
    assert stored_metrics(actual) == stored_metrics(expected)
