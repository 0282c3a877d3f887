"""The compatibility matrix: keys that are well formed alone and cannot work, or do nothing, together.

Each module looks at one part of the config and yields refusals; `check` collects them all, so that a run
file is put right in one go.
"""

from strop.config.base import unobserved
from strop.config.checks.algorithm import check_algorithm
from strop.config.checks.cluster import check_cluster
from strop.config.checks.data import check_data
from strop.config.checks.distillation import check_distillation
from strop.config.checks.evaluation import check_checkpoint, check_evaluation
from strop.config.checks.mixture import check_mixture
from strop.config.checks.model import check_lengths, check_model
from strop.config.checks.refusal import Refusal
from strop.config.checks.rewards import check_rewards
from strop.config.checks.run import check_metrics, check_run, check_weight_sync
from strop.config.checks.sampling import check_rollout
from strop.config.checks.training import check_training
from strop.config.root import Config
from strop.errors import ConfigError

__all__ = ["Refusal", "check", "refusals"]

_CHECKS = (
    check_run,
    check_model,
    check_lengths,
    check_data,
    check_mixture,
    check_rewards,
    check_rollout,
    check_algorithm,
    check_distillation,
    check_training,
    check_cluster,
    check_weight_sync,
    check_evaluation,
    check_checkpoint,
    check_metrics,
)


def refusals(config: Config) -> list[Refusal]:
    """Returns every reason why this config cannot run as it stands."""
    with unobserved():
        return [refusal for part in _CHECKS for refusal in part(config)]


def check(config: Config) -> None:
    """Raises ConfigError naming every key that cannot work or does nothing, with the reason and a remedy."""
    found = refusals(config)
    if found:
        lines = "\n".join(f"  {refusal}" for refusal in found)
        raise ConfigError(f"the config cannot run as it stands:\n{lines}")
