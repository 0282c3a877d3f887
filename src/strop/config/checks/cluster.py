"""Settings of a cluster that nobody would read, or that cannot work on one."""

from collections.abc import Iterator

from strop.config.checks.refusal import Refusal, does_nothing, given
from strop.config.root import Config
from strop.config.weight_sync import WeightSyncConfig

ROLES = ("trainer", "sampler")
"""Kinds of role that may have an environment of their own."""

TRAVEL_KEYS = ("transfer", "bucket_mib", "folder")
"""Of `weight_sync`: how weights get from process to process."""


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
        for key in TRAVEL_KEYS:
            if given(config.weight_sync, key):
                yield does_nothing(
                    f"weight_sync.{key}",
                    "cluster.type is local, where samplers are beside the trainer",
                    f'Set cluster.type to "ray", or leave weight_sync.{key} out.',
                )
        return
    yield from _check_folder(config.weight_sync)
    for role in section.environment.keys() - set(ROLES):
        yield Refusal(
            "cluster.environment", f"must be tables of {' and '.join(ROLES)}, got {role!r}", "Take one of these names."
        )


def _check_folder(section: WeightSyncConfig) -> Iterator[Refusal]:
    if section.transfer == "disk" and section.folder is None:
        yield Refusal(
            "weight_sync.folder",
            "must name a folder that trainer and samplers reach, with transfer disk, got none",
            "Set weight_sync.folder.",
        )
    if section.transfer != "disk" and section.folder is not None:
        yield does_nothing(
            "weight_sync.folder",
            f"weight_sync.transfer is {section.transfer}",
            'Set weight_sync.transfer to "disk", or leave weight_sync.folder out.',
        )
