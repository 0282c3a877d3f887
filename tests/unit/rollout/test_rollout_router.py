"""Requests over several engines: who gets which, and what happens when one is gone."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from strop.config.rollout import RolloutConfig
from strop.errors import SyncError
from strop.records import Completion, FinishState, GroupRequest
from strop.rollout.errors import ReplicaLostError, RequestRefusedError
from strop.rollout.native import NativeEngine
from strop.rollout.router import Router
from strop.weight_sync import LocalGate
from support.rollout import make_request, turns
from support.softmax_policy import Sampler
from support.tiny import random_ids, tiny_model


class Engine(Sampler):
    """Answers when it is told to; fails with what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[GroupRequest] = []
        self.may_answer = asyncio.Event()
        self.failure: Exception | None = None

    async def generate(self, request: GroupRequest) -> list[Completion]:
        self.asked.append(request)
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        tokens = np.arange(3)
        return [Completion(tokens, tokens.astype(np.float32), tokens, FinishState.LENGTH) for _ in request.streams]

    @property
    def prompts(self) -> list[str]:
        return [request.streams[0].prompt_id for request in self.asked]


def request(prompt_id: str, *, prompt_tokens: int = 4, samples: int = 1, new_tokens: int = 8) -> GroupRequest:
    return make_request(np.arange(prompt_tokens) % 7, samples, prompt_id=prompt_id, max_new_tokens=new_tokens)


class World:
    """Two engines behind a router."""

    def __init__(self, *names: str) -> None:
        self.gate = LocalGate()
        self.engines = {name: Engine() for name in names or ("a", "b")}
        self.router = Router(self.engines, self.gate)
        self.jobs: list[asyncio.Task[list[Completion]]] = []

    async def ask(self, *requests: GroupRequest) -> None:
        """Sends requests one after the other, without waiting for answers."""
        for one in requests:
            self.jobs.append(asyncio.create_task(self.router.generate(one)))
            await turns(3)

    async def answer(self) -> list[list[Completion]]:
        for engine in self.engines.values():
            engine.may_answer.set()
        jobs, self.jobs = self.jobs, []
        return list(await asyncio.wait_for(asyncio.gather(*jobs), 5))


def test_a_request_goes_to_the_engine_with_the_fewest_open_tokens() -> None:
    async def run() -> None:
        world = World()
        await world.ask(request("large", new_tokens=100), *(request(f"small {index}") for index in range(3)))
        assert world.engines["a"].prompts == ["large"]
        assert world.engines["b"].prompts == ["small 0", "small 1", "small 2"]
        await world.answer()
        await world.ask(request("after"))
        assert world.engines["a"].prompts[-1] == "after", "what is answered weighs nothing"

    asyncio.run(run())


def test_a_group_stays_together_and_weighs_what_all_its_samples_may_draw() -> None:
    async def run() -> None:
        world = World()
        await world.ask(request("group", samples=4), request("one", new_tokens=20), request("next"))
        assert [len(one.streams) for one in world.engines["a"].asked] == [4]
        assert world.engines["b"].prompts == ["one", "next"]
        assert [len(one) for one in await world.answer()] == [4, 1, 1]

    asyncio.run(run())


def test_a_prompt_s_next_turn_stays_where_its_prefix_is_until_waiting_costs_more_than_computing_it_again() -> None:
    async def run() -> None:
        world = World()
        await world.ask(request("filler"), request("talk"))
        assert world.engines["b"].prompts == ["talk"]
        await world.answer()
        await world.ask(request("talk", prompt_tokens=50))
        assert world.engines["b"].prompts[-1] == "talk"
        for engine in world.engines.values():
            engine.may_answer.clear()
        await world.ask(request("talk", prompt_tokens=60, new_tokens=200), request("talk", prompt_tokens=60))
        assert [len(engine.prompts) for engine in world.engines.values()] == [2, 3]
        await world.answer()

    asyncio.run(run())


@pytest.mark.parametrize("failure", [ConnectionError("reset"), ReplicaLostError("killed")])
def test_when_an_engine_is_lost_its_requests_are_redone_whole_elsewhere_and_it_is_asked_no_more(
    failure: Exception,
) -> None:
    async def run() -> None:
        world = World()
        requests = [request(str(index)) for index in range(4)]
        await world.ask(*requests)
        world.engines["a"].failure = failure
        answers = await world.answer()
        assert [len(one) for one in answers] == [1, 1, 1, 1]
        assert world.engines["b"].asked == [requests[1], requests[3], requests[0], requests[2]]
        await world.ask(request("later"))
        await world.answer()
        assert world.engines["b"].prompts[-1] == "later"
        assert list(world.router.lost) == ["a"]
        metrics = {name: metric.result for name, metric in world.router.take_metrics().items()}
        assert metrics["rollout/requests"] == 5
        assert metrics["rollout/redone_requests"] == 2
        assert metrics["rollout/replicas_lost"] == 1
        assert world.router.take_metrics()["rollout/redone_requests"].result == 0

    asyncio.run(run())


