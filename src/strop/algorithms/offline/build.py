"""Builds the method that a run file names."""

from strop.algorithms.offline.method import OfflineMethod
from strop.config.offline import DpoConfig, IpoConfig, KtoConfig, SftConfig


def build_method(section: SftConfig | DpoConfig | IpoConfig | KtoConfig) -> OfflineMethod:
    """Returns the method with its settings."""
    match section:
        case SftConfig():
            from strop.algorithms.offline.sft import Sft

            return Sft()
        case DpoConfig():
            from strop.algorithms.offline.dpo import Dpo

            return Dpo(section.beta, section.label_smoothing)
        case IpoConfig():
            from strop.algorithms.offline.ipo import Ipo

            return Ipo(section.beta)
        case KtoConfig():
            from strop.algorithms.offline.kto import Kto

            return Kto(section.beta, section.desirable_weight, section.undesirable_weight)
