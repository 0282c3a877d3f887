"""What a program or a notebook calls; the command line calls the same functions.

    import strop
    config = strop.load_config("run.toml", ["run.steps=10"])
    strop.train(config)                       a whole run
    session = strop.open_session(config)      the verbs of a step, for a loop of your own

    config = strop.load_offline_config("run.toml", method="sft")
    strop.sft(config)                         training on given answers

A function is named after its command. `eval` is `evaluate`, because Python has an `eval`; `config` is
`describe_config`, because `strop.config` is a package. Each function imports what it needs when it is called, so
that those without a model answer at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strop.config.describe import KeyDescription
    from strop.config.model import ModelConfig
    from strop.config.offline import OfflineConfig, OfflineMethodName
    from strop.config.root import Config
    from strop.health import Finding
    from strop.metrics.samples import FoundSample, SampleQuery
    from strop.records import SamplingParams
    from strop.tasks.grade_rows import GradeRow
    from strop.tasks.grading import Grade
    from strop.trainers.bench import BenchReport, Work
    from strop.trainers.inference import EvaluationReport
    from strop.trainers.launch import DryRunReport, RunResult
    from strop.trainers.session import Session

__all__ = [
    "bench_step",
    "describe_config",
    "doctor",
    "dpo",
    "dry_run",
    "dry_run_offline",
    "evaluate",
    "export",
    "generate",
    "grade",
    "ipo",
    "kto",
    "load_config",
    "load_offline_config",
    "open_session",
    "samples",
    "sft",
    "train",
]


def load_config(path: Path | str | None, overrides: Sequence[str] = ()) -> "Config":
    """Reads a run file (none: only the overrides) and lays `section.key=value` overrides over it.

    Raises ConfigError with every problem at once; whether keys go together is checked when the config is used.
    """
    from strop.config.load import load_config

    return load_config(path, overrides)


def load_offline_config(
    path: Path | str | None, overrides: Sequence[str] = (), method: "OfflineMethodName | None" = None
) -> "OfflineConfig":
    """Reads a run file of offline training; `method` is what `offline.type` is where the file leaves it out.

    Raises ConfigError with every problem at once.
    """
    from strop.config.load import load_offline_config

    return load_offline_config(path, overrides, method)


def describe_config(name: str | None = None, *, offline: bool = False) -> "list[KeyDescription]":
    """Returns every key of a run file with documentation, type, default and bounds, or those of one section or key.

    `offline` describes the run files of `sft`, `dpo`, `ipo` and `kto`. Raises ConfigError with the nearest name where
    there is nothing of that name.
    """
    from strop.config.describe import describe, describe_only

    return describe(offline=offline) if name is None else describe_only(name, offline=offline)


def train(config: "Config", *, resume: bool = False, overwrite: bool = False) -> "RunResult":
    """Runs training from the first step, or from the newest whole checkpoint, and returns how it ended.

    Raises StropError, before anything is written, where config, data, rewards or model cannot be used.
    """
    from strop.trainers.launch import train

    return train(config, resume=resume, overwrite=overwrite)


def dry_run(config: "Config") -> "DryRunReport":
    """Checks everything, renders the data and scores gold answers, without any weights; printing it shows the plan.

    Raises StropError where config, data, rewards or model cannot be used.
    """
    from strop.trainers.launch import dry_run

    return dry_run(config)


def sft(config: "OfflineConfig", *, resume: bool = False, overwrite: bool = False) -> "RunResult":
    """Fine-tunes on given conversations and returns how the run ended.

    Raises StropError, before anything is written, where config, data or model cannot be used.
    """
    from strop.trainers.offline.launch import train_offline

    return train_offline(config, "sft", resume=resume, overwrite=overwrite)


def dpo(config: "OfflineConfig", *, resume: bool = False, overwrite: bool = False) -> "RunResult":
    """Learns from pairs of a chosen and a rejected answer by DPO, and returns how the run ended.

    Raises StropError, before anything is written, where config, data or model cannot be used.
    """
    from strop.trainers.offline.launch import train_offline

    return train_offline(config, "dpo", resume=resume, overwrite=overwrite)


def ipo(config: "OfflineConfig", *, resume: bool = False, overwrite: bool = False) -> "RunResult":
    """Learns from pairs of a chosen and a rejected answer by IPO, and returns how the run ended.

    Raises StropError, before anything is written, where config, data or model cannot be used.
    """
    from strop.trainers.offline.launch import train_offline

    return train_offline(config, "ipo", resume=resume, overwrite=overwrite)


def kto(config: "OfflineConfig", *, resume: bool = False, overwrite: bool = False) -> "RunResult":
    """Learns from single answers with a label by KTO, and returns how the run ended.

    Raises StropError, before anything is written, where config, data or model cannot be used.
    """
    from strop.trainers.offline.launch import train_offline

    return train_offline(config, "kto", resume=resume, overwrite=overwrite)


def dry_run_offline(config: "OfflineConfig") -> "DryRunReport":
    """Checks an offline run and renders its data, without any weights; printing it shows the plan.

    Raises StropError where config, data or model cannot be used.
    """
    from strop.trainers.offline.launch import dry_run_offline

    return dry_run_offline(config)


def open_session(config: "Config") -> "Session":
    """Builds everything that the config names, publishes the first weights and proves them."""
    from strop.trainers.session import open_session

    return open_session(config)


def evaluate(config: "Config", *, checkpoint: Path | None = None) -> "EvaluationReport":
    """Evaluates the model of the config, or the weights of a checkpoint's step folder, on the held-out prompts."""
    from strop.trainers.inference import evaluate

    return evaluate(config, checkpoint=checkpoint)


