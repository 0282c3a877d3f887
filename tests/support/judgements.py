"""What a reward model or a judge of a run file says of four samples, and what its server was asked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from strop.cluster.local import LocalCluster
from strop.config.rewards import RewardConfig
from strop.config.root import Config
from strop.errors import StropError
from strop.records import RewardPart
from strop.tasks import build_rewards, build_task
from strop.tasks.llm_judge.local import LocalEngine
from strop.tasks.llm_judge.reward import JudgeReward
from strop.trainers.judge_sampler import build_model_host
from support.chat_server import BUSY, ChatServer, Reply, chat_server
from support.evidence import OperatorCounts
from support.groups import stopped_group

SERVER = "http://judge/v1"
"""Stands in a run file for the address of the server."""
COMPLETIONS = ("four", "five, or six", "it is 4", "I do not know it")


@dataclass
class Judgement:
    """What was found."""

    parts: Sequence[RewardPart] = ()
    error: str = ""
    """The message of the error that refused the reward."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    was_asked_at_once: bool = False
    """Whether more than one request was open at a time."""
    num_batches: int = 0
    dtype: str = ""
    """Type of the weights of a judge of this process."""

    @property
    def values(self) -> list[float | None]:
        return [part.value for part in self.parts]


def judgement(config: Config) -> Judgement:
    """Builds the first reward of the config and shows it a group; `busy` models are busy at first."""

    def reply(number: int, body: dict[str, Any]) -> Reply:
        if body["model"] == "busy" and number < len(COMPLETIONS):
            return BUSY
        return Reply('Score: 7 of 10, good, {"score": 7, "mark": 8}', seconds=0.1)

    with chat_server(reply) as server:
        found = Judgement()
        try:
            _judge(_at(config.rewards[0], server), config, found)
        except StropError as error:
            found.error = str(error)
        found.bodies = sorted(server.bodies, key=str)
        found.headers = server.headers
        found.was_asked_at_once = server.most_at_once > 1
        return found


def _judge(reward: RewardConfig, config: Config, found: Judgement) -> None:
    host = build_model_host(config.run.device)
    [built] = build_rewards([reward], build_task("columns", config.data), host)
    group = stopped_group(len(COMPLETIONS), answer="4")
    cluster = LocalCluster()
    with OperatorCounts() as operators:
        found.parts = cluster.run(_call(built.function, group))
    cluster.close()
    found.num_batches = operators.counts["aten.embedding.default"]
    if isinstance(built.function, JudgeReward) and isinstance(built.function._engine, LocalEngine):
        found.dtype = str(built.function._engine._model.loaded.hf_model.dtype)


async def _call(function: Any, group: Any) -> list[RewardPart]:
    parts: list[RewardPart] = await function(group, list(COMPLETIONS))
    return parts


def _at(reward: RewardConfig, server: ChatServer) -> RewardConfig:
    """The reward with the server's real address."""
    tree = reward.model_dump()
    if tree["judge"] is not None and tree["judge"]["engine"].get("url") == SERVER:
        tree["judge"]["engine"]["url"] = server.url
    return RewardConfig.model_validate(tree)
