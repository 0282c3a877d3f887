"""How the policy is updated."""

from typing import Literal

from pydantic import Field

from strop.config.base import Section


class TrainingConfig(Section):
    """The training engine and its optimizer."""

    type: Literal["fsdp2"] = "fsdp2"
    """The engine: PyTorch FSDP2, one process or many."""
    learning_rate: float = Field(default=1e-6, gt=0)
    """Peak learning rate of AdamW."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """AdamW's decay of the gradient mean."""
    beta2: float = Field(default=0.999, ge=0, lt=1)
    """AdamW's decay of the squared gradient."""
    epsilon: float = Field(default=1e-8, gt=0)
    """AdamW's epsilon."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay, on matrices only."""
    warmup_updates: int = Field(default=0, ge=0)
    """Updates over which the learning rate rises from 0."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Course of the learning rate after the warm-up."""
    schedule_updates: int | None = Field(default=None, ge=1)
    """Updates after which `linear` and `cosine` reach their end; required by them, refused by `constant`."""
    minimum_learning_rate: float = Field(default=0.0, ge=0)
    """Where `linear` and `cosine` end."""
    max_gradient_norm: float = Field(default=1.0, gt=0)
    """Clips the global gradient norm."""
    micro_batch_tokens: int = Field(default=4096, ge=1)
    """Tokens computed at once; changes memory and speed, never the result."""
    updates_per_batch: int = Field(default=1, ge=1)
    """Mini-batches that one batch is cut into, between prompts, one optimizer update each."""
    epochs_per_batch: int = Field(default=1, ge=1)
    """Passes over one batch."""
    gradient_checkpointing: bool = False
    """Computes activations again in the backward pass instead of keeping them."""
    shard_size: int | None = Field(default=None, ge=1)
    """Training processes that hold one copy of the model between them; all of them where it is left out."""
    logprob_chunk_tokens: int = Field(default=512, ge=1)
    """Predictions whose logits exist at the same time."""
    max_skipped_updates: int = Field(default=3, ge=1)
    """Ends the run after this many non-finite gradients in a row."""
