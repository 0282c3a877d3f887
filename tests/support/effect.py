"""What shows that a key of a run file does something: two runs that differ in it, and where one looks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from strop.config.root import Config
from support.evidence import Evidence, dry_run, train_run
from support.judgements import Judgement

BASE = (
    "model.path=WORLD/model",
    "data.task=columns",
    "data.source={type='jsonl', path='WORLD/rows.jsonl'}",
    "rewards.0.function=WORLD/rewards.py:spread",
    "run.threads=1",
    "run.device=cpu",
    "run.steps=2",
    "rollout.prompts_per_step=2",
    "rollout.group_size=2",
    "rollout.max_new_tokens=6",
    "training.learning_rate=1e-3",
    "weight_sync.probe_tokens=8",
    "weight_sync.canary=false",
    "checkpoint.every=1",
)
LORA = ("model.lora.rank=4",)
KL = ("algorithm.kl_coefficient=0.5",)
LINEAR = ("training.schedule=linear", "training.schedule_updates=4")
TWO_EPOCHS = ("training.epochs_per_batch=2", "training.learning_rate=0.003")
EVALUATION = ("evaluation.source={type='jsonl', path='WORLD/held-out.jsonl'}", "evaluation.samples=2")
EVERY_STEP = (*EVALUATION, "evaluation.every=1", "run.steps=3", "training.learning_rate=0.05", "checkpoint.keep=1")
BEST = "checkpoint.keep_best=eval/sampled/mean"
SOFT_OVERLONG = ("algorithm.truncated=soft-overlong", f"rollout.stop_token_ids={list(range(40, 110))}")


@dataclass(frozen=True)
class Effect:
    """What shows that a key does something: `look(run(config))` differs with and without `change`."""

    change: Sequence[str]
    look: Callable[[Any], Any]
    base: Sequence[str] = ()
    """Overrides of both runs."""
    run: Callable[[Config], Any] = train_run


def refused(message: str, *change: str, base: Sequence[str] = ()) -> Effect:
    """The key has one value that can work here: any other ends a dry run with the message."""
    return Effect(change, lambda evidence: message in evidence.error, base, dry_run)


def console(evidence: Evidence) -> str:
    """What was printed, without the run folder."""
    return "\n".join(line for line in evidence.console.splitlines() if not line.startswith("run folder"))


def token_ids(evidence: Evidence) -> Any:
    return evidence.token_ids


def weights(evidence: Evidence) -> Any:
    return evidence.weight_bytes


def error(evidence: Evidence | Judgement) -> str:
    return evidence.error


def metric(name: str, step: int = 1) -> Callable[[Evidence], Any]:
    return lambda evidence: evidence.at(step, name)


def evaluated(name: str, label: str = "sampled") -> Callable[[Evidence], Any]:
    return lambda evidence: evidence.evaluation(0, label)["metrics"].get(f"eval/{label}/{name}")


def answers(evidence: Evidence) -> Any:
    return evidence.evaluation(0)["answers"]


def evaluated_steps(evidence: Evidence) -> list[str]:
    return sorted(evidence.evaluations)


def called(name: str) -> Callable[[Any], int]:
    return lambda counts: counts.get(name, 0)


def projects(evidence: Evidence) -> list[str]:
    names = [path.read_text() for path in (evidence.folder / "mlflow").glob("*/meta.yaml")]
    return sorted(line for text in names for line in text.splitlines() if line.startswith("name:"))


gradient_norm = metric("update/gradient_norm")
learning_rate = metric("update/learning_rate", step=2)
