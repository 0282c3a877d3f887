"""The training engine on PyTorch FSDP2, in one process or many.

    plan --each micro-batch--> PolicyModule --log-probs--> loss --backward--> gradients add up

What becomes of the gradients is in `trained.py`, where the critic has it from too.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from strop.algorithms.logprobs import TargetScores, Wanted
from strop.config.training import TrainingConfig
from strop.metrics import Metrics, merge, total
from strop.models.attention.layer_kinds import supports_shared_prefix
from strop.models.lora import merged_chunks
from strop.protocols import AlgorithmNeeds, Device, LossFunction, LossInputs, Scores, UpdateReport
from strop.records import MicroBatchPlan, PackedBatch, WeightChunk
from strop.training.fsdp2.policy import PolicyModule
from strop.training.fsdp2.scoring import PolicyScorer, in_step
from strop.training.fsdp2.sharding import full_tensor
from strop.training.fsdp2.trained import LoadWeights, TrainedModule


class Fsdp2Engine:
    """Owns a causal language model, its optimizer, and the loop over micro-batches."""

    def __init__(
        self,
        causal_lm: PreTrainedModel,
        config: TrainingConfig,
        *,
        temperature: float,
        device: Device,
        needs: AlgorithmNeeds,
        load_weights: LoadWeights | None = None,
    ) -> None:
        """Takes over a model that was loaded with the packed attention.

        Args:
            causal_lm: the model, in any dtype; parameters that require no gradient are not trained.
            config: the training section.
            temperature: the sampler's; log-probs are computed at it.
            device: where the model is trained.
            needs: which outputs the algorithm's loss reads.
            load_weights: fills a model that was built without memory (`models.late_load`), once it is sharded.
        """
        self.shares_prefixes = supports_shared_prefix(causal_lm.config)
        """Whether plans may share prefixes; with recurrent layers every row is computed alone."""
        self.config = config
        self.device = device
        self.needs = needs
        self.version = 0
        """Of the weights as they are exported; the publisher counts it up by `set_version`."""
        self.causal_lm = causal_lm
        self.policy = PolicyModule(
            causal_lm, chunk_tokens=config.logprob_chunk_tokens, shares_prefixes=self.shares_prefixes
        )
        self._trained = TrainedModule(
            self.policy, causal_lm, config, device, named=causal_lm, load_weights=load_weights
        )
        self.optimizer = self._trained.optimizer
        self._scorer = PolicyScorer(self.policy, device, temperature)
        self._temperature = temperature

    def score(self, plan: MicroBatchPlan, *, top_k: int = 0, collisions: bool = False) -> list[Scores]:
        """Scores the targets without gradient, at the rollout temperature, on the CPU."""
        return self._scorer.score(plan, top_k=top_k, collisions=collisions)

    def score_tokens(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Scores whole sequences as a `Scorer` does: log-probs of tokens 1, 2, ... at temperature 1."""
        return self._scorer.score_tokens(token_ids)

    def forward_backward(self, plan: MicroBatchPlan, loss: LossFunction) -> Metrics:
        """Adds the gradient of the whole mini-batch; returns the loss metrics summed over it."""
        batches = in_step(plan.micro_batches, self.device, shares_prefixes=self.shares_prefixes)
        parts = [self._micro_batch(batch, loss) for batch in batches]
        return merge([*parts, self._plan_metrics(plan)])

    def _micro_batch(self, batch: PackedBatch, loss: LossFunction) -> Metrics:
        batch = batch.to(self.device.torch_device)
        if batch.num_targets == 0:
            self._trained.backward_nothing(lambda: self.policy(batch, self._temperature).logprobs_N)
            return {}
        _require_fields(batch, self.needs)
        outputs: TargetScores = self.policy(batch, self._temperature, self._wanted(batch.fields_N))
        result = loss(_loss_inputs(batch, outputs))
        self._trained.backward(batch, result.loss, outputs.logprobs_N)
        return merge([result.metrics, {"update/loss": total(float(result.loss.detach()))}])

    def _wanted(self, fields_N: Mapping[str, Tensor]) -> Wanted:
        return Wanted(
            entropy=self.needs.entropy,
            candidate_ids_NK=fields_N["candidate_ids"] if self.needs.candidates else None,
            known_gradient_N=self._known_gradient(fields_N),
        )

    def _known_gradient(self, fields_N: Mapping[str, Tensor]) -> Tensor | None:
        """Returns the gradient that the loss will have by each log-prob, where the update is on-policy."""
        if not self.needs.on_policy_gradient_known or "old_logprobs" in fields_N:
            return None
        return -fields_N["weights"] * fields_N["advantages"]

    def _plan_metrics(self, plan: MicroBatchPlan) -> Metrics:
        over_budget = sum(batch.num_tokens > self.config.micro_batch_tokens for batch in plan.micro_batches)
        return {
            "update/loss": total(0.0),
            "update/micro_batches": total(len(plan.micro_batches)),
            "update/micro_batches_over_budget": total(over_budget),
        }

    def optimizer_step(self) -> UpdateReport:
        """Clips, updates and frees the gradient; skips and says so where it is not finite or nothing bore loss.

        Raises:
            TooManySkippedUpdates: after `max_skipped_updates` non-finite gradients in a row.
        """
        return self._trained.optimizer_step()

    def set_version(self, version: int) -> None:
        """Says which version the weights are from now on."""
        self.version = version

    def export_weights(self) -> Iterator[WeightChunk]:
        """Streams every weight once under its name, adapters merged; sharded ones are gathered one at a time."""
        return merged_chunks(self.causal_lm, self.version, gather=full_tensor)

    def offload(self) -> None:
        """Moves parameters and optimizer state to host memory; on a CPU they are there already."""
        self._trained.move(torch.device("cpu"))

    def onload(self) -> None:
        """Brings them back to the device."""
        self._trained.move(self.device.torch_device)

    def save(self, folder: Path) -> None:
        """Writes trained parameters, optimizer and counts into an existing folder."""
        self._trained.save(folder, version=self.version)

    def load(self, folder: Path) -> None:
        """Restores what `save` wrote, bit-equal, and forgets gradients. Raises CheckpointError for a misfit."""
        self.version = int(self._trained.load(folder)["version"])


def _require_fields(batch: PackedBatch, needs: AlgorithmNeeds) -> None:
    required = {"weights", "advantages", "rollout_logprobs"} | ({"candidate_ids"} if needs.candidates else set())
    missing = required - batch.fields_N.keys()
    if missing:
        got = sorted(batch.fields_N)
        raise ValueError(f"a micro-batch must carry {sorted(missing)} to be trained on, got {got}")


def _loss_inputs(batch: PackedBatch, outputs: TargetScores) -> LossInputs:
    """Joins what the policy gave with what the batch carries; without old log-probs the ratio is exactly 1."""
    fields = batch.fields_N
    return LossInputs(
        new_logprobs_N=outputs.logprobs_N,
        old_logprobs_N=fields.get("old_logprobs", outputs.logprobs_N.detach()),
        advantages_N=fields["advantages"],
        weights_N=fields["weights"],
        sample_ids_N=batch.sample_ids_N,
        num_samples=batch.num_samples,
        rollout_logprobs_N=fields["rollout_logprobs"],
        reference_logprobs_N=fields.get("reference_logprobs"),
        entropies_N=outputs.entropies_N,
        candidate_logprobs_NK=outputs.candidate_logprobs_NK,
        fields_N=fields,
    )
