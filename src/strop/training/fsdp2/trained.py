"""A sharded module with its optimizer: what training a policy and training a critic have in common.

    backward, once a micro-batch: gradients add up, and what was seen is noted
    optimizer_step: norm over everything --finite?--> clip, AdamW --> gradients freed
                                         --else-----> gradients freed, samples named

The loss of a mini-batch is a plain sum with weights that were fixed before, so that gradients of
micro-batches and of processes are added, never averaged, and no cut of the batch changes them.
"""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from strop.config.training import TrainingConfig
from strop.protocols import Device, UpdateReport
from strop.records import PackedBatch
from strop.records.packing import SampleKey
from strop.training.errors import TooManySkippedUpdates
from strop.training.fsdp2.checks import require_deterministic
from strop.training.fsdp2.evidence import UpdateEvidence
from strop.training.fsdp2.optimizer import ParameterOptimizer
from strop.training.fsdp2.sharding import num_processes, shard
from strop.training.fsdp2.state import load_state, save_state
from strop.training.schedule import check_schedule, learning_rate_at

LoadWeights = Callable[[torch.device], None]
"""Reads the weights of a model onto a device, each process those that it holds."""


class TrainedModule:
    """Owns a module, the optimizer of its trained parameters, and the counts of its updates."""

    def __init__(
        self,
        module: nn.Module,
        hf_model: PreTrainedModel,
        config: TrainingConfig,
        device: Device,
        *,
        named: nn.Module,
        section: str = "training",
        load_weights: LoadWeights | None = None,
    ) -> None:
        """Brings the module to the device, shards it, and puts it into the mode that training needs.

        Args:
            module: the whole; its forward is the only one that is called.
            hf_model: the model of transformers in it.
            config: the training section.
            device: where the module is trained.
            named: parameters bear the names that they have in this part of the module.
            section: of the run file, that the learning rate comes from.
            load_weights: fills a model that was built without memory, once it is sharded.
        """
        check_schedule(config)
        require_deterministic(hf_model)
        _set_mode(hf_model, config)
        self.module = module if load_weights is not None else module.to(device.torch_device)
        shard(module, hf_model, device, config.shard_size)
        if load_weights is not None:
            load_weights(device.torch_device)
        self.config = config
        self.device = device
        trained = {name: weight for name, weight in named.named_parameters() if weight.requires_grad}
        self.optimizer = ParameterOptimizer(trained, config)
        self.num_updates = 0
        """Updates that were applied."""
        self._num_skipped = 0
        self._evidence = UpdateEvidence()
        self._section = section

    def backward(self, batch: PackedBatch, loss: Tensor, outputs_N: Tensor) -> None:
        """Adds the gradient of one micro-batch's loss, by way of the module's outputs at its targets."""
        gradients: list[Tensor] = []
        outputs_N.register_hook(gradients.append)  # type: ignore[no-untyped-call]
        loss.backward()  # type: ignore[no-untyped-call]
        self._evidence.note(batch, batch.fields_N["weights"], outputs_N, loss, *gradients)

    def backward_nothing(self, forward: Callable[[], Tensor]) -> None:
        """Takes part in the collectives of the other processes; alone, there is nothing to do."""
        if num_processes() > 1:
            forward().sum().backward()  # type: ignore[no-untyped-call]

    def optimizer_step(self) -> UpdateReport:
        """Clips, updates and frees the gradient; skips and says so where it is not finite or nothing bore loss.

        Raises:
            TooManySkippedUpdates: after `max_skipped_updates` non-finite gradients in a row.
        """
        evidence, self._evidence = self._evidence, UpdateEvidence()
        bore_loss, suspicious = evidence.over_all_processes(self.device)
        learning_rate = learning_rate_at(self.num_updates, self.config)
        norm = self.optimizer.gradient_norm() if bore_loss else 0.0
        if suspicious or not math.isfinite(norm):
            report = self._skip(evidence.to_blame(), norm, learning_rate, suspicious=suspicious)
        elif not bore_loss:
            report = UpdateReport(norm, learning_rate, applied=False, reason="no target bore loss")
        else:
            self.optimizer.step(learning_rate, min(1.0, self.config.max_gradient_norm / (norm + 1e-6)))
            self.num_updates += 1
            self._num_skipped = 0
            report = UpdateReport(norm, learning_rate, applied=True)
        self.optimizer.clear_gradients()
        return report

    def _skip(
        self, suspects: tuple[SampleKey, ...], norm: float, learning_rate: float, *, suspicious: bool
    ) -> UpdateReport:
        """Leaves the weights as they are."""
        self._num_skipped += 1
        if suspicious:
            reason = "a loss or an output was not finite"
        else:
            reason = "the gradient was not finite though every loss was"
        if self._num_skipped >= self.config.max_skipped_updates:
            self.optimizer.clear_gradients()
            raise TooManySkippedUpdates(self._num_skipped, suspects, self._section)
        return UpdateReport(norm, learning_rate, applied=False, reason=reason, suspects=suspects)

    def move(self, device: torch.device) -> None:
        """Moves parameters, gradients and optimizer state; on a CPU they are where they should be already."""
        if self.device.torch_device.type == "cpu":
            return
        self.relocate(lambda tensor: tensor.to(device))
        self.device.empty_cache()

    def relocate(self, place: Callable[[Tensor], Tensor]) -> None:
        """Puts every tensor that is kept between updates where `place` puts it; parameters stay the same objects."""
        self.module._apply(place)  # type: ignore[no-untyped-call]
        self.optimizer.relocate(place)

    def save(self, folder: Path, **counts: int) -> None:
        """Writes trained parameters, optimizer and counts into an existing folder."""
        save_state(folder, self.optimizer, {"updates": self.num_updates, "skipped": self._num_skipped, **counts})

    def load(self, folder: Path) -> Mapping[str, Any]:
        """Restores what `save` wrote, bit-equal, and forgets gradients; returns the counts.

        Raises CheckpointError for a misfit.
        """
        counts = load_state(folder, self.optimizer)
        self.num_updates, self._num_skipped = int(counts["updates"]), int(counts["skipped"])
        self.optimizer.clear_gradients()
        self._evidence = UpdateEvidence()
        return counts


def _set_mode(hf_model: PreTrainedModel, config: TrainingConfig) -> None:
    """Training mode matters to gradient checkpointing only: dropout is 0."""
    if config.gradient_checkpointing:
        hf_model.gradient_checkpointing_enable({"use_reentrant": False})
        hf_model.train()
    else:
        hf_model.eval()  # type: ignore[no-untyped-call]