def generate(
    section: "ModelConfig", prompts: Sequence[str], *, sampling: "SamplingParams", samples: int = 1, seed: int = 0
) -> list[list[str]]:
    """Returns `samples` answers to each prompt, each prompt a chat of its own."""
    from strop.trainers.inference import generate

    return generate(section, prompts, sampling=sampling, samples=samples, seed=seed)


def samples(run_folder: Path, query: "SampleQuery | None" = None) -> "Iterator[FoundSample]":
    """Yields what a run sampled, in order of step, prompt and sample; `query` says which of it.

    Raises DataError where the folder is no run, keeps no samples, or has none of the step that is asked for.
    """
    from strop.metrics.samples import SampleQuery, find_samples, open_samples

    return find_samples(open_samples(run_folder), query or SampleQuery())


def grade(
    rows: Path | Iterable[Mapping[str, Any]], *, lenient: bool = False, need_score: bool = False
) -> "Iterator[tuple[GradeRow, Grade]]":
    """Yields each row with its verdict, so that a grader can be tried before it trains anything.

    Rows are graded in child processes with the limits of training. Raises DataError naming the first row that cannot be
    read or graded within them.

    Args:
        rows: a JSONL file, or objects with `scorer`, `response` and `gold`, and `mode`, `arguments` and `score` if
            wanted.
        lenient: the mode of rows that name none, where their grader knows it; else the grader's default.
        need_score: refuses rows that do not say which score they should get.
    """
    from strop.tasks.grade_isolated import grade_rows
    from strop.tasks.grading import GradeMode

    return grade_rows(rows, GradeMode.LENIENT if lenient else None, need_score=need_score)


def export(run_folder: Path, step: int | None, out_folder: Path) -> Path:
    """Writes a checkpoint of a run (the newest, or that of `step`) as a Hugging Face folder, adapters merged.

    Raises ModelError, before anything is loaded, where the folder holds something already.
    """
    from strop.models.folders import check_export_folder

    check_export_folder(out_folder)
    from strop.trainers.inference import export

    return export(run_folder, step, out_folder)


def doctor(output_dir: Path = Path("runs")) -> "Iterator[Finding]":
    """Yields what was found out about this machine, one finding a question, each as soon as it is known.

    Args:
        output_dir: where run folders will be written.
    """
    from strop.health import examine

    return examine(output_dir)


def bench_step(work: "Work") -> "BenchReport":
    """Times whole steps of a fixed size; printing the report shows the medians."""
    from strop.trainers.bench import bench_step

    return bench_step(work)
