"""Starts, resumes and dry-runs a training run."""

from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from strop.checkpoint.store import FolderStore
from strop.cluster.interrupts import stop_on_interrupt
from strop.config.bundles import resolve_algorithm
from strop.config.dump import dump_config
from strop.config.load import load_config
from strop.config.root import Config
from strop.distillation.teachers import teacher_names
from strop.errors import ConfigError
from strop.metrics.console import Console
from strop.metrics.environment import write_facts
from strop.metrics.samples import SampleStore
from strop.metrics.sinks import build_sinks, check_requirements
from strop.trainers.build import Run, build_run, build_store
from strop.trainers.held_out import EvaluationTimes
from strop.trainers.inputs import Inputs, evaluation_plan, prepare_inputs, reward_names
from strop.trainers.report import Reporter
from strop.trainers.run_folder import RunFolder, check_run_folder
from strop.trainers.self_test import SelfTest, self_test
from strop.trainers.sync import ScheduleSettings, SyncTrainer
from strop.trainers.user_files import changed_files, write_digests

NOTHING_REPORTED = -1
"""Stands before step 0, the evaluation of the first policy."""
_MODEL_KEYS = ("path", "revision", "gguf_file", "lora")
"""What makes another model of it: a checkpoint of LoRA holds no base weights, and none holds the reference."""


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    folder: Path
    steps: int
    """Steps that are complete."""
    was_interrupted: bool
    """Whether Ctrl-C ended it; `--resume` goes on."""


@dataclass(frozen=True)
class DryRunReport:
    """What would run; printing it shows it."""

    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def dry_run(config: Config) -> DryRunReport:
    """Resolves and validates everything, renders the data, scores gold answers; loads no weights."""
    check_requirements(config.metrics.sinks)
    with closing(Console(config.metrics)) as console:
        inputs, tested = _prepare(config, console)
    folder = config.run.output_dir / config.run.name
    return DryRunReport((*describe(config, inputs, tested), f"run folder: {folder}", "dry run: nothing was trained"))


def train(config: Config, *, resume: bool = False, overwrite: bool = False) -> RunResult:
    """Runs training from the first step, or from the newest whole checkpoint, and returns how it ended.

    Nothing in the run folder is written or replaced before everything that may be refused has been loaded.
    """
    folder = check_run_folder(config.run.output_dir / config.run.name, resume=resume, overwrite=overwrite)
    changes = _changes(config, folder) if resume else []
    check_requirements(config.metrics.sinks)
    with ExitStack() as stack:
        console = stack.enter_context(closing(Console(config.metrics)))
        inputs, tested = _prepare(config, console)
        stop = stack.enter_context(stop_on_interrupt())
        with console.phase("load", config.model.path):
            run = build_run(config, inputs, folder.early_logs)
            stack.callback(run.cluster.close)
            stack.callback(run.samplers.close)
            folder.open(overwrite=overwrite)
            folder.take_early_logs()
            store = _restored_store(config, folder, run) if resume else _new_store(config, folder, run)
            first_step = run.state.step
        reporter = _build_reporter(config, inputs, console, folder, _last_reported(first_step) if resume else None)
        stack.callback(reporter.close)
        if first_step:
            changes.append(f"going on behind step {first_step}")
        lines = [*describe(config, inputs, tested), *changes, f"run folder: {folder.path}"]
        console.run_started(lines, total_steps=config.run.steps, first_step=first_step)
        kept_store = store if config.checkpoint.every else None
        match config.trainer.schedule:
            case "sync":
                trainer = SyncTrainer(
                    run, _schedule(config), evaluation_plan(config, inputs), kept_store, reporter, stop
                )
        steps = trainer.train()
        if first_step >= config.run.steps:
            console.info(f"nothing was done: the run has its {first_step} steps, and run.steps asks for no more")
        console.info(_ending(config, folder, steps, was_interrupted=stop.is_set))
    return RunResult(folder.path, steps, stop.is_set)


def _prepare(config: Config, console: Console) -> tuple[Inputs, SelfTest]:
    """Prepares the inputs and tests the rewards; says what it waits for where that takes long."""
    with console.phase("prepare", "data and rewards to be loaded"):
        inputs = prepare_inputs(config)
    with console.phase("self_test", "rewards to judge gold answers and empty ones"):
        return inputs, self_test(inputs, config.data)


