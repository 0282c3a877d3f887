"""What tests of the critic share: a critic on a tiny model, rows with values and returns, and slow oracles."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from strop.algorithms.value_loss import value_weights
from strop.config.critic import CriticConfig
from strop.config.training import TrainingConfig
from strop.devices.cpu import CpuDevice
from strop.records import Group, MicroBatchPlan
from strop.training.fsdp2.critic import Fsdp2Critic
from strop.training.fsdp2.sharding import full_tensor
from strop.training.plan import plan_micro_batches
from support.tiny import tiny_groups, tiny_model
from support.training import all_keys

CLIP = 0.2


def tiny_critic(
    family: str = "llama",
    *,
    model: PreTrainedModel | None = None,
    dtype: torch.dtype = torch.float32,
    head: bool = True,
    warmup_updates: int = 0,
    learning_rate: float = 1e-2,
    **training: Any,
) -> Fsdp2Critic:
    """Returns a critic on a tiny random model; its head says something where `head` is set, and 0 else."""
    critic = Fsdp2Critic(
        tiny_model(family, dtype=dtype) if model is None else model,
        CriticConfig(learning_rate=learning_rate, warmup_updates=warmup_updates, value_clip=CLIP),
        TrainingConfig(**{"micro_batch_tokens": 4096, **training}),
        device=CpuDevice(),
    )
    if head:
        set_head(critic)
    return critic


@torch.no_grad()
def set_head(critic: Fsdp2Critic) -> None:
    """Gives the head weights of about 1 / sqrt(H) and a bias, the same ones every time."""
    weight_H, bias = head_weights(critic.module.head.in_features)
    critic.module.head.weight.copy_(weight_H[None])
    critic.module.head.bias.fill_(bias)


def head_weights(hidden_size: int) -> tuple[Tensor, float]:
    """Returns the head that `set_head` sets: [H] weights and a bias."""
    generator = torch.Generator().manual_seed(5)
    return torch.randn(hidden_size, generator=generator) * hidden_size**-0.5, 0.3


def valued_groups(seed: int = 0, spread: float = 1.0, **options: Any) -> list[Group]:
    """Returns tiny groups whose rows carry random `values` and `returns`; 0 where nothing was sampled."""
    rng = np.random.default_rng(seed + 100)
    groups = []
    for group in tiny_groups(seed=seed, **options):
        samples = []
        for sample in group.samples:
            (row,) = sample.rows
            fields = {
                name: np.where(row.loss_mask, spread * rng.normal(size=row.num_tokens), 0.0).astype(np.float32)
                for name in ("values", "returns")
            }
            samples.append(replace(sample, rows=(row.with_fields(**fields),)))
        groups.append(group.with_samples(samples))
    return groups


def value_plan(
    groups: Sequence[Group],
    max_tokens: int = 4096,
    keys: Sequence[tuple[int, int]] | None = None,
    share_prefix: bool = True,
) -> MicroBatchPlan:
    """Plans the samples of `keys`, with the weights of the whole mini-batch."""
    weights = value_weights(groups, all_keys(groups))
    return plan_micro_batches(
        groups, all_keys(groups) if keys is None else keys, weights, max_tokens=max_tokens, share_prefix=share_prefix
    )


def plain_values(model: PreTrainedModel, token_ids: Tensor) -> Tensor:
    """Values of the states before tokens 1, 2, ... of one sequence, through the plain decoder."""
    hidden_TH = model.get_decoder()(input_ids=token_ids[None], use_cache=False).last_hidden_state[0]
    weight_H, bias = head_weights(hidden_TH.shape[-1])
    return hidden_TH[:-1] @ weight_H.to(hidden_TH.dtype) + bias


def oracle_loss(model: PreTrainedModel, groups: Sequence[Group]) -> Tensor:
    """The value loss of whole groups, one sample and one token at a time, with gradient."""
    num_tokens = sum(sample.num_sampled_tokens for group in groups for sample in group.samples)
    loss = torch.zeros(())
    for group in groups:
        for sample in group.samples:
            (row,) = sample.rows
            values = plain_values(model, torch.from_numpy(row.token_ids))
            for token in np.flatnonzero(row.loss_mask):
                value, old, target = values[token - 1], row.fields["values"][token], row.fields["returns"][token]
                bound = min(max(float(value.detach()), float(old) - CLIP), float(old) + CLIP)
                clipped = value if bound == float(value.detach()) else torch.tensor(bound)
                losses = ((value - float(target)) ** 2, (clipped - float(target)) ** 2)
                loss = loss + 0.5 * max(losses, key=lambda candidate: float(candidate.detach())) / num_tokens
    return loss


def critic_gradients(critic: Fsdp2Critic) -> dict[str, Tensor]:
    """Returns the gradients so far, by the parameters' names."""
    return {
        name: full_tensor(weight.grad).clone()
        for name, weight in critic.module.named_parameters()
        if weight.grad is not None
    }


def critic_weights(critic: Fsdp2Critic) -> dict[str, Tensor]:
    """Returns copies of what is trained."""
    return {name: full_tensor(weight.detach()).clone() for name, weight in critic.module.named_parameters()}
