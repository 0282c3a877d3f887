"""Log-ratios of whole answers to the reference: what all preference losses are made of.

    r_s = sum over the trained tokens t of sample s of  log pi(t) - log pi_ref(t)

The samples of a micro-batch stand one behind the other, those of a pair as chosen, rejected, chosen, rejected, ...
"""

import torch
from torch import Tensor

from strop.metrics import Metrics, mean
from strop.protocols import LossInputs, LossOutputs


def log_ratios(inputs: LossInputs) -> Tensor:
    """Returns the [S] log-ratio of each sample, with gradient. Raises ValueError without a reference."""
    if inputs.reference_logprobs_N is None:
        raise ValueError("a preference loss needs the reference's log-probs, got none")
    return sums(inputs.new_logprobs_N - inputs.reference_logprobs_N, inputs)


def sums(values_N: Tensor, inputs: LossInputs) -> Tensor:
    """Returns the [S] sum of what each sample's targets have."""
    return values_N.new_zeros(inputs.num_samples).index_add(0, inputs.sample_ids_N, values_N)


def lengths(inputs: LossInputs) -> Tensor:
    """Returns how many trained tokens each sample has, [S]."""
    return sums(torch.ones_like(inputs.weights_N), inputs)


def of_samples(values_N: Tensor, inputs: LossInputs) -> Tensor:
    """Returns the one value that all targets of a sample share, [S]."""
    return sums(values_N, inputs) / lengths(inputs)


def paired(values_S: Tensor) -> tuple[Tensor, Tensor]:
    """Parts the values of chosen and rejected samples, [P] each. Raises ValueError where there is half a pair."""
    if len(values_S) % 2:
        raise ValueError(f"a micro-batch of pairs must have an even number of samples, got {len(values_S)}")
    return values_S[0::2], values_S[1::2]


def pair_outputs(losses_P: Tensor, rewards_S: Tensor, inputs: LossInputs) -> LossOutputs:
    """Weighs the loss of each pair, and measures the implied rewards of both its answers."""
    weights_P, _ = paired(of_samples(inputs.weights_N, inputs))
    chosen_P, rejected_P = paired(rewards_S.detach())
    num_pairs = len(losses_P)
    metrics: Metrics = {
        "offline/loss": mean(float(losses_P.detach().sum()), num_pairs),
        "rewards/chosen": mean(float(chosen_P.sum()), num_pairs),
        "rewards/rejected": mean(float(rejected_P.sum()), num_pairs),
        "rewards/margin": mean(float((chosen_P - rejected_P).sum()), num_pairs),
        "rewards/accuracy": mean(float((chosen_P > rejected_P).sum()), num_pairs),
    }
    return LossOutputs((weights_P * losses_P).sum(), metrics)
