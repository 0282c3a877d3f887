"""No key of a run file is decoration: something reads it, and another value shows, or is refused."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from strop.config.base import Section
from strop.config.describe import KeyDescription, describe
from strop.config.load import load_config
from strop.config.rollout import RolloutConfig
from strop.config.rollout_vllm import VllmConfig
from strop.config.root import Config
from strop.config.schema import item_sections, sections
from strop.config.weight_sync import WeightSyncConfig
from strop.errors import ConfigError
from strop.rollout.vllm.settings import engine_args
from strop.transfer.build import build_sending_half
from support.algorithm_effects import PPO, ROUGH, TWO_TEACHERS
from support.effect import BASE, BEST, EVALUATION, KL, LORA
from support.evidence import Evidence, dry_run, override, skipped_updates, train_run
from support.judgements import judgement
from support.key_effects import EFFECTS, LIKED, SOURCES, judge
from support.run_world import make_world


class Runs:
    """Runs what an effect asks for, and each base once."""

    def __init__(self, world: Path) -> None:
        self._world = world
        self._numbers = count()
        self._bases: dict[tuple[Callable[[Config], Any], tuple[str, ...]], Any] = {}

    def once(self, run: Callable[[Config], Any], overrides: Sequence[str]) -> Any:
        key = (run, tuple(overrides))
        if key not in self._bases:
            self._bases[key] = self.fresh(run, overrides)
        return self._bases[key]

    def fresh(self, run: Callable[[Config], Any], overrides: Sequence[str]) -> Any:
        """A run in a folder of its own; a config that cannot be loaded is evidence too."""
        output_dir = f"run.output_dir=WORLD/runs/{next(self._numbers)}"
        try:
            config = load_config(None, override([*BASE, output_dir, *overrides], self._world))
        except ConfigError as caught:
            return Evidence(Config.model_construct(), "", str(caught), 0)
        return run(config)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    with pytest.MonkeyPatch.context() as patch:
        world = make_world(tmp_path_factory.mktemp("world"))
        patch.setenv("STROP_CACHE", str(world / "cache"))
        yield Runs(world)


def name_of(description: KeyDescription) -> str:
    kind = description.when.removeprefix("type = ")
    return f"{description.key} ({kind})" if kind else description.key


def test_the_table_of_effects_names_every_key_and_no_other() -> None:
    assert set(EFFECTS) == {name_of(description) for description in describe()}


@pytest.mark.parametrize("key", EFFECTS)
def test_another_value_of_a_key_shows(key: str, runs: Runs) -> None:
    effect = EFFECTS[key]
    without = effect.look(runs.once(effect.run, effect.base))
    again = effect.look(runs.once(effect.run, [*effect.base, "run.name=again"])) if key != "run.name" else without
    assert without == again, "what is looked at must stay the same where nothing changes"
    assert effect.look(runs.fresh(effect.run, [*effect.base, *effect.change])) != without


# ------------------------------------------------------------------------------------------ who reads

READERS_IN_CONFIG = ("strop.config.bundles", "strop.config.rewards", "strop.config.source_names")
"""The table of algorithms, which the algorithms are built from, and which rewards judge which rows; every other module
of `config` only looks."""


@pytest.fixture
def readers() -> Iterator[dict[tuple[str, str], set[str]]]:
    """The modules that read each (section, key) while the test runs."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)

    def note(section: str, key: str) -> None:
        module = str(sys._getframe(2).f_globals.get("__name__"))
        if module.startswith("strop.") and (not module.startswith("strop.config.") or module in READERS_IN_CONFIG):
            found[section, key].add(module)

    Section.observer = note
    yield found
    Section.observer = None


def all_sections(root: type[Section]) -> Iterator[type[Section]]:
    yield root
    for field in root.model_fields.values():
        for inner in (*sections(field.annotation), *item_sections(field.annotation)):
            yield from all_sections(inner)


def test_every_key_is_read_where_it_is_used(
    readers: dict[tuple[str, str], set[str]], runs: Runs, tmp_path: Path
) -> None:
    runs.fresh(train_run, ["run.steps=1", *EVALUATION, "evaluation.every=1", BEST, *KL])
    runs.fresh(train_run, ["run.steps=1", *LORA])
    runs.fresh(train_run, ["run.steps=1", *PPO])
    runs.fresh(train_run, ["run.steps=1", "cluster.type=ray"])
    # What other processes read, and what takes an engine that is installed apart.
    build_sending_half(WeightSyncConfig(transfer="disk", folder=str(tmp_path)), lambda: iter(()), None)
    engine_args("model", RolloutConfig(), VllmConfig(), dtype="float32", max_length=9, on_cpu=True)
    runs.fresh(train_run, ["run.steps=1", *ROUGH, "algorithm.correction.weight=token"])
    runs.fresh(train_run, ["run.steps=1", *TWO_TEACHERS, "distillation.route_column=answer", "data.limit=2"])
    runs.fresh(skipped_updates, [])
    for source in SOURCES.values():
        runs.fresh(dry_run, [f"data.source={source}", "data.prompt_column=question"])
    runs.fresh(judgement, LIKED)
    for engine, verdict in (("server", "number"), ("server", "label"), ("native", "json")):
        runs.fresh(judgement, judge(engine, verdict))
    expected = {(section.__name__, key) for section in all_sections(Config) for key in section.model_fields}
    unread = {pair for pair in expected if pair not in readers}
    # The section of vLLM is handed on where vLLM is built, which is installed apart; its keys are read above.
    assert unread == {(section.__name__, "type") for section in sections_by_type()} | {("RolloutConfig", "vllm")}


def sections_by_type() -> list[type[Section]]:
    """Alternatives that are told apart by their class: reading `type` is choosing the class, before there is any."""
    return [
        section
        for section in all_sections(Config)
        if "type" in section.model_fields and section.__name__.endswith(("Source", "Judge", "Verdict"))
    ]
