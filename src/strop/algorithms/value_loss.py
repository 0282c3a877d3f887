r"""The loss of a critic, and how well its values foresaw the returns.

    L = sum_t w_t * 1/2 * max((V(s_t) - R_t)^2, (clip(V(s_t), V_old(s_t) - c, V_old(s_t) + c) - R_t)^2)

w_t is 1 over the number of sampled tokens of the mini-batch: the mean over its tokens. R_t is the return, V_old the
value that the step's advantages were computed from.

Source: Schulman et al. 2017, PPO, arXiv:1707.06347, equation 9 (the squared error); the clip is that of OpenAI's
baselines (ppo2), and Engstrom et al. 2020, arXiv:2005.12729, section 3, write it out.
Deviations: none from `compute_value_loss` of verl with `token-mean`; TRL 1.16 has no critic.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from strop.algorithms.aggregation import token_weights
from strop.metrics import Metrics, mean
from strop.protocols import LossOutputs
from strop.records import Group
from strop.records.packing import SampleKey

CONSTANT_SHARE = 1e-12
"""Returns whose variance is at most this share of their mean square are constant, up to rounding in float32."""


def value_weights(groups: Sequence[Group], keys: Iterable[SampleKey]) -> dict[SampleKey, float]:
    """Gives each sampled token of the mini-batch's samples the same weight, 1 over how many there are."""
    num_tokens = {(g, s): groups[g].samples[s].num_sampled_tokens for g, s in keys}
    return token_weights(num_tokens, "token_mean", 1)


def value_loss(values_N: Tensor, fields_N: Mapping[str, Tensor], clip: float) -> LossOutputs:
    """Returns the loss of one micro-batch; summed over micro-batches it is that of the mini-batch.

    Args:
        values_N: of the critic that is being trained, with gradient.
        fields_N: `values` (what it said before the step), `returns` and `weights`.
        clip: how far a value may go from what it was before it has no gradient any more.
    """
    old_N, returns_N, weights_N = fields_N["values"], fields_N["returns"], fields_N["weights"]
    clipped_N = values_N.clamp(old_N - clip, old_N + clip)
    free_losses_N, bound_losses_N = (values_N - returns_N) ** 2, (clipped_N - returns_N) ** 2
    losses_N = 0.5 * torch.maximum(free_losses_N, bound_losses_N)
    loss = (weights_N * losses_N).sum()
    is_clipped_N = bound_losses_N > free_losses_N
    weight = float(weights_N.sum())
    metrics = {
        "value/loss": mean(float(loss.detach()), weight),
        "value/clipped_share": mean(float((weights_N * is_clipped_N).sum()), weight),
    }
    return LossOutputs(loss, metrics)


def value_metrics(fields_N: Mapping[str, Tensor], total: Callable[[Tensor], Tensor]) -> Metrics:
    """Returns the mean of a mini-batch's values and the share of the returns' variance that they explain.

    It is 1 - Var(R - V_old) / Var(R): 1 where the values were right, 0 where a constant had been as good. Parts of
    several processes and mini-batches add up as the variances within each mini-batch do.

    Args:
        fields_N: `values`, `returns` and `weights` of the part of the mini-batch that this process has.
        total: sums a tensor over all processes.
    """
    old_N, returns_N, weights_N = (fields_N[name].double() for name in ("values", "returns", "weights"))
    observed_2N = torch.stack([returns_N, returns_N - old_N])
    weight, *sums = total(torch.cat([weights_N.sum()[None], (weights_N * observed_2N).sum(-1)])).unbind()
    if not weight:
        return {}
    means_2 = torch.stack(sums) / weight
    spreads_2 = (weights_N * (observed_2N - means_2[:, None]) ** 2).sum(-1)
    spread, square = total(torch.stack([spreads_2[0], (weights_N * returns_N**2).sum()])).unbind()
    has_spread = bool(spread > CONSTANT_SHARE * square)
    explained, possible = (float(spreads_2[0] - spreads_2[1]), float(spreads_2[0])) if has_spread else (0.0, 0.0)
    return {
        "value/mean": mean(float((weights_N * old_N).sum()), float(weights_N.sum())),
        "value/explained_variance": mean(explained, possible),
    }
