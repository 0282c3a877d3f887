"""What a run file says of the transfer is what is made."""

from pathlib import Path

import pytest
import torch

from strop.config.weight_sync import WeightSyncConfig
from strop.transfer import (
    BroadcastReceiver,
    BroadcastSender,
    DiskReceiver,
    DiskSender,
    SharedMemoryReceiver,
    SharedMemorySender,
)
from strop.transfer.build import build_receiving_half, build_sending_half
from support.softmax_policy import Sampler, Trainer

KINDS = {
    "shared_memory": (SharedMemorySender, SharedMemoryReceiver),
    "broadcast": (BroadcastSender, BroadcastReceiver),
    "disk": (DiskSender, DiskReceiver),
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_name_makes_its_two_ends(kind: str, tmp_path: Path) -> None:
    config = WeightSyncConfig(transfer=kind, folder=str(tmp_path / "weights") if kind == "disk" else None)
    sender, receiver = KINDS[kind]
    assert isinstance(build_sending_half(config, Trainer().export_weights, torch.float32), sender)
    assert isinstance(build_receiving_half(config, Sampler(), lend=True), receiver)


def test_the_bucket_s_size_is_that_of_the_memory() -> None:
    half = build_sending_half(WeightSyncConfig(bucket_mib=3), Trainer().export_weights, None)
    assert isinstance(half, SharedMemorySender)
    assert half._mapped()[0].bucket_bytes == 3 << 20


def test_files_need_a_folder() -> None:
    with pytest.raises(ValueError, match=r"weight_sync\.folder must be given"):
        build_sending_half(WeightSyncConfig(transfer="disk"), Trainer().export_weights, None)
