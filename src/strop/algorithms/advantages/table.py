"""Every advantage estimator by name, imported when chosen.

An estimator is a function of groups and settings. It returns the groups with `advantages` on every row: 0 on tokens
that the policy did not sample and on samples whose reward is invalid.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType

from strop.config.bundles import ResolvedAlgorithm
from strop.records import Group

AdvantageEstimator = Callable[[Sequence[Group], ResolvedAlgorithm], list[Group]]

ESTIMATORS: Mapping[str, str] = MappingProxyType(
    {
        "group": "group.group_relative",
        "rloo": "leave_one_out.rloo",
        "remax": "remax.remax",
        "reinforce_pp": "reinforce_pp.reinforce_pp",
        "reinforce_pp_baseline": "reinforce_pp.reinforce_pp_baseline",
        "opo": "opo.opo",
        "gpg": "gpg.gpg",
        "pass_at_k": "pass_at_k.pass_at_k",
        "gdpo": "gdpo.gdpo",
        "maxrl": "maxrl.maxrl",
        "optimal_token_baseline": "optimal_token_baseline.optimal_token_baseline",
        "gae": "gae.gae",
        "best_of_n": "best_of_n.best_of_n",
    }
)
"""Where each estimator lives, below this package."""


def advantage_estimator(name: str) -> AdvantageEstimator:
    """Returns the estimator of a name."""
    module, _, function = ESTIMATORS[name].partition(".")
    estimator: AdvantageEstimator = getattr(import_module(f"strop.algorithms.advantages.{module}"), function)
    return estimator
