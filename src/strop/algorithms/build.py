"""Builds the algorithm that the settings name."""

from strop.algorithms.advantages.table import AdvantageEstimator
from strop.algorithms.losses.kernel import PolicyLoss
from strop.algorithms.policy_gradient import PolicyGradient
from strop.config.bundles import ResolvedAlgorithm
from strop.config.distillation import DistillationConfig
from strop.protocols import Algorithm


def build_algorithm(
    settings: ResolvedAlgorithm,
    estimator: AdvantageEstimator | None = None,
    loss: PolicyLoss | None = None,
    distillation: DistillationConfig | None = None,
) -> Algorithm:
    """Returns the named bundle with its resolved settings; functions of the user's stand in for its parts."""
    algorithm = PolicyGradient(settings, estimator, loss)
    if distillation is None:
        return algorithm
    from strop.algorithms.distillation import Distillation

    return Distillation(algorithm, distillation)
