"""Which processes a run on Ray has, and what each needs."""

from pathlib import Path
from typing import Any

import pytest

from strop.config.root import Config
from strop.errors import ConfigError
from strop.trainers.remote.build import cores_of_roles, roles_of
from support.runs import tiny_run


def config_of(folder: Path, replicas: int = 1, **cluster: Any) -> Config:
    return tiny_run(folder, cluster={"type": "ray", **cluster}, rollout={"replicas": replicas})


def test_trainers_come_first_and_each_role_has_a_name_of_its_own(tmp_path: Path) -> None:
    roles = roles_of(config_of(tmp_path, replicas=2, trainers=2), "cpu")
    assert [role.name for role in roles] == ["trainer-0", "trainer-1", "sampler-0", "sampler-1"]
    assert [role.kind for role in roles] == ["trainer", "trainer", "sampler", "sampler"]
    assert {role.devices for role in roles} == {0}


@pytest.mark.parametrize(("kind", "name"), [("cuda", "GPU"), ("rocm", "GPU"), ("npu", "NPU")])
def test_each_role_has_an_accelerator_where_there_are_any(tmp_path: Path, kind: str, name: str) -> None:
    roles = roles_of(config_of(tmp_path, trainers=2, placement="split"), kind)
    assert [(role.devices, role.device_name) for role in roles] == [(1, name)] * 3


def test_several_trainers_do_not_share_accelerators(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cluster.placement must be split with 2 trainers and 1 samplers"):
        roles_of(config_of(tmp_path, trainers=2), "cuda")
    assert len(roles_of(config_of(tmp_path), "cuda")) == 2


@pytest.mark.parametrize(("placement", "expected"), [("shared", (4, 8)), ("split", (2, 2))])
def test_cores_are_all_for_each_kind_where_they_take_turns_and_divided_where_not(
    tmp_path: Path, placement: str, expected: tuple[int, int]
) -> None:
    config = config_of(tmp_path, placement=placement)
    assert cores_of_roles(config, trainers=2, samplers=1, available=8) == expected
    own = config_of(tmp_path, placement=placement, trainer_cores=3, sampler_cores=5)
    assert cores_of_roles(own, trainers=2, samplers=1, available=8) == (3, 5)
