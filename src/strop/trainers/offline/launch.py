"""Starts, resumes and dry-runs offline training."""

from contextlib import ExitStack, closing

from strop.checkpoint.store import FolderStore
from strop.cluster.interrupts import stop_on_interrupt
from strop.config.dump import dump_config
from strop.config.load import load_stored_config
from strop.config.offline import DpoConfig, IpoConfig, KtoConfig, OfflineConfig, OfflineMethodName, SftConfig
from strop.errors import ConfigError
from strop.metrics.console import Console
from strop.metrics.environment import write_facts
from strop.metrics.sinks import build_sinks, check_requirements
from strop.trainers.launch import NOTHING_REPORTED, DryRunReport, RunResult
from strop.trainers.offline.build import OfflineRun, build_offline_run, build_offline_store
from strop.trainers.offline.inputs import OfflineInputs, prepare_offline, run_path
from strop.trainers.offline.trainer import OfflineSchedule, OfflineTrainer
from strop.trainers.report import Reporter
from strop.trainers.run_folder import RunFolder, check_run_folder

_MODEL_KEYS = ("path", "revision", "gguf_file", "lora")
"""What makes another model of it: a checkpoint of LoRA holds no base weights, and none holds the reference."""


def train_offline(
    config: OfflineConfig, method: OfflineMethodName, *, resume: bool = False, overwrite: bool = False
) -> RunResult:
    """Runs offline training from the first step, or from the newest whole checkpoint, and returns how it ended.

    Nothing in the run folder is written or replaced before everything that may be refused has been loaded.
    """
    _require_method(config, method)
    folder = check_run_folder(run_path(config), resume=resume, overwrite=overwrite)
    changes = _changes(config, folder) if resume else []
    check_requirements(config.metrics.sinks)
    with ExitStack() as stack:
        console = stack.enter_context(closing(Console(config.metrics)))
        with console.phase("prepare", "data to be read and rendered"):
            inputs = prepare_offline(config)
        stop = stack.enter_context(stop_on_interrupt())
        with console.phase("load", config.model.path):
            run = build_offline_run(config, inputs)
            folder.open(overwrite=overwrite)
            store = _opened_store(config, folder, run, resume=resume)
        first_step = run.state.step
        reporter = _build_reporter(config, console, folder, (first_step or NOTHING_REPORTED) if resume else None)
        stack.callback(reporter.close)
        if first_step:
            changes.append(f"going on behind step {first_step}")
        total_steps = inputs.total_steps(config)
        console.run_started(
            [*describe(config, inputs), *changes, f"run folder: {folder.path}"],
            total_steps=total_steps,
            first_step=first_step,
        )
        schedule = OfflineSchedule(total_steps, config.checkpoint.every, config.evaluation)
        held_out = [] if inputs.evaluation is None else [example.group() for example in inputs.evaluation.examples]
        kept_store = store if config.checkpoint.every else None
        steps = OfflineTrainer(run, schedule, held_out, kept_store, reporter, folder, stop).train()
        if first_step >= total_steps:
            console.info(f"nothing was done: the run has its {first_step} steps")
        console.info(_ending(config, folder, steps, total_steps, was_interrupted=stop.is_set))
    return RunResult(folder.path, steps, stop.is_set)


def dry_run_offline(config: OfflineConfig) -> DryRunReport:
    """Resolves and validates everything and renders the data; loads no weights."""
    check_requirements(config.metrics.sinks)
    lines = describe(config, prepare_offline(config))
    return DryRunReport((*lines, f"run folder: {run_path(config)}", "dry run: nothing was trained"))


