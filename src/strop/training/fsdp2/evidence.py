"""What was seen while gradients were added up: whether an update may be applied, and who is to blame if not."""

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from strop.protocols import Device
from strop.records import PackedBatch
from strop.records.packing import SampleKey
from strop.training.fsdp2.sharding import num_processes


@dataclass
class UpdateEvidence:
    """Collected from one optimizer step to the next."""

    keys: list[SampleKey] = field(default_factory=list)
    """The samples of all micro-batches."""
    suspects: list[SampleKey] = field(default_factory=list)
    """The samples of micro-batches whose loss, log-probs or gradient by log-prob were not finite."""
    bore_loss: bool = False
    """Whether any target had a weight."""

    def note(self, batch: PackedBatch, weights_N: Tensor, *observed: Tensor | None) -> None:
        """Takes in one micro-batch and the tensors of it that must be finite."""
        self.keys.extend(batch.sample_keys)
        self.bore_loss = self.bore_loss or bool(weights_N.any())
        if not all(bool(values.isfinite().all()) for values in observed if values is not None):
            self.suspects.extend(batch.sample_keys)

    def over_all_processes(self, device: Device) -> tuple[bool, bool]:
        """Returns whether any process bore loss, and whether any has suspects."""
        if num_processes() == 1:
            return self.bore_loss, bool(self.suspects)
        flags = torch.tensor([self.bore_loss, bool(self.suspects)], dtype=torch.int32, device=device.torch_device)
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        return bool(flags[0]), bool(flags[1])

    def to_blame(self) -> tuple[SampleKey, ...]:
        """Returns the suspects of all processes; where none has any, all samples: any may have overflowed."""
        suspects, keys = _of_all_processes(self.suspects), _of_all_processes(self.keys)
        return tuple(suspects or keys)


def _of_all_processes(keys: list[SampleKey]) -> list[SampleKey]:
    if num_processes() == 1:
        return keys
    found: list[list[SampleKey]] = [[] for _ in range(num_processes())]
    dist.all_gather_object(found, keys)
    return sorted(key for part in found for key in part)
