"""What every `TrainEngine` must do, whatever is behind it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from strop.errors import CheckpointError
from strop.protocols import LossInputs, LossOutputs, TrainEngine
from strop.records import Group, MicroBatchPlan
from support.tiny import tiny_groups, tiny_model
from support.training import ratio_loss, run_update, tiny_engine, tiny_plan

ENGINES: dict[str, Callable[..., TrainEngine]] = {"fsdp2": tiny_engine}


@pytest.fixture(params=ENGINES)
def make_engine(request: pytest.FixtureRequest) -> Callable[..., TrainEngine]:
    return ENGINES[request.param]


def weights_of(engine: TrainEngine) -> dict[str, torch.Tensor]:
    return {chunk.name: chunk.tensor.clone() for chunk in engine.export_weights()}


def plain_distributions(plan: MicroBatchPlan, groups: Sequence[Group], temperature: float) -> list[torch.Tensor]:
    """All log-probs [N, V] at each target's place, one sample at a time through the plain model."""
    model = tiny_model("llama", attn="eager")
    found = []
    for batch in plan.micro_batches:
        rows = [groups[group].samples[sample].rows[0] for group, sample in batch.sample_keys]
        parts = []
        for row in rows:
            logits = model(torch.from_numpy(row.token_ids)[None]).logits[0, :-1].detach()
            parts.append(torch.log_softmax(logits / temperature, -1)[row.loss_mask[1:]])
        found.append(torch.cat(parts))
    return found


def test_scores_are_log_probs_of_the_targets_in_their_order(make_engine: Callable[..., TrainEngine]) -> None:
    engine = make_engine(temperature=0.6)
    groups = tiny_groups()
    plan = tiny_plan(groups, 20)
    parts = zip(plan.micro_batches, engine.score(plan), plain_distributions(plan, groups, 0.6), strict=True)
    for batch, scores, every in parts:
        assert not scores.logprobs_N.requires_grad
        assert scores.top_ids_NK is scores.top_logprobs_NK is scores.collisions_N is None
        expected = every.gather(1, batch.target_ids_N[:, None])[:, 0]
        torch.testing.assert_close(scores.logprobs_N, expected, rtol=1e-5, atol=1e-5)