def describe(config: OfflineConfig, inputs: OfflineInputs) -> list[str]:
    """What runs, in lines for a person to read before it does."""
    training, data = config.training, config.data
    passes = "" if data.epochs is None else f", {data.epochs} passes over the data at most"
    lines = [
        f"{_method_line(config.offline)} on {config.model.path}",
        *inputs.training_report.lines(),
        f"each step: {training.batch_size} rows, AdamW at {training.learning_rate:g}; "
        f"{inputs.total_steps(config)} steps{passes}",
        f"answers end with: {inputs.stops}",
    ]
    if inputs.evaluation_report is not None:
        lines += [f"evaluation: {line}" for line in inputs.evaluation_report.lines()]
    return [*lines, *inputs.notices]


def _method_line(section: SftConfig | DpoConfig | IpoConfig | KtoConfig) -> str:
    match section:
        case SftConfig(train_on=train_on):
            return f"sft of {'every token' if train_on == 'all' else f'{train_on} turns'}"
        case DpoConfig(beta=beta, label_smoothing=smoothing):
            return f"dpo with beta {beta:g}" + (f", label smoothing {smoothing:g}" if smoothing else "")
        case IpoConfig(beta=beta):
            return f"ipo with beta {beta:g}"
        case KtoConfig(beta=beta):
            weights = f"{section.desirable_weight:g} and {section.undesirable_weight:g}"
            return f"kto with beta {beta:g}, desirable and undesirable answers weighing {weights}"


def _require_method(config: OfflineConfig, method: OfflineMethodName) -> None:
    if config.offline.type != method:
        raise ConfigError(
            f"offline.type must be {method} here, got {config.offline.type}", f"Call strop.{config.offline.type}."
        )


def _changes(config: OfflineConfig, folder: RunFolder) -> list[str]:
    """Lines naming what changed since the run was started; raises ConfigError where it would be another run."""
    before = load_stored_config(folder.config)
    if not isinstance(before, OfflineConfig) or before.offline.type != config.offline.type:
        kind = before.offline.type if isinstance(before, OfflineConfig) else "train"
        raise ConfigError(
            f"{folder.path} must hold a run of {config.offline.type} to resume it, got one of {kind}",
            "Choose another run.name.",
        )
    for key in _MODEL_KEYS:
        old, new = getattr(before.model, key), getattr(config.model, key)
        if old != new:
            raise ConfigError(
                f"model.{key} must be that of the run in {folder.path} to resume it, {old!r}, got {new!r}",
                f"Choose another run.name for another model. If the model only moved, correct {folder.config}.",
            )
    changed = [name for name in type(config).model_fields if getattr(before, name) != getattr(config, name)]
    return [f"resumed with other settings than it began with, in: {', '.join(changed)}"] if changed else []


def _opened_store(config: OfflineConfig, folder: RunFolder, run: OfflineRun, *, resume: bool) -> FolderStore:
    """Makes a run folder, or takes everything from its newest whole checkpoint before the stored config is replaced."""
    if not resume:
        folder.write_config(dump_config(config))
    store = build_offline_store(config, folder.checkpoints, run.roles.policy)
    if resume:
        store.restore(run.parts)
        folder.write_config(dump_config(config))
    write_facts(folder.environment)
    return store


def _build_reporter(config: OfflineConfig, console: Console, folder: RunFolder, resume_step: int | None) -> Reporter:
    """Opens the sinks; what a resumed run wrote after its checkpoint is cut."""
    sinks = build_sinks(config.metrics, folder.path, config.run.name, resume_step)
    if resume_step is not None:
        folder.cut_evaluations_after(resume_step)
    return Reporter(console, sinks, None, folder, lambda sample: "")


def _ending(config: OfflineConfig, folder: RunFolder, steps: int, total_steps: int, *, was_interrupted: bool) -> str:
    how = "stopped" if was_interrupted else "done"
    text = f"{how} after {steps} steps. The run is in {folder.path}: metrics.jsonl, checkpoints"
    if config.checkpoint.every:
        text += f"\n  write a model folder:      strop export {folder.path} my-model"
    if config.checkpoint.every and (was_interrupted or steps < total_steps):
        text += "\n  go on:                     the same command with --resume"
    return text