def describe(config: Config, inputs: Inputs, tested: SelfTest) -> list[str]:
    """What runs, in lines for a person to read before it does."""
    rollout, training = config.rollout, config.training
    algorithm = resolve_algorithm(config.algorithm, rollout.max_new_tokens)
    tasks = {name: reward_names(judged.rewards) for name, judged in inputs.tasks.items()}
    rewards = [
        f"rewards of {name}: {names}" if len(tasks) > 1 else f"rewards: {names}"
        for name, names in tasks.items()
        if names
    ]
    is_taught_alone = config.distillation is not None and not config.distillation.with_rewards
    lines = [
        f"{'distillation' if is_taught_alone else algorithm.name} on {config.model.path}, task {', '.join(tasks)}",
        *inputs.training_report.lines(),
        *_teachers(config),
        *rewards,
        f"each step: {rollout.prompts_per_step} prompts x {rollout.group_size} samples x at most "
        f"{rollout.max_new_tokens} tokens at temperature {rollout.temperature:g}; stops at {inputs.stops}",
        f"updates: {training.updates_per_batch * training.epochs_per_batch} a step, AdamW at "
        f"{training.learning_rate:g}",
        f"truncated samples: {'kept' if is_taught_alone else algorithm.truncation}",
    ]
    if inputs.evaluation_report is not None:
        lines += [f"evaluation: {line}" for line in inputs.evaluation_report.lines()]
    return lines + (tested.lines() if rewards else [])


def _teachers(config: Config) -> list[str]:
    """Who teaches, and how."""
    section = config.distillation
    if section is None:
        return []
    top = f" over the {section.top_k} likeliest tokens" if section.divergence == "forward_kl" else ""
    return [
        f"teachers: {', '.join(teacher_names(section))}; {section.divergence}{top} as a {section.placement} x "
        f"{section.coefficient:g}, at the temperature of sampling"
    ]


def _changes(config: Config, folder: RunFolder) -> list[str]:
    """Lines naming what changed since the run was started; raises ConfigError where it would be another model."""
    before = load_config(folder.config)
    for key in _MODEL_KEYS:
        old, new = getattr(before.model, key), getattr(config.model, key)
        if old != new:
            raise ConfigError(
                f"model.{key} must be that of the run in {folder.path} to resume it, {old!r}, got {new!r}",
                f"Choose another run.name for another model. If the model only moved, correct {folder.config}.",
            )
    changed = [name for name in type(config).model_fields if getattr(before, name) != getattr(config, name)]
    lines = [f"resumed with other settings than it began with, in: {', '.join(changed)}"] if changed else []
    files = changed_files(config, folder)
    return [*lines, f"note: resumed with another text in the file of: {', '.join(files)}"] if files else lines


def _last_reported(first_step: int) -> int:
    """The last step whose records stay when a run goes on: before the first step, step 0 is reported anew."""
    return first_step if first_step > 0 else NOTHING_REPORTED


def _new_store(config: Config, folder: RunFolder, run: Run) -> FolderStore:
    """Makes a run folder of an empty folder."""
    _write_facts(config, folder)
    return build_store(config, folder, run.identity)


def _restored_store(config: Config, folder: RunFolder, run: Run) -> FolderStore:
    """Takes everything from the newest whole checkpoint, if there is one, and only then replaces the stored config."""
    store = build_store(config, folder, run.identity)
    store.restore(run.parts)
    _write_facts(config, folder)
    return store


def _write_facts(config: Config, folder: RunFolder) -> None:
    """Stores config, environment and what the user's files hold."""
    folder.config.write_text(dump_config(config), encoding="utf-8")
    write_facts(folder.environment)
    write_digests(config, folder)


def _build_reporter(
    config: Config, inputs: Inputs, console: Console, folder: RunFolder, resume_step: int | None
) -> Reporter:
    """Opens sinks and samples; what a resumed run wrote after its checkpoint is cut."""
    sinks = build_sinks(config.metrics, folder.path, config.run.name, resume_step)
    samples = SampleStore(folder.path / "samples") if config.metrics.save_samples else None
    if resume_step is not None:
        folder.cut_evaluations_after(resume_step)
        if samples is not None:
            samples.cut_after(resume_step)
    return Reporter(console, sinks, samples, folder, inputs.text_of)


def _schedule(config: Config) -> ScheduleSettings:
    evaluation = config.evaluation
    return ScheduleSettings(
        total_steps=config.run.steps,
        checkpoint_every=config.checkpoint.every,
        evaluations=EvaluationTimes(evaluation.every, evaluation.before, evaluation.after)
        if evaluation
        else EvaluationTimes(),
        solved_at=evaluation.solved_at if evaluation else 1.0,
        canary=config.weight_sync.canary,
        sampler_sleeps=config.rollout.sleep_during_update,
        stops_without_signal=resolve_algorithm(config.algorithm, 1).drop_zero_signal,
    )


def _ending(config: Config, folder: RunFolder, steps: int, *, was_interrupted: bool) -> str:
    how = "stopped" if was_interrupted else "done"
    text = f"{how} after {steps} steps. The run is in {folder.path}: metrics.jsonl, samples, checkpoints"
    if config.metrics.save_samples:
        text += f"\n  look at what was sampled:  strop samples {folder.path}"
    if config.checkpoint.every:
        text += f"\n  write a model folder:      strop export {folder.path} my-model"
    if config.checkpoint.every and (was_interrupted or steps < config.run.steps):
        text += "\n  go on:                     the same command with --resume"
    return text
