"""What is done with a model outside training: evaluate, generate, export."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import nn

from strop.checkpoint.manifest import Manifest, ModelIdentity
from strop.checkpoint.store import FolderStore
from strop.config.load import load_stored_config
from strop.config.model import ModelConfig
from strop.config.rollout import RolloutConfig
from strop.config.root import Config
from strop.data.renderer import ChatRenderer
from strop.devices import build_device
from strop.errors import CheckpointError, ConfigError
from strop.metrics.score import Score
from strop.metrics.table import scores_line
from strop.models.export import export_folder
from strop.models.load import load_policy, load_tokenizer
from strop.records import Group, Message, Prompt, SamplingParams
from strop.rollout.native.engine import NativeEngine
from strop.tasks import completion_text
from strop.trainers.build import ENGINE_PART, build_run
from strop.trainers.evaluate import Evaluation
from strop.trainers.inputs import prepare_inputs
from strop.trainers.learner import build_policy
from strop.trainers.offline.build import build_offline_policy
from strop.trainers.parts import Policy
from strop.trainers.run_folder import RunFolder
from strop.trainers.sampling import sample_group, stream_keys
from strop.trainers.session import Session


@dataclass(frozen=True)
class EvaluationReport:
    """Evaluations of one model; printing it shows the scores."""

    what: str
    evaluations: tuple[Evaluation, ...]

    @property
    def scores(self) -> dict[str, Score]:
        """Every score by name."""
        return {name: score for one in self.evaluations for name, score in one.scores.items()}

    def __str__(self) -> str:
        return f"{self.what}: {scores_line(self.scores)}"


def evaluate(config: Config, *, checkpoint: Path | None = None) -> EvaluationReport:
    """Evaluates the model of the config, or the weights of a checkpoint's step folder, on the held-out prompts."""
    if config.evaluation is None:
        raise ConfigError("there must be an [evaluation] section to evaluate, got none", "Add one to the run file.")
    inputs = prepare_inputs(config)
    run = build_run(config, inputs)
    if checkpoint is not None:
        _load_weights(checkpoint, run.policy, run.identity)
    run.policy.set_version(0)
    run.cluster.run(run.publisher.start(0, canary=config.weight_sync.canary))
    with Session(config, inputs, run) as session:
        what = str(checkpoint) if checkpoint is not None else config.model.path
        return EvaluationReport(what, tuple(session.evaluate()))


def generate(
    section: ModelConfig,
    prompts: Sequence[str],
    *,
    sampling: SamplingParams,
    samples: int = 1,
    seed: int = 0,
) -> list[list[str]]:
    """Returns `samples` answers to each prompt, each prompt a chat of its own; stops where the model's turn ends."""
    device = build_device("auto")
    device.set_threads(0)
    loaded = load_policy(section, sampling.stop_token_ids)
    nn.Module.to(loaded.hf_model, device=device.torch_device)
    renderer = ChatRenderer(loaded.tokenizer)
    stops = loaded.stops.token_ids
    params = SamplingParams(
        sampling.max_new_tokens, sampling.temperature, sampling.top_p, sampling.top_k, stops, sampling.stop_strings
    )
    engine = NativeEngine(
        loaded.hf_model,
        RolloutConfig(),
        lambda ids: renderer.decode(np.asarray(ids, dtype=np.int64)),
        max_length=loaded.max_length,
    )

    async def one(index: int, text: str) -> Group:
        messages = tuple(renderer.conversation([Message(role="user", content=text)]))
        prompt = Prompt(f"prompt-{index}", 0, renderer.render(messages), messages, "generate")
        return await sample_group(engine, prompt, stream_keys(prompt, samples, seed, "generate"), params)

    async def all_groups() -> list[Group]:
        return list(await asyncio.gather(*(one(index, text) for index, text in enumerate(prompts))))

    groups = asyncio.run(all_groups())
    return [[completion_text(sample, renderer, stops) for sample in group.samples] for group in groups]


def export(run_folder: Path, step: int | None, out_folder: Path) -> Path:
    """Writes a checkpoint of a run (the newest, or that of `step`) as a Hugging Face folder, adapters merged."""
    folder = RunFolder(run_folder)
    if not folder.config.exists():
        raise CheckpointError(
            f"{run_folder} must be the folder of a run, got no {folder.config.name} in it", "Name a folder in runs/."
        )
    config = load_stored_config(folder.config)
    step_folder = _step_folder(folder, step)
    device = build_device("cpu")
    policy = build_policy(config, device) if isinstance(config, Config) else build_offline_policy(config, device)
    _load_weights(step_folder, policy, ModelIdentity.of(policy.export_weights()))
    return export_folder(out_folder, policy.export_weights(), policy.causal_lm, load_tokenizer(config.model))


def _step_folder(folder: RunFolder, step: int | None) -> Path:
    """The step folder to read: the newest whole one, or that of `step`."""
    store = FolderStore(folder.checkpoints, keep=1)
    found = {checkpoint.manifest.step: checkpoint.folder for checkpoint in store.checkpoints()}
    newest = store.latest() if step is None else found.get(step)
    if newest is None:
        kept = ", ".join(map(str, sorted(found))) or "none"
        raise CheckpointError(f"{folder.path} must hold a checkpoint{_of(step)}, got steps: {kept}")
    return newest


def _of(step: int | None) -> str:
    return "" if step is None else f" of step {step}"


def _load_weights(step_folder: Path, policy: Policy, identity: ModelIdentity) -> None:
    """Verifies a step folder and loads the trained weights from it."""
    manifest = Manifest.read(step_folder)
    manifest.check_model(step_folder, identity)
    manifest.check_files(step_folder)
    policy.load(step_folder / ENGINE_PART)
