"""What tests of the training engine share: an engine on a tiny model, a loss, and a slow oracle."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from strop.config.training import TrainingConfig
from strop.devices.cpu import CpuDevice
from strop.protocols import AlgorithmNeeds, LossInputs, LossOutputs
from strop.records import Group, MicroBatchPlan
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.plan import plan_micro_batches
from support.tiny import tiny_model


def tiny_engine(
    family: str = "llama",
    *,
    model: PreTrainedModel | None = None,
    dtype: torch.dtype = torch.float32,
    temperature: float = 1.0,
    entropy: bool = False,
    candidates: bool = False,
    gradient_known: bool = False,
    **settings: Any,
) -> Fsdp2Engine:
    """Returns an engine on a tiny random model; `settings` are keys of the training section."""
    return Fsdp2Engine(
        tiny_model(family, dtype=dtype) if model is None else model,
        TrainingConfig(**{"learning_rate": 1e-2, "logprob_chunk_tokens": 7, **settings}),
        temperature=temperature,
        device=CpuDevice(),
        needs=AlgorithmNeeds(entropy=entropy, candidates=candidates, on_policy_gradient_known=gradient_known),
    )


def all_keys(groups: Sequence[Group]) -> list[tuple[int, int]]:
    return [(g, s) for g, group in enumerate(groups) for s in range(len(group.samples))]


def uneven_weights(groups: Sequence[Group]) -> dict[tuple[int, int], float]:
    """Returns another weight for every sample, so that a mix-up shows."""
    return {key: 0.05 * (1 + index) for index, key in enumerate(all_keys(groups))}


def tiny_plan(groups: Sequence[Group], max_tokens: int = 4096, share_prefix: bool = True) -> MicroBatchPlan:
    keys, weights = all_keys(groups), uneven_weights(groups)
    return plan_micro_batches(groups, keys, weights, max_tokens=max_tokens, share_prefix=share_prefix)


def ratio_loss(inputs: LossInputs) -> LossOutputs:
    """The unclipped policy gradient, with an entropy bonus where entropies are there."""
    ratio_N = (inputs.new_logprobs_N - inputs.old_logprobs_N).exp()
    losses_N = -ratio_N * inputs.advantages_N
    if inputs.entropies_N is not None:
        losses_N = losses_N - 0.1 * inputs.entropies_N
    return LossOutputs((inputs.weights_N * losses_N).sum())


def gradients(engine: Fsdp2Engine) -> dict[str, Tensor]:
    return {
        name: weight.grad.clone() for name, weight in engine.causal_lm.named_parameters() if weight.grad is not None
    }


def parameters(engine: Fsdp2Engine) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in engine.causal_lm.named_parameters()}


def oracle_gradients(
    model: PreTrainedModel, groups: Sequence[Group], temperature: float = 1.0, entropy: bool = False
) -> tuple[float, dict[str, Tensor]]:
    """The loss of `ratio_loss` and its gradients, one sample at a time through the plain model and log_softmax."""
    weights = uneven_weights(groups)
    total = 0.0
    for (group_index, sample_index), weight in weights.items():
        row = groups[group_index].samples[sample_index].rows[0]
        token_ids = torch.from_numpy(row.token_ids)
        logits = model(token_ids[None], use_cache=False).logits[0, :-1]
        log_probabilities = torch.log_softmax(
            logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature, -1
        )
        sampled = torch.from_numpy(row.loss_mask[1:])
        logprobs = log_probabilities.gather(1, token_ids[1:, None])[sampled, 0]
        ratio = (logprobs - logprobs.detach()).exp()
        losses = -ratio * torch.from_numpy(row.advantages[1:])[sampled]
        if entropy:
            losses = losses + 0.1 * (log_probabilities.exp() * log_probabilities).sum(-1)[sampled]
        loss = weight * losses.sum()
        loss.backward()
        total += float(loss.detach())
    return total, {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """The Frobenius norm of the difference over that of the expected value."""
    return float((actual.double() - expected.double()).norm() / expected.double().norm().clamp_min(1e-30))


def assert_gradients_close(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    assert actual.keys() == expected.keys()
    errors = {name: relative_error(actual[name], expected[name]) for name in expected}
    worst = max(errors, key=lambda name: errors[name])
    assert errors[worst] <= tolerance, f"{worst}: {errors[worst]}"


def run_update(
    engine: Fsdp2Engine, plan: MicroBatchPlan, loss: Callable[[LossInputs], LossOutputs] = ratio_loss
) -> Any:
    """One forward_backward and one optimizer step."""
    engine.forward_backward(plan, loss)
    return engine.optimizer_step()
