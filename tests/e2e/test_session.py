"""The verbs of a session, in a loop that is not strop's."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from strop.errors import ConfigError
from strop.metrics import values
from strop.protocols import LossInputs, LossOutputs
from strop.records import Group
from strop.trainers.session import Session, open_session
from support.runs import held_out, tiny_run
from support.training import assert_gradients_close, gradients


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with open_session(tiny_run(tmp_path)) as opened:
        yield opened


def judged_groups(session: Session, num_prompts: int = 2) -> list[Group]:
    return session.advantages(session.reward(session.sample(session.prompts(num_prompts))))


def uniform_weights(groups: list[Group]) -> dict[tuple[int, int], float]:
    return {(g, s): 0.1 for g, group in enumerate(groups) for s in range(len(group.samples))}


def test_a_loss_of_ones_own_may_have_any_gradient(session: Session) -> None:
    groups = judged_groups(session)

    def twice(inputs: LossInputs) -> LossOutputs:
        return LossOutputs(2 * session.run.roles.algorithm.loss(inputs).loss)

    session.forward_backward(groups)
    once = gradients(session.run.policy)
    session.run.policy.optimizer.clear_gradients()
    session.forward_backward(groups, loss=twice)
    doubled = {name: gradient / 2 for name, gradient in gradients(session.run.policy).items()}
    assert_gradients_close(doubled, once, 1e-5)


def test_the_ratio_is_one_before_an_update_and_moves_after_it(session: Session) -> None:
    groups = judged_groups(session)
    ratios: list[torch.Tensor] = []

    def spy(inputs: LossInputs) -> LossOutputs:
        ratios.append((inputs.new_logprobs_N - inputs.old_logprobs_N).detach().exp())
        return session.run.roles.algorithm.loss(inputs)

    for _ in range(2):
        session.forward_backward(groups, loss=spy, weights=uniform_weights(groups))
        assert session.optimizer_step().applied
    session.publish()
    session.forward_backward(groups, loss=spy, weights=uniform_weights(groups))
    assert torch.equal(ratios[0], torch.ones_like(ratios[0]))
    assert (ratios[1] - 1).abs().max() > 1e-3
    assert (ratios[2] - 1).abs().max() > 1e-3


def test_fresh_groups_after_a_publication_are_on_policy_again(session: Session) -> None:
    session.forward_backward(judged_groups(session))
    session.optimizer_step()
    metrics = session.publish()
    groups = judged_groups(session)
    assert {int(v) for g in groups for s in g.samples for v in s.rows[0].policy_versions if v >= 0} == {1}
    assert values(session.forward_backward(groups))["update/ratio"] == 1
    assert metrics["sync/logprob_difference"].value < 1e-4


def test_groups_without_advantages_are_refused(session: Session) -> None:
    groups = session.sample(session.prompts(1))
    with pytest.raises(ConfigError, match=r"must have advantages, got none\n.*session\.advantages"):
        session.forward_backward(groups)


def test_evaluating_without_held_out_prompts_is_refused(session: Session) -> None:
    with pytest.raises(ConfigError, match="evaluation"):
        session.evaluate()


def test_evaluating_takes_nothing_from_the_training_prompts(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, evaluation=held_out(tmp_path, samples=2))
    with open_session(config) as session:
        before = session.run.stream.state()
        (evaluation,) = session.evaluate()
        assert session.run.stream.state() == before
    assert [len(group.samples) for group in evaluation.groups] == [2, 2, 2]


def test_a_session_can_be_opened_and_used_inside_a_running_event_loop(tmp_path: Path) -> None:
    async def notebook() -> int:
        with open_session(tiny_run(tmp_path)) as session:
            return len(judged_groups(session))

    assert asyncio.run(notebook()) == 2
