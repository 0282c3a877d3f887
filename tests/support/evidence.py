"""What a run shows to the outside: its console, its folder, its error, and the work that it did."""

import contextlib
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode

from strop import api
from strop.config.root import Config
from strop.errors import StropError
from strop.metrics.samples import SampleRecord, SampleStore
from strop.metrics.sinks.jsonl import read_metrics
from strop.protocols import LossInputs, LossOutputs


@dataclass(frozen=True)
class Evidence:
    """What a training run, or a dry run, left behind."""

    config: Config
    console: str
    error: str
    """The message of the error that ended it; empty where none did."""
    num_threads: int

    @property
    def folder(self) -> Path:
        return self.config.run.output_dir / self.config.run.name

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder / "metrics.jsonl")

    def at(self, step: int, name: str) -> Any:
        """A metric of a step; None where the step does not have it."""
        return next(line for line in self.metrics if line["step"] == step).get(name)

    @cached_property
    def samples(self) -> list[tuple[str, SampleRecord]]:
        """Every sample with the id of its prompt, in order."""
        store = SampleStore(self.folder / "samples")
        groups = [group for step in store.steps() for group in store.read(step)]
        return [(group.prompt_id, sample) for group in groups for sample in group.samples]

    @property
    def token_ids(self) -> list[list[int]]:
        return [row.token_ids.tolist() for _, sample in self.samples for row in sample.rows]

    @property
    def prompt_ids(self) -> list[str]:
        return [prompt_id for prompt_id, _ in self.samples]

    @property
    def advantages(self) -> list[list[float]]:
        return [row.advantages.tolist() for _, sample in self.samples for row in sample.rows]

    @property
    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints").glob("step-*"))

    @cached_property
    def weights(self) -> dict[str, torch.Tensor]:
        """What was trained, as the newest checkpoint holds it."""
        return load_file(self.folder / "checkpoints" / self.checkpoints[-1] / "engine" / "parameters.safetensors")

    @property
    def num_probe_tokens(self) -> int:
        """The length of the probe, as the newest checkpoint holds it."""
        proof = self.folder / "checkpoints" / self.checkpoints[-1] / "proof" / "proof.json"
        return len(json.loads(proof.read_text())["probe"]["token_ids"])

    @property
    def weight_bytes(self) -> dict[str, bytes]:
        return {name: tensor.contiguous().view(torch.uint8).numpy().tobytes() for name, tensor in self.weights.items()}

    def evaluation(self, step: int, label: str = "sampled") -> Any:
        """A stored evaluation: metrics, scores, answers."""
        return self.evaluations[str(step)][label]

    @property
    def evaluations(self) -> dict[str, Any]:
        path = self.folder / "evaluations.json"
        return json.loads(path.read_text()) if path.exists() else {}

    @property
    def files(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()}


def train_run(config: Config) -> Evidence:
    """Trains; an error of strop's becomes part of the evidence."""
    return _run(config, api.train)


def dry_run(config: Config) -> Evidence:
    """Looks at the inputs only; what it printed is in `console`."""
    return _run(config, lambda config: print(api.dry_run(config)))


def _run(config: Config, verb: Any) -> Evidence:
    console, error = io.StringIO(), ""
    num_threads_before = torch.get_num_threads()
    with contextlib.redirect_stdout(console):
        try:
            verb(config)
        except StropError as caught:
            error = str(caught)
    evidence = Evidence(config, console.getvalue(), error, torch.get_num_threads())
    torch.set_num_threads(num_threads_before)
    return evidence


class OperatorCounts(TorchDispatchMode):
    """Counts the calls of every operator of torch while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(function)] += 1
        return function(*args, **(kwargs or {}))


def operations(config: Config) -> Mapping[str, int]:
    """How often each operator of torch is called from the first publication to the first gradient."""
    with OperatorCounts() as recorded, api.open_session(config) as session:
        groups = session.advantages(session.reward(session.sample(session.prompts(2))))
        session.forward_backward(groups)
    decode_steps = sum(engine.counters.decode_steps for engine in session.run.samplers.owned)
    return {**recorded.counts, "decode steps": decode_steps}


def skipped_updates(config: Config) -> int:
    """How many updates without a finite gradient are skipped before the run is ended, 9 at most."""

    def not_a_number(inputs: LossInputs) -> LossOutputs:
        outputs = session.run.roles.algorithm.loss(inputs)
        return replace(outputs, loss=outputs.loss * torch.nan)

    with api.open_session(config) as session:
        groups = session.advantages(session.reward(session.sample(session.prompts(2))))
        for count in range(9):
            session.forward_backward(groups, loss=not_a_number)
            try:
                session.optimizer_step()
            except StropError:
                return count
    return 9


def override(texts: Sequence[str], world: Path) -> list[str]:
    """Overrides with WORLD replaced by the folder."""
    return [text.replace("WORLD", str(world)) for text in texts]
