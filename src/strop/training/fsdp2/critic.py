"""The critic on PyTorch FSDP2: values without gradient, then the value loss over the same micro-batch plan.

    before the step   plan --ValueModule--> values, attached to the rows
    a mini-batch      plan with values, returns and weights --ValueModule--> value loss --backward--> optimizer_step

Everything but the loss and the head is what the policy's engine does too: `trained.py`.
"""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedModel

from strop.algorithms.value_loss import value_loss, value_metrics
from strop.config.critic import CriticConfig
from strop.config.training import TrainingConfig
from strop.metrics import Metrics, merge
from strop.models.attention.layer_kinds import supports_shared_prefix
from strop.protocols import Device, UpdateReport
from strop.records import MicroBatchPlan, PackedBatch
from strop.training.fsdp2.scoring import in_step
from strop.training.fsdp2.sharding import num_processes
from strop.training.fsdp2.state import load_parameters
from strop.training.fsdp2.trained import TrainedModule
from strop.training.fsdp2.value import ValueModule

FIELDS = ("values", "returns", "weights")
"""What a micro-batch must carry to be learned from."""


class Fsdp2Critic:
    """Implements `protocols.Critic`, and `protocols.CheckpointPart`."""

    def __init__(
        self, causal_lm: PreTrainedModel, config: CriticConfig, training: TrainingConfig, *, device: Device
    ) -> None:
        """Takes over the decoder of a model that was loaded with the packed attention; its head is dropped.

        Args:
            causal_lm: the model, in any dtype; parameters that require no gradient are not trained.
            config: the critic section.
            training: the policy's training section: all that the critic's does not say.
            device: where the critic is trained.
        """
        decoder: PreTrainedModel = causal_lm.get_decoder()  # type: ignore[no-untyped-call]
        self.config = config
        self.device = device
        self.shares_prefixes = supports_shared_prefix(decoder.config)
        """Whether plans may share prefixes; with recurrent layers every row is computed alone."""
        self.module = ValueModule(decoder, shares_prefixes=self.shares_prefixes)
        self._trained = TrainedModule(
            self.module, decoder, _own_training(config, training), device, named=self.module, section="critic"
        )
        self.optimizer = self._trained.optimizer

    @property
    def is_warming_up(self) -> bool:
        """Whether the next update is one of the first, in which the policy stays as it is."""
        return self._trained.num_updates < self.config.warmup_updates

    @torch.no_grad()
    def values(self, plan: MicroBatchPlan) -> list[Tensor]:
        """Returns the value of the state before each target: one [N] tensor a micro-batch, on the CPU."""
        batches = in_step(plan.micro_batches, self.device, shares_prefixes=self.shares_prefixes)
        found = [self.module(batch.to(self.device.torch_device)).float().cpu() for batch in batches]
        return found[: len(plan.micro_batches)]

    def forward_backward(self, plan: MicroBatchPlan) -> Metrics:
        """Adds the gradient of the value loss of a whole mini-batch; returns its metrics.

        Its micro-batches carry `values` (of before the step), `returns` and `weights` (`value_weights`).
        """
        for batch in plan.micro_batches:
            _require_fields(batch)
        batches = in_step(plan.micro_batches, self.device, shares_prefixes=self.shares_prefixes)
        parts = [self._micro_batch(batch) for batch in batches]
        fields_N = {name: _concatenated(plan, name) for name in FIELDS}
        return merge([*parts, value_metrics(fields_N, self._over_all_processes)])

    def _micro_batch(self, batch: PackedBatch) -> Metrics:
        batch = batch.to(self.device.torch_device)
        if batch.num_targets == 0:
            self._trained.backward_nothing(lambda: self.module(batch))
            return {}
        values_N: Tensor = self.module(batch)
        result = value_loss(values_N, batch.fields_N, self.config.value_clip)
        self._trained.backward(batch, result.loss, values_N)
        return result.metrics

    def _over_all_processes(self, sums: Tensor) -> Tensor:
        if num_processes() == 1:
            return sums
        sums = sums.to(self.device.torch_device)
        dist.all_reduce(sums)
        return sums.cpu()

    def optimizer_step(self) -> UpdateReport:
        """Clips, updates and frees the gradient; skips and says so where it is not finite or nothing bore loss.

        Raises:
            TooManySkippedUpdates: after `max_skipped_updates` non-finite gradients in a row.
        """
        return self._trained.optimizer_step()

    def offload(self) -> None:
        """Moves parameters and optimizer state to host memory; on a CPU they are there already."""
        self._trained.move(torch.device("cpu"))

    def onload(self) -> None:
        """Brings them back to the device."""
        self._trained.move(self.device.torch_device)

    def begin_from(self, folder: Path) -> None:
        """Takes the parameters of a critic that `save` wrote, and not its optimizer. Raises CheckpointError."""
        load_parameters(folder, self.optimizer)

    def save(self, folder: Path) -> None:
        """Writes trained parameters, optimizer and counts into an existing folder."""
        self._trained.save(folder)

    def load(self, folder: Path) -> None:
        """Restores what `save` wrote, bit-equal, and forgets gradients. Raises CheckpointError for a misfit."""
        self._trained.load(folder)


def _own_training(config: CriticConfig, training: TrainingConfig) -> TrainingConfig:
    """The policy's settings, with the course of the learning rate scaled to the critic's peak."""
    scale = config.learning_rate / training.learning_rate
    minimum = training.minimum_learning_rate * scale
    return training.model_copy(update={"learning_rate": config.learning_rate, "minimum_learning_rate": minimum})


def _require_fields(batch: PackedBatch) -> None:
    missing = set(FIELDS) - batch.fields_N.keys()
    if missing:
        got = sorted(batch.fields_N)
        raise ValueError(f"a micro-batch must carry {sorted(missing)} for a critic to learn from it, got {got}")


def _concatenated(plan: MicroBatchPlan, name: str) -> Tensor:
    return torch.cat([torch.empty(0), *(batch.fields_N[name] for batch in plan.micro_batches)])
