"""One of two processes that add their numbers over gloo: `python -m strop.health.gloo_rank RANK STORE`."""

import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def main(rank: int, store: Path) -> None:
    """Joins the group whose rendezvous is the file `store`; raises where the sum is not 1 + 2."""
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2, timeout=timedelta(seconds=30)
    )
    number = torch.tensor([rank + 1.0])
    dist.all_reduce(number)
    dist.destroy_process_group()
    if number.item() != 3.0:
        raise ValueError(f"the sum over both processes must be 3, got {number.item()}")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
