"""Builds the parts of a run in processes of their own: one actor a trainer rank, one a sampler.

controller (this process): data, rewards, plans, the state of everything
    trainer-0 ... trainer-n    policy, reference, critic, teachers; one shard each
    sampler-0 ... sampler-m    engines, each with a full copy of the policy
"""

import functools
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strop.cluster.ray.cluster import RayCluster, Role
from strop.config.root import Config
from strop.devices import build_device
from strop.distillation.teachers import Teachers, teacher_names
from strop.errors import ConfigError
from strop.protocols import Algorithm
from strop.trainers.parts import Parts
from strop.trainers.remote.policy import Ranks, RemoteCritic, RemotePolicy, RemoteScorer
from strop.trainers.remote.rank import REFERENCE, TEACHER, RankFacts, TrainerRank
from strop.trainers.remote.sampler import HostedSampler, RemoteSamplers
from strop.trainers.remote.transfers import RanksChannel
from strop.transfer.split import SplitTransfer


def remote_parts(config: Config, algorithm: Algorithm, logs: Path | None) -> Parts:
    """Starts the processes, loads their models at once, and returns the run's parts as the controller sees them.

    Raises ConfigError where the cluster cannot hold the roles, before any of them starts.
    """
    kind = build_device(config.run.device).name
    roles = roles_of(config, kind)
    cluster = RayCluster(config.cluster, logs)
    try:
        return _parts(config, algorithm, cluster, roles)
    except BaseException:
        cluster.close()
        raise


def _parts(config: Config, algorithm: Algorithm, cluster: RayCluster, roles: Sequence[Role]) -> Parts:
    objects = cluster.host_all(roles)
    num_trainers = config.cluster.trainers
    trainers, samplers = objects[:num_trainers], RemoteSamplers(objects[num_trainers:])
    ranks = Ranks(trainers)
    facts: RankFacts = ranks.first("facts")
    needs = algorithm.needs
    return Parts(
        cluster=cluster,
        device=build_device("cpu"),
        policy=RemotePolicy(ranks, algorithm),
        reference=RemoteScorer(ranks, REFERENCE) if needs.reference else None,
        critic=RemoteCritic(ranks) if needs.values else None,
        teachers=_teachers(config, ranks),
        samplers=samplers,
        transfer=SplitTransfer(RanksChannel(trainers), {actor.name: actor for actor in samplers.actors}),
        identity=ranks.each("identity")[0],
        shares_prefixes=facts.shares_prefixes,
        num_ranks=num_trainers,
        costs=facts.costs,
    )


def roles_of(config: Config, device_kind: str) -> list[Role]:
    """Every role of a run: trainer ranks first, then samplers; each has one accelerator where there are any.

    Raises ConfigError where several trainers or samplers would have to share accelerators: Ray could put two trainers
    on one.
    """
    trainers, samplers = config.cluster.trainers, config.rollout.replicas
    devices = 0 if device_kind == "cpu" else 1
    if devices and config.cluster.placement == "shared" and trainers + samplers > 2:
        raise ConfigError(
            f"cluster.placement must be split with {trainers} trainers and {samplers} samplers on accelerators, got "
            "shared: one trainer and one sampler can share a device",
            'Set cluster.placement to "split".',
        )
    accelerator: dict[str, Any] = {"devices": devices, "device_name": "NPU" if device_kind == "npu" else "GPU"}
    trainer_cores, sampler_cores = cores_of_roles(config, trainers, samplers, os.cpu_count() or 1)
    rendezvous = f"tcp://127.0.0.1:{_free_port()}" if trainers > 1 else None
    ranks = [
        Role(
            f"trainer-{rank}",
            functools.partial(TrainerRank, config, rank, trainers, rendezvous, trainer_cores),
            "trainer",
            trainer_cores,
            **accelerator,
        )
        for rank in range(trainers)
    ]
    return ranks + [
        Role(
            f"sampler-{index}",
            functools.partial(HostedSampler, config, sampler_cores),
            "sampler",
            sampler_cores,
            **accelerator,
        )
        for index in range(samplers)
    ]


def cores_of_roles(config: Config, trainers: int, samplers: int, available: int) -> tuple[int, int]:
    """Returns the cores of a trainer rank and of a sampler.

    Shared, each kind may use all cores, since the other waits meanwhile; split, they are divided among all roles.
    """
    section = config.cluster
    if section.placement == "shared":
        defaults = max(1, available // trainers), max(1, available // samplers)
    else:
        defaults = (max(1, available // (trainers + samplers)),) * 2
    return section.trainer_cores or defaults[0], section.sampler_cores or defaults[1]


def _teachers(config: Config, ranks: Ranks) -> Teachers | None:
    section = config.distillation
    if section is None:
        return None
    scorers = {name: RemoteScorer(ranks, f"{TEACHER}{name}") for name in teacher_names(section)}
    return Teachers(scorers, section.route_column)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
