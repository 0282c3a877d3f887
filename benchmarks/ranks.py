"""Seconds of one update at equal work: one process on all cores against several that have a core each.

    python benchmarks/ranks.py --model FOLDER --ranks 2

Groups of random tokens are shared out by cost; every layout computes the same groups and takes the same update. Layouts
take turns, so that what else the machine does falls on all of them. Prints one JSON line a layout, seconds of each
repetition and their median.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from strop.algorithms.build import build_algorithm
from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import resolve_algorithm
from strop.config.model import ModelConfig
from strop.config.training import TrainingConfig
from strop.devices.cpu import CpuDevice
from strop.devices.environment import prepare_environment
from strop.models.fused import fuse_layers
from strop.models.load import load_policy
from strop.records import FinishState, Group, Prompt, Row, Sample
from strop.training.balance import balance_metrics, plan_over_ranks
from strop.training.costs import ComputeCosts
from strop.training.fsdp2.engine import Fsdp2Engine

TIMEOUT = timedelta(minutes=10)


@dataclass(frozen=True)
class Work:
    """What is computed."""

    model: str
    num_groups: int
    group_size: int
    prompt_tokens: int
    new_tokens: int
    micro_batch_tokens: int
    repeats: int
    num_ranks: int


@dataclass(frozen=True)
class Layout:
    """Who computes it."""

    name: str
    num_ranks: int
    num_threads: int
    shard_size: int | None = None


def layouts(num_ranks: int) -> list[Layout]:
    """One process with as many threads as the others are processes."""
    return [
        Layout("one process", 1, num_ranks),
        Layout("sharded", num_ranks, 1),
        Layout("replicas", num_ranks, 1, shard_size=1),
    ]


def groups(work: Work, vocabulary: int) -> list[Group]:
    """Groups of random tokens; completions are between half and all of the longest."""
    rng = np.random.default_rng(0)
    found = []
    for index in range(work.num_groups):
        prompt = rng.integers(100, vocabulary, work.prompt_tokens)
        samples = []
        for place in range(work.group_size):
            completion = rng.integers(100, vocabulary, rng.integers(work.new_tokens // 2, work.new_tokens + 1))
            token_ids = np.concatenate([prompt, completion])
            mask = np.arange(len(token_ids)) >= len(prompt)
            row = Row(token_ids, mask, np.where(mask, -9.0, 0.0).astype(np.float32), np.where(mask, 0, -1))
            samples.append(Sample(place, (row,), FinishState.STOPPED, reward=float(rng.normal())))
        found.append(Group(Prompt(f"random-{index}", 0, prompt, (), task="random", columns={}), tuple(samples)))
    return found


def measure(rank: int, work: Work, layout: Layout, folder: Path, port: int) -> None:
    """Joins the others where there are any, and leaves the seconds of each update behind."""
    torch.set_num_threads(layout.num_threads)
    if layout.num_ranks > 1:
        where = f"tcp://127.0.0.1:{port}"
        dist.init_process_group("gloo", where, TIMEOUT, world_size=layout.num_ranks, rank=rank)
    hf_model = load_policy(ModelConfig(path=work.model, dtype="float32")).hf_model
    fuse_layers(hf_model)
    costs = ComputeCosts.of_model(hf_model)
    settings = resolve_algorithm(AlgorithmConfig(name="grpo"), work.new_tokens)
    algorithm = build_algorithm(settings)
    batch = algorithm.advantages(groups(work, hf_model.config.vocab_size))
    weights = algorithm.weights(batch)
    plan = plan_over_ranks(
        batch, weights, weights, num_ranks=layout.num_ranks, costs=costs, max_tokens=work.micro_batch_tokens
    )
    training = TrainingConfig(shard_size=layout.shard_size)
    engine = Fsdp2Engine(hf_model, training, temperature=1.0, device=CpuDevice(), needs=algorithm.needs)
    seconds, norms = [], []
    for _ in range(work.repeats + 1):
        if dist.is_initialized():
            dist.barrier()
        start = time.perf_counter()
        engine.forward_backward(plan.of_rank(rank), algorithm.loss)
        report = engine.optimizer_step()
        seconds.append(time.perf_counter() - start)
        norms.append(report.gradient_norm)
    if rank == 0:
        result = {
            "seconds": seconds[1:],
            "first_gradient_norm": norms[0],
            "peak_bytes": CpuDevice().peak_memory_bytes(),
            "balance": {name: metric.value for name, metric in balance_metrics(plan, layout.num_ranks, costs).items()},
        }
        (folder / f"{layout.name}.json").write_text(json.dumps(result))
    if dist.is_initialized():
        dist.destroy_process_group()


def main() -> None:
    """Measures every layout in processes of its own, whose threads wait as those of a run do."""
    prepare_environment()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="a model folder")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=128)
    parser.add_argument("--micro-batch-tokens", type=int, default=2048)
    parser.add_argument("--repeats", type=int, default=2, help="updates measured in a turn, after one that is not")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--port", type=int, default=29511)
    options = parser.parse_args()
    work = Work(
        options.model,
        options.groups,
        options.group_size,
        options.prompt_tokens,
        options.new_tokens,
        options.micro_batch_tokens,
        options.repeats,
        options.ranks,
    )
    found: dict[str, list[dict[str, object]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(options.turns):
            for layout in layouts(work.num_ranks):
                port = options.port + turn
                mp.spawn(measure, (work, layout, Path(folder), port), nprocs=layout.num_ranks)
                found.setdefault(layout.name, []).append(json.loads((Path(folder) / f"{layout.name}.json").read_text()))
    for layout in layouts(work.num_ranks):
        turns = found[layout.name]
        seconds = [one for turn in turns for one in turn["seconds"]]  # type: ignore[attr-defined]
        print(json.dumps({**asdict(layout), "median_seconds": statistics.median(seconds), "turns": turns}))


if __name__ == "__main__":
    main()
