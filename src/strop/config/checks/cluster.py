"""Settings of a cluster that nobody would read, or that cannot work on one."""

from collections.abc import Iterator

from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.root import Config

ROLES = ("trainer", "sampler")
"""Kinds of role that may have an environment of their own."""


def check_cluster(config: Config) -> Iterator[Refusal]:
    """Yields refusals of `cluster`."""
    section = config.cluster
    if section.type == "local":
        for key in type(section).model_fields:
            if key != "type" and given(section, key):
                yield does_nothing(
                    f"cluster.{key}",
                    "cluster.type is local",
                    f'Set cluster.type to "ray", or leave cluster.{key} out.',
                )
        return
    for role in section.environment.keys() - set(ROLES):
        yield Refusal(
            "cluster.environment", f"must be tables of {' and '.join(ROLES)}, got {role!r}", "Take one of these names."
        )
