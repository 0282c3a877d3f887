"""Processes with a part of the vocabulary each find the log-probs and gradients that one with all of it finds."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from strop.algorithms.sharded_logprobs import OverProcesses, sharded_logprobs

NUM_TARGETS, VOCABULARY, NUM_IDS = 6, 13, 4

WIDTHS = {2: [9, 4], 4: [1, 5, 4, 3]}
"""How many ids each process holds."""


def make_inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Logits of the whole vocabulary, ids, and what each log-prob weighs in the loss."""
    generator = torch.Generator().manual_seed(23)
    logits = 5 * torch.randn(NUM_TARGETS, VOCABULARY, generator=generator, dtype=torch.float64)
    ids = torch.randint(VOCABULARY, (NUM_TARGETS, NUM_IDS), generator=generator)
    return logits, ids, torch.randn(NUM_TARGETS, NUM_IDS, generator=generator, dtype=torch.float64)


def loss_of(logprobs_NK: Tensor, weights_NK: Tensor) -> Tensor:
    """Not linear, so that the gradient depends on what the other shards hold."""
    return (weights_NK * logprobs_NK.exp() * logprobs_NK).sum()


def work(rank: int, folder: Path, num_processes: int) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / f"store{num_processes}"), num_processes)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=num_processes)
    try:
        logits, ids, weights = make_inputs()
        widths = WIDTHS[num_processes]
        first_id = sum(widths[:rank])
        shard = logits[:, first_id : first_id + widths[rank]].clone().requires_grad_()
        values = sharded_logprobs(shard, ids, first_id, OverProcesses())
        loss_of(values, weights).backward()
        torch.save((values.detach(), shard.grad), folder / f"{num_processes}-{rank}.pt")
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("num_processes", WIDTHS)
def test_processes_equal_one(tmp_path: Path, num_processes: int) -> None:
    mp.spawn(work, (tmp_path, num_processes), nprocs=num_processes)
    results = [torch.load(tmp_path / f"{num_processes}-{rank}.pt") for rank in range(num_processes)]
    logits, ids, weights = make_inputs()
    logits.requires_grad_()
    expected = torch.log_softmax(logits, dim=1).gather(1, ids)
    loss_of(expected, weights).backward()
    for values, _ in results:
        torch.testing.assert_close(values, expected.detach(), rtol=1e-10, atol=1e-12)
    gradient = torch.cat([part for _, part in results], dim=1)
    torch.testing.assert_close(gradient, logits.grad, rtol=1e-10, atol=1e-12)