def test_scores_name_the_most_likely_tokens_and_collisions_where_asked(
    make_engine: Callable[..., TrainEngine],
) -> None:
    engine = make_engine(temperature=0.6)
    groups = tiny_groups()
    plan = tiny_plan(groups, 20)
    all_scores = engine.score(plan, top_k=3, collisions=True)
    for scores, every in zip(all_scores, plain_distributions(plan, groups, 0.6), strict=True):
        expected, ids = every.topk(3)
        assert torch.equal(scores.top_ids_NK, ids)
        torch.testing.assert_close(scores.top_logprobs_NK, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(scores.collisions_N, every.exp().square().sum(-1), rtol=1e-5, atol=1e-7)


def test_a_loss_sees_every_field_and_log_probs_at_the_candidates(make_engine: Callable[..., TrainEngine]) -> None:
    engine = make_engine(temperature=0.6, candidates=True)
    groups = tiny_groups()
    plan = tiny_plan(groups, 20)
    ids = [scores.top_ids_NK for scores in engine.score(plan, top_k=2)]
    plan = plan.with_field("candidate_ids", ids)
    seen = []

    def loss(inputs: LossInputs) -> LossOutputs:
        seen.append(inputs)
        return LossOutputs((inputs.weights_N[:, None] * inputs.candidate_logprobs_NK.exp()).sum())

    report = run_update(engine, plan, loss)
    assert report.applied
    assert report.gradient_norm > 0
    parts = zip(plan.micro_batches, seen, plain_distributions(plan, groups, 0.6), strict=True)
    for batch, inputs, every in parts:
        assert inputs.fields_N.keys() == batch.fields_N.keys()
        assert torch.equal(inputs.fields_N["candidate_ids"], batch.fields_N["candidate_ids"])
        expected = every.gather(1, batch.fields_N["candidate_ids"])
        torch.testing.assert_close(inputs.candidate_logprobs_NK.detach(), expected, rtol=1e-5, atol=1e-5)


def test_candidates_that_the_batch_does_not_carry_are_missed_by_name(make_engine: Callable[..., TrainEngine]) -> None:
    with pytest.raises(ValueError, match=r"must carry .*candidate_ids"):
        make_engine(candidates=True).forward_backward(tiny_plan(tiny_groups()), ratio_loss)


def test_calls_add_their_gradients_until_the_step(make_engine: Callable[..., TrainEngine]) -> None:
    whole, halves = make_engine(), make_engine()
    plan = tiny_plan(tiny_groups(), 20)
    whole.forward_backward(plan, ratio_loss)
    for batch in plan.micro_batches:
        halves.forward_backward(type(plan)((batch,)), ratio_loss)
    first, second = whole.optimizer_step(), halves.optimizer_step()
    assert first.applied
    assert second.gradient_norm == pytest.approx(first.gradient_norm, rel=1e-6)


def test_a_step_without_a_gradient_is_skipped_with_a_reason(make_engine: Callable[..., TrainEngine]) -> None:
    report = make_engine().optimizer_step()
    assert not report.applied
    assert report.reason


def test_exported_weights_load_into_a_plain_model_and_carry_the_version(
    make_engine: Callable[..., TrainEngine],
) -> None:
    engine = make_engine()
    run_update(engine, tiny_plan(tiny_groups()))
    engine.set_version(3)
    chunks = list(engine.export_weights())
    assert {chunk.version for chunk in chunks} == {3}
    names = [chunk.name for chunk in chunks]
    assert len(set(names)) == len(names)
    assert "lm_head.weight" not in names, "a tied head is the embedding"
    model = tiny_model("llama", seed=9, attn="eager")
    model.load_state_dict({chunk.name: chunk.tensor for chunk in chunks}, strict=False)
    row = tiny_groups()[0].samples[0].rows[0]
    token_ids = torch.from_numpy(row.token_ids)
    plain = torch.log_softmax(model(token_ids[None]).logits[0, :-1].detach(), -1).gather(1, token_ids[1:, None])[:, 0]
    (scored,) = engine.score_tokens([row.token_ids])
    torch.testing.assert_close(torch.from_numpy(scored), plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_engine_goes_on_bit_equal(
    make_engine: Callable[..., TrainEngine], tmp_path: Path, dtype: torch.dtype
) -> None:
    settings = {"schedule": "cosine", "schedule_updates": 6, "warmup_updates": 1, "weight_decay": 0.1, "dtype": dtype}
    plans = [tiny_plan(tiny_groups(seed=seed), 20) for seed in range(4)]
    straight = make_engine(**settings)
    for plan in plans[:2]:
        run_update(straight, plan)
    straight.set_version(2)
    straight.save(tmp_path)
    resumed = make_engine(**settings)
    run_update(resumed, plans[3])
    resumed.load(tmp_path)
    assert next(iter(resumed.export_weights())).version == 2
    for plan in plans[2:]:
        first, second = run_update(straight, plan), run_update(resumed, plan)
        assert first == second
    expected, actual = weights_of(straight), weights_of(resumed)
    assert expected.keys() == actual.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def test_a_checkpoint_of_another_model_is_refused(make_engine: Callable[..., TrainEngine], tmp_path: Path) -> None:
    make_engine("llama").save(tmp_path)
    with pytest.raises(CheckpointError, match="must hold the parameters that are trained"):
        make_engine("qwen2").load(tmp_path)


def test_offload_and_onload_change_nothing(make_engine: Callable[..., TrainEngine]) -> None:
    engine, undisturbed = make_engine(), make_engine()
    for disturbed in (engine, undisturbed):
        run_update(disturbed, tiny_plan(tiny_groups()))
    engine.offload()
    engine.onload()
    for disturbed in (engine, undisturbed):
        run_update(disturbed, tiny_plan(tiny_groups()))
    expected, actual = weights_of(undisturbed), weights_of(engine)
    assert all(torch.equal(actual[name], expected[name]) for name in expected)
