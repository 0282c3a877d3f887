"""Makes the two ends of the transfer that a run file names; importing a kind is left to its arm."""

from pathlib import Path

import torch

from strop.config.weight_sync import WeightSyncConfig
from strop.protocols import RolloutEngine
from strop.transfer.source import Weights
from strop.transfer.split import ReceivingHalf, SendingHalf


def build_sending_half(config: WeightSyncConfig, weights: Weights, dtype: torch.dtype | None) -> SendingHalf:
    """Makes the end of the first trainer rank; `dtype` is the receivers' floating-point type."""
    bucket_bytes = config.bucket_mib << 20
    match config.transfer:
        case "shared_memory":
            from strop.transfer.shared_memory import SharedMemorySender

            return SharedMemorySender(weights, dtype, bucket_bytes=bucket_bytes)
        case "broadcast":
            from strop.transfer.broadcast import BroadcastSender

            return BroadcastSender(weights, dtype, bucket_bytes=bucket_bytes)
        case "disk":
            from strop.transfer.disk import DiskSender

            return DiskSender(weights, _folder(config), dtype, bucket_bytes=bucket_bytes)


def build_receiving_half(config: WeightSyncConfig, engine: RolloutEngine, *, lend: bool = False) -> ReceivingHalf:
    """Makes the end of an engine; `lend` where the engine copies every weight as it comes."""
    match config.transfer:
        case "shared_memory":
            from strop.transfer.shared_memory import SharedMemoryReceiver

            return SharedMemoryReceiver(engine, lend=lend)
        case "broadcast":
            from strop.transfer.broadcast import BroadcastReceiver

            return BroadcastReceiver(engine, lend=lend)
        case "disk":
            from strop.transfer.disk import DiskReceiver

            return DiskReceiver(engine)


def _folder(config: WeightSyncConfig) -> Path:
    if config.folder is None:
        raise ValueError("weight_sync.folder must be given with weight_sync.transfer disk, got none")
    return Path(config.folder)
