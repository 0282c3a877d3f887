"""Whole runs with a critic: it comes to foresee the rewards, warms up first, and is resumed exactly."""

from pathlib import Path
from typing import Any

import pytest

from strop.api import train
from strop.config.root import Config
from strop.errors import ConfigError
from support.runs import assert_same_run, newest_checkpoint, stored_metrics, tiny_run


def ppo(folder: Path, *, steps: int = 4, **sections: dict[str, Any]) -> Config:
    return tiny_run(
        folder,
        **{
            "run": {"steps": steps},
            "reward": "spread",
            "algorithm": {"name": "ppo"},
            "rollout": {"prompts_per_step": 3, "group_size": 1, "max_new_tokens": 8},
            **sections,
        },
    )


def test_a_run_trains_policy_and_critic_and_tells_of_both(tmp_path: Path) -> None:
    lines = stored_metrics(train(ppo(tmp_path)).folder)[1:]
    assert [line["update/applied"] for line in lines] == [1, 1, 1, 1]
    for name in ("value/loss", "value/mean", "value/explained_variance", "value/gradient_norm"):
        assert all(name in line for line in lines)
    assert lines[0]["value/mean"] == 0, "a new critic says 0"
    assert lines[-1]["value/mean"] != 0


def test_while_the_critic_warms_up_the_policy_stays_as_it_is(tmp_path: Path) -> None:
    lines = stored_metrics(train(ppo(tmp_path, critic={"warmup_updates": 2})).folder)[1:]
    assert [line["update/applied"] for line in lines] == [0, 0, 1, 1]
    assert all(line["value/gradient_norm"] > 0 for line in lines)


@pytest.mark.parametrize("sections", [{}, {"training": {"updates_per_batch": 2, "epochs_per_batch": 2}}])
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path: Path, sections: dict[str, Any]) -> None:
    kept = train(ppo(tmp_path, **sections)).folder.rename(tmp_path / "whole")
    train(ppo(tmp_path, steps=2, **sections))
    resumed = train(ppo(tmp_path, **sections), resume=True).folder
    assert_same_run(resumed, kept)
    critics = [
        (newest_checkpoint(folder) / "critic" / "parameters.safetensors").read_bytes() for folder in (resumed, kept)
    ]
    assert critics[0] == critics[1]


def test_a_critic_without_use_is_refused(tmp_path: Path) -> None:
    config = ppo(tmp_path, algorithm={"name": "grpo"}, critic={"warmup_updates": 2}, rollout={"group_size": 2})
    with pytest.raises(
        ConfigError, match=r"critic.warmup_updates does nothing: the advantage group asks for no values"
    ):
        train(config)