def test_a_request_that_is_redone_waits_for_a_publication_that_began_meanwhile() -> None:
    async def run() -> None:
        world = World()
        await world.ask(request("one"))
        world.engines["a"].failure = ConnectionError("reset")
        world.gate.shut()
        world.engines["a"].may_answer.set()
        await turns(5)
        await world.gate.emptied(1)
        assert world.engines["b"].asked == []
        world.gate.release()
        assert len(await world.answer()) == 1

    asyncio.run(run())


def test_after_a_failed_publication_a_redone_request_is_refused() -> None:
    async def run() -> None:
        world = World()
        await world.ask(request("one"))
        world.engines["a"].failure = ConnectionError("reset")
        world.gate.shut()
        world.gate.refuse(SyncError("no request is served any more"))
        await world.answer()

    with pytest.raises(SyncError, match="no request is served"):
        asyncio.run(run())


def test_when_all_are_lost_the_error_says_what_happened_to_each() -> None:
    async def run() -> None:
        world = World()
        for name, engine in world.engines.items():
            engine.failure = ConnectionError(f"{name} was killed")
        await world.ask(request("one"))
        await world.answer()

    with pytest.raises(ReplicaLostError, match="all are gone: a: a was killed; b: b was killed"):
        asyncio.run(run())


def test_an_error_of_the_request_goes_to_who_asked_and_the_engine_stays() -> None:
    async def run() -> None:
        world = World("a")
        world.engines["a"].failure = RequestRefusedError("too long")
        await world.ask(request("one"))
        with pytest.raises(RequestRefusedError):
            await world.answer()
        world.engines["a"].failure = None
        await world.ask(request("two"))
        assert len(await world.answer()) == 1
        assert world.router.lost == {}

    asyncio.run(run())


def test_an_engine_that_was_started_anew_is_asked_again() -> None:
    async def run() -> None:
        world = World()
        world.engines["a"].failure = ConnectionError("reset")
        await world.ask(request("one"))
        await world.answer()
        fresh = Engine()
        fresh.may_answer.set()
        world.router.admit("a", fresh)
        world.engines["b"].may_answer.clear()
        await world.ask(request("two"), request("three"))
        await world.answer()
        assert len(fresh.asked) == 1
        assert world.router.lost == {}

    asyncio.run(run())


def test_uneven_work_shows_in_the_metrics() -> None:
    async def run() -> None:
        world = World()
        await world.ask(request("group", samples=3), request("one"))
        await world.answer()
        assert world.router.take_metrics()["rollout/replica_imbalance"].result == 9 / 6

    asyncio.run(run())


def test_there_must_be_an_engine() -> None:
    with pytest.raises(ValueError, match="at least one engine"):
        Router({}, LocalGate())


# ------------------------------------------------------------------------------------------- real engines


class Mortal(NativeEngine):
    """Is gone after so many answers, in the middle of the others."""

    answers_left = 1 << 30

    async def generate(self, request: GroupRequest) -> list[Completion]:
        completions = await super().generate(request)
        self.answers_left -= 1
        if self.answers_left < 0:
            raise ConnectionError("its process has ended")
        return completions


def tokens_of(engines: Sequence[NativeEngine]) -> list[list[list[int]]]:
    generator = np.random.default_rng(0)
    requests = [
        make_request(random_ids(generator, 4 + index), 3, prompt_id=f"prompt {index}", max_new_tokens=12)
        for index in range(6)
    ]

    async def run() -> list[list[Completion]]:
        router = Router({str(index): engine for index, engine in enumerate(engines)}, LocalGate())
        return list(await asyncio.gather(*(router.generate(one) for one in requests)))

    return [[one.token_ids.tolist() for one in group] for group in asyncio.run(run())]


def native(num_engines: int) -> list[Mortal]:
    return [Mortal(tiny_model("qwen3"), RolloutConfig()) for _ in range(num_engines)]


def test_tokens_do_not_depend_on_the_number_of_engines_nor_on_losing_one() -> None:
    alone = tokens_of(native(1))
    assert tokens_of(native(2)) == alone
    three = native(3)
    assert tokens_of(three) == alone
    assert all(engine.counters.decoded_tokens > 0 for engine in three)
    three[1].answers_left = 1
    assert tokens_of(three) == alone
