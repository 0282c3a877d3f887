"""Chooses the algorithm by name."""

from strop.config.bundles import ResolvedAlgorithm
from strop.protocols import Algorithm


def build_algorithm(settings: ResolvedAlgorithm) -> Algorithm:
    """Returns the named bundle with its resolved settings."""
    match settings.name:
        case "grpo":
            from strop.algorithms.grpo import Grpo

            return Grpo(settings)
        case "dr_grpo":
            from strop.algorithms.dr_grpo import DrGrpo

            return DrGrpo(settings)
        case "dapo":
            from strop.algorithms.dapo import Dapo

            return Dapo(settings)
