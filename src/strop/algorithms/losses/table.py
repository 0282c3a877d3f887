"""Every policy loss by name, with what it reads; imported when chosen."""

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from strop.algorithms.losses.kernel import PolicyLoss

LOSSES: Mapping[str, str] = MappingProxyType(
    {
        "clip": "clip.clip_loss",
        "gspo": "gspo.gspo_loss",
        "gmpo": "gmpo.gmpo_loss",
        "cispo": "cispo.cispo_loss",
        "sapo": "sapo.sapo_loss",
        "dppo_tv": "dppo.dppo_tv_loss",
        "dppo_kl": "dppo.dppo_kl_loss",
        "clip_cov": "covariance.clip_cov_loss",
        "kl_cov": "covariance.kl_cov_loss",
        "gpg": "reinforce.reinforce_loss",
        "dro": "dro.dro_loss",
        "reinforce": "reinforce.reinforce_loss",
    }
)
"""Where each loss lives, below this package."""

COVARIANCE_LOSSES = frozenset(("clip_cov", "kl_cov"))
"""Losses that choose tokens over the whole mini-batch before its update."""

READS_ALL_SAMPLES = COVARIANCE_LOSSES | {"dro"}
"""Losses that samples of advantage 0 matter to: they are in the covariances' means, and `dro` pulls them back."""

KNOWN_GRADIENT_LOSSES = frozenset(("clip", "cispo", "dppo_tv", "dppo_kl", "gpg", "dro", "reinforce"))
"""Losses of single tokens whose gradient by a log-prob is -advantage wherever new and old log-probs are equal."""


def policy_loss(name: str) -> PolicyLoss:
    """Returns the loss of a name."""
    module, _, function = LOSSES[name].partition(".")
    loss: PolicyLoss = getattr(import_module(f"strop.algorithms.losses.{module}"), function)
    return loss
