"""No key of an offline run file is decoration: another value shows in what a run does, or is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import strop
from strop.config.base import Section
from strop.config.load import load_offline_config
from strop.config.offline import OfflineConfig
from strop.config.schema import item_sections, sections
from strop.errors import StropError
from support.offline import ROWS, conversations, offline_run, write_jsonl
from support.runs import stored_metrics, tiny_run

EVALUATION = [
    'evaluation.source={type="jsonl", path="WORLD/held-out.jsonl"}',
]
SMALL = "model.max_length=61"
EFFECTS: dict[str, tuple[str, list[str], list[str]]] = {
    # key: (method, what both runs have, what one has beside it)
    "run.steps": ("sft", [], ["run.steps=1"]),
    "run.seed": ("sft", [], ["run.seed=1"]),
    "data.columns": ("sft", [], ['data.columns={ messages = "other" }']),
    "data.system_prompt": ("sft", [], ["data.system_prompt=Hm."]),
    "data.chat_template_kwargs": ("sft", [], ["data.chat_template_kwargs={ shout = true }"]),
    "data.on_overlong": ("sft", [SMALL], ["data.on_overlong=error"]),
    "data.on_bad_row": ("sft", ["data.source.path=WORLD/bad.jsonl"], ["data.on_bad_row=skip"]),
    "data.shuffle": ("sft", [], ["data.shuffle=false"]),
    "data.epochs": ("sft", [], ["data.epochs=3"]),
    "data.limit": ("sft", [], ["data.limit=3"]),
    "data.source.minimum_reward": (
        "sft",
        ['data.source={type="samples", path="WORLD/runs/online", minimum_reward=0.0}'],
        ["data.source.minimum_reward=0.5"],
    ),
    "offline.train_on": ("sft", [], ["offline.train_on=last"]),
    "offline.beta (dpo)": ("dpo", [], ["offline.beta=0.5"]),
    "offline.label_smoothing": ("dpo", [], ["offline.label_smoothing=0.2"]),
    "offline.beta (ipo)": ("ipo", [], ["offline.beta=0.5"]),
    "offline.beta (kto)": ("kto", [], ["offline.beta=0.5"]),
    "offline.desirable_weight": ("kto", [], ["offline.desirable_weight=2.0"]),
    "offline.undesirable_weight": ("kto", [], ["offline.undesirable_weight=2.0"]),
    "training.learning_rate": ("sft", [], ["training.learning_rate=1e-2"]),
    "training.batch_size": ("sft", [], ["training.batch_size=4"]),
    "training.schedule_updates": ("sft", ["training.schedule=linear"], ["training.schedule_updates=9"]),
    "evaluation.source": ("sft", [], EVALUATION),
    "evaluation.limit": ("sft", EVALUATION, ["evaluation.limit=2"]),
    "evaluation.every": ("sft", EVALUATION, ["evaluation.every=1"]),
    "evaluation.before": ("sft", EVALUATION, ["evaluation.before=false"]),
    "evaluation.after": ("sft", EVALUATION, ["evaluation.after=false"]),
}
NEVER_READ = {
    ("ModelConfig", "rollout_dtype"),
    ("MetricsConfig", "save_samples"),
    ("OfflineTrainingConfig", "updates_per_batch"),
    ("OfflineTrainingConfig", "epochs_per_batch"),
    *((name, "type") for name in ("JsonlSource", "ParquetSource", "HubSource", "SamplesSource")),
}
"""Keys that are refused where they are given, as `test_offline.py` shows, and those that choose a class."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, rows of every kind, held-out ones, bad ones, and an online run."""
    folder = tmp_path_factory.mktemp("world")
    for method in ROWS:
        offline_run(folder, method)
    rows = conversations(7)
    write_jsonl(folder / "sft-7.jsonl", [{**row, "other": row["messages"][:2]} for row in rows])
    write_jsonl(folder / "bad.jsonl", [*rows, {"messages": 1}])
    write_jsonl(folder / "held-out.jsonl", conversations(3, first=90))
    strop.train(tiny_run(folder, run={"name": "online", "steps": 2}))
    return folder


def evidence(world: Path, method: str, overrides: list[str]) -> Any:
    """What a run did: its metrics, or why it was refused."""
    base = [
        "run.output_dir=WORLD/offline",
        "run.threads=1",
        "run.device=cpu",
        "model.path=WORLD/llama-0",
        f'data.source={{type="jsonl", path="WORLD/{method}-7.jsonl"}}',
        "training.learning_rate=1e-3",
        "training.batch_size=3",
        "checkpoint.every=0",
    ]
    texts = [text.replace("WORLD", str(world)) for text in [*base, *overrides]]
    command = getattr(strop, method)
    try:
        return stored_metrics(command(load_offline_config(None, texts, method), overwrite=True).folder)
    except StropError as error:
        return str(error)


@pytest.mark.parametrize("key", EFFECTS)
def test_another_value_shows(world: Path, key: str) -> None:
    method, common, further = EFFECTS[key]
    assert evidence(world, method, common) != evidence(world, method, [*common, *further])


def own_keys(section: type[Section] = OfflineConfig) -> Iterator[tuple[str, str]]:
    """Class and name of every key that holds a value."""
    for name, field in section.model_fields.items():
        inner = [*sections(field.annotation), *item_sections(field.annotation)]
        for one in inner:
            yield from own_keys(one)
        if not inner:
            yield section.__name__, name


def test_every_key_is_read_by_some_run(world: Path) -> None:
    seen: set[tuple[str, str]] = set()
    best = ["checkpoint.every=1", "checkpoint.keep_best=eval/loss", "checkpoint.best_is=lowest"]
    cases: list[tuple[str, list[str]]] = [
        ("sft", [*EVALUATION, *best, "training.schedule=cosine", "model.lora.rank=2", "metrics.sinks=['tensorboard']"]),
        ("sft", EFFECTS["data.source.minimum_reward"][1]),
        ("sft", ["training.learning_rate=1e38"]),
        *((method, []) for method in ("dpo", "ipo", "kto")),
        ("sft", ['data.source={type="parquet", path="WORLD/gone"}']),
        ("sft", ['data.source={type="hub", path="WORLD/gone"}']),
    ]
    Section.observer = lambda section, key: seen.add((section, key))
    try:
        for method, overrides in cases:
            evidence(world, method, overrides)
    finally:
        Section.observer = None
    assert set(own_keys()) - seen == NEVER_READ
