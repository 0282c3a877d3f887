"""The frozen reference model that a KL term is anchored to."""

from transformers import PreTrainedModel

from strop.config.training import TrainingConfig
from strop.models.attention.layer_kinds import supports_shared_prefix
from strop.models.lora import adapters_disabled
from strop.protocols import Device, Scores
from strop.records import MicroBatchPlan
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.fsdp2.policy import PolicyModule
from strop.training.fsdp2.scoring import PolicyScorer
from strop.training.fsdp2.sharding import shard


class FrozenReference:
    """A model of its own that is never trained; implements `protocols.PlanScorer`."""

    def __init__(
        self, causal_lm: PreTrainedModel, config: TrainingConfig, *, temperature: float, device: Device
    ) -> None:
        """Takes over a model that was loaded with the packed attention, and freezes it."""
        causal_lm.requires_grad_(False)
        module = PolicyModule(
            causal_lm,
            chunk_tokens=config.logprob_chunk_tokens,
            shares_prefixes=supports_shared_prefix(causal_lm.config),
        )
        module = module.to(device.torch_device)
        shard(module, causal_lm, device, config.shard_size)
        self._scorer = PolicyScorer(module, device, temperature)

    def score(self, plan: MicroBatchPlan, *, top_k: int = 0, collisions: bool = False) -> list[Scores]:
        """Scores the targets with the reference at the rollout temperature."""
        return self._scorer.score(plan, top_k=top_k, collisions=collisions)


class AdapterFreeReference:
    """The policy with its adapters switched off: the reference of a run with LoRA costs no memory."""

    def __init__(self, engine: Fsdp2Engine) -> None:
        self._engine = engine

    def score(self, plan: MicroBatchPlan, *, top_k: int = 0, collisions: bool = False) -> list[Scores]:
        """Scores the targets with the base model at the rollout temperature."""
        with adapters_disabled(self._engine.causal_lm):
            return self._engine.score(plan, top_k=top_k, collisions=collisions)
