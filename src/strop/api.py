"""What a program or a notebook calls; the command line calls the same functions.

import strop
config = strop.load_config("run.toml", ["run.steps=10"])
strop.train(config)                       a whole run
session = strop.open_session(config)      the verbs of a step, for a loop of your own
"""

from strop.config.load import load_config
from strop.trainers.bench import BenchReport, Work, bench_step
from strop.trainers.inference import evaluate, export, generate
from strop.trainers.launch import DryRunReport, RunResult, dry_run, train
from strop.trainers.session import Session, open_session

__all__ = [
    "BenchReport",
    "DryRunReport",
    "RunResult",
    "Session",
    "Work",
    "bench_step",
    "dry_run",
    "evaluate",
    "export",
    "generate",
    "load_config",
    "open_session",
    "train",
]
