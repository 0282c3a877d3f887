"""A critic's values and gradients are those of one sequence at a time, however the batch is packed and cut."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from strop.config.model import LoraConfig
from strop.errors import CheckpointError
from strop.metrics import values
from strop.models.lora import attach_adapters
from strop.records import MicroBatchPlan
from strop.records.packing import with_target_fields
from strop.training.errors import TooManySkippedUpdates
from strop.training.fsdp2.critic import Fsdp2Critic
from support.critic import (
    critic_gradients,
    critic_weights,
    oracle_loss,
    plain_values,
    tiny_critic,
    value_plan,
    valued_groups,
)
from support.tiny import FAMILIES, HYBRID_FAMILIES, tiny_groups, tiny_model
from support.training import assert_gradients_close, relative_error

BUDGETS = [1, 13, 30, 1000]


def measured(critic: Fsdp2Critic, max_tokens: int, share_prefix: bool = True) -> tuple[dict, dict]:
    metrics = critic.forward_backward(value_plan(valued_groups(), max_tokens, share_prefix=share_prefix))
    return values(metrics), critic_gradients(critic)


def expected_gradients(critic: Fsdp2Critic, family: str, dtype: torch.dtype = torch.float32) -> tuple[float, dict]:
    """The oracle's loss and gradients, under the names of the critic; those of its head by the chain rule."""
    model = tiny_model(family, dtype=dtype, attn="eager")
    decoder = model.get_decoder()
    loss = oracle_loss(model, valued_groups())
    loss.backward()
    named = {f"decoder.{name}": weight.grad for name, weight in decoder.named_parameters() if weight.grad is not None}
    return float(loss.detach()), named


def update(critic: Fsdp2Critic, plan: MicroBatchPlan) -> None:
    critic.forward_backward(plan)
    assert critic.optimizer_step().applied


def assert_same(actual: dict, expected: dict) -> None:
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


# ------------------------------------------------------------------------------------------ values


def test_a_new_critic_says_zero_of_every_state() -> None:
    for found_N in tiny_critic(head=False).values(value_plan(tiny_groups(), 20)):
        assert bool((found_N == 0).all())
        assert found_N.dtype == torch.float32


@pytest.mark.parametrize("family", FAMILIES + HYBRID_FAMILIES)
def test_values_are_those_of_one_sequence_at_a_time(family: str) -> None:
    critic, groups = tiny_critic(family), tiny_groups()
    plan = value_plan(groups, 30, share_prefix=critic.shares_prefixes)
    found = with_target_fields(groups, plan.micro_batches, critic.values(plan), "values")
    model = tiny_model(family, attn="eager")
    for group in found:
        for sample in group.samples:
            (row,) = sample.rows
            expected = plain_values(model, torch.from_numpy(row.token_ids)).detach()
            expected[~torch.from_numpy(row.loss_mask[1:])] = 0
            tolerance = 1e-5 if critic.shares_prefixes else 1e-4
            torch.testing.assert_close(
                torch.from_numpy(row.fields["values"][1:]), expected, rtol=tolerance, atol=tolerance
            )


@pytest.mark.parametrize("max_tokens", BUDGETS)
def test_shared_prefixes_and_cuts_change_no_value(max_tokens: int) -> None:
    critic, groups = tiny_critic(), tiny_groups()
    found = []
    for plan in (value_plan(groups, max_tokens), value_plan(groups, 1000, share_prefix=False)):
        valued = with_target_fields(groups, plan.micro_batches, critic.values(plan), "values")
        found.append([row.fields["values"] for group in valued for sample in group.samples for row in sample.rows])
    for shared, alone in zip(*found, strict=True):
        torch.testing.assert_close(torch.from_numpy(shared), torch.from_numpy(alone), rtol=1e-5, atol=1e-5)


def test_values_keep_a_precision_that_bfloat16_does_not_have() -> None:
    critic = tiny_critic(dtype=torch.bfloat16)
    (found_N,) = critic.values(value_plan(tiny_groups()))
    assert found_N.dtype == torch.float32
    assert not torch.equal(found_N, found_N.bfloat16().float())


# ------------------------------------------------------------------------------------------ gradients


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_gradients_equal_one_token_at_a_time(family: str, checkpointing: bool) -> None:
    critic = tiny_critic(family, gradient_checkpointing=checkpointing)
    expected_loss, expected = expected_gradients(critic, family)
    found, actual = measured(critic, 30)
    assert found["value/loss"] == pytest.approx(expected_loss, rel=1e-5)
    assert actual.pop("head.weight").any()
    assert actual.pop("head.bias").any()
    assert_gradients_close(actual, expected, 1e-5)


@pytest.mark.parametrize("max_tokens", BUDGETS)
def test_any_token_budget_gives_the_same_gradients_and_metrics(max_tokens: int) -> None:
    expected_metrics, expected = measured(tiny_critic(), 4096, share_prefix=False)
    found, actual = measured(tiny_critic(), max_tokens)
    assert found == pytest.approx(expected_metrics, rel=1e-5)
    assert found["value/clipped_share"] > 0.1
    assert_gradients_close(actual, expected, 1e-5)


def test_in_float64_the_agreement_is_closer() -> None:
    critic = tiny_critic(dtype=torch.float64)
    _, expected = expected_gradients(critic, "llama", torch.float64)
    _, actual = measured(critic, 13)
    assert_gradients_close({name: actual[name] for name in expected}, expected, 1e-6)


def test_a_hybrid_model_learns_one_row_at_a_time() -> None:
    critic = tiny_critic("qwen3_next")
    _, expected = expected_gradients(critic, "qwen3_next")
    _, actual = measured(critic, 40, share_prefix=False)
    assert_gradients_close({name: actual[name] for name in expected}, expected, 1e-4)


def test_every_gradient_is_that_of_finite_differences() -> None:
    """On a model of two layers in float64: the loss along each parameter's own gradient has slope |gradient|^2."""
    critic = tiny_critic(dtype=torch.float64)
    plan = value_plan(valued_groups(), 20)

    def loss() -> float:
        found = values(critic.forward_backward(plan))["value/loss"]
        critic.optimizer.clear_gradients()
        assert found is not None
        return found

    critic.forward_backward(plan)
    directions = critic_gradients(critic)
    critic.optimizer.clear_gradients()
    assert len(directions) == len(dict(critic.module.named_parameters()))
    for name, weight in critic.module.named_parameters():
        slope = float(directions[name].square().sum())
        step = 1e-4 / slope**0.5
        sides = []
        for move in (-step, 2 * step):
            with torch.no_grad():
                weight.add_(directions[name], alpha=move)
            sides.append(loss())
        with torch.no_grad():
            weight.sub_(directions[name], alpha=step)
        found = torch.tensor((sides[1] - sides[0]) / (2 * step))
        assert relative_error(found, torch.tensor(slope)) < 1e-3, name


# ------------------------------------------------------------------------------------------ learning


@pytest.mark.parametrize("adapters", [False, True])
def test_it_learns_constant_returns(adapters: bool) -> None:
    model = tiny_model("llama")
    if adapters:
        pytest.importorskip("peft")
        attach_adapters(model, LoraConfig(rank=2, alpha=4.0), seed=0)
    critic = tiny_critic(model=model, head=False, learning_rate=3e-3)
    plan = constant_plan(critic)
    losses = []
    for _ in range(40):
        losses.append(values(critic.forward_backward(plan))["value/loss"])
        assert critic.optimizer_step().applied
        plan = constant_plan(critic)
    assert losses[0] == pytest.approx(0.5 * 0.7**2)
    assert losses[-1] < 0.05 * losses[0]
    for found_N in critic.values(plan):
        assert (found_N - 0.7).abs().max() < 0.3


def constant_plan(critic: Fsdp2Critic) -> MicroBatchPlan:
    plan = value_plan(tiny_groups(), 20)
    plan = plan.with_field("values", critic.values(plan))
    return plan.with_field("returns", [torch.full((batch.num_targets,), 0.7) for batch in plan.micro_batches])


def test_updates_of_one_step_pull_a_value_no_further_than_the_clip() -> None:
    critic = tiny_critic(head=False, learning_rate=3e-4)
    plan = constant_plan(critic)
    for _ in range(60):
        update(critic, plan)
    reached = torch.cat(critic.values(plan))
    assert 0.2 < float(reached.mean()) < 0.4, "the clip is 0.2, and AdamW's momentum carries a little beyond"
    assert values(critic.forward_backward(plan))["value/clipped_share"] == 1


def test_the_policy_waits_for_so_many_applied_updates(tmp_path: Path) -> None:
    critic = tiny_critic(warmup_updates=2, max_skipped_updates=9)
    plan = value_plan(valued_groups())
    seen = []
    for returned in (1.0, math.nan, 1.0, 1.0):
        seen.append(critic.is_warming_up)
        targets = [torch.full((batch.num_targets,), returned) for batch in plan.micro_batches]
        critic.forward_backward(plan.with_field("returns", targets))
        critic.optimizer_step()
    assert seen == [True, True, True, False]
    critic.save(tmp_path)
    resumed = tiny_critic(warmup_updates=2)
    assert resumed.is_warming_up
    resumed.load(tmp_path)
    assert not resumed.is_warming_up
    assert not tiny_critic().is_warming_up


def test_the_learning_rate_takes_the_course_of_the_policys() -> None:
    course = {"schedule": "linear", "schedule_updates": 2}
    critic = tiny_critic(learning_rate=1e-2, **course, minimum_learning_rate=5e-7)
    plan = value_plan(valued_groups())
    rates = []
    for _ in range(3):
        critic.forward_backward(plan)
        rates.append(critic.optimizer_step().learning_rate)
    assert rates == pytest.approx([1e-2, 0.75e-2, 0.5e-2]), "the policy's falls from 1e-6 to half of it"


# ------------------------------------------------------------------------------------------ bad input


def test_a_return_that_is_not_finite_skips_the_update_and_names_the_sample() -> None:
    critic = tiny_critic(max_skipped_updates=2)
    groups = valued_groups()
    sample = groups[0].samples[1]
    row = sample.rows[0]
    bad = row.with_fields(returns=row.fields["returns"] * math.nan)
    broken = [groups[0].with_samples([groups[0].samples[0], replace(sample, rows=(bad,)), groups[0].samples[2]])]
    before = critic_weights(critic)
    critic.forward_backward(value_plan(broken, 1))
    report = critic.optimizer_step()
    assert (report.applied, report.suspects) == (False, ((0, 1),))
    assert_same(critic_weights(critic), before)
    critic.forward_backward(value_plan(broken, 1))
    with pytest.raises(TooManySkippedUpdates, match=r"lower critic\.learning_rate"):
        critic.optimizer_step()


def test_nothing_to_learn_from_is_a_skip_with_its_own_reason() -> None:
    critic = tiny_critic(max_skipped_updates=1)
    before = critic_weights(critic)
    metrics = critic.forward_backward(MicroBatchPlan(()))
    report = critic.optimizer_step()
    assert metrics == {}
    assert (report.applied, report.reason) == (False, "no target bore loss")
    assert critic.values(MicroBatchPlan(())) == []
    assert_same(critic_weights(critic), before)


def test_samples_of_any_length_are_learned_from() -> None:
    critic = tiny_critic()
    groups = [*valued_groups(group_size=1, sampled_tokens=(1, 1)), *valued_groups(1, sampled_tokens=(450, 450))]
    found = values(critic.forward_backward(value_plan(groups, 64)))
    assert all(value is not None and math.isfinite(value) for value in found.values())
    assert critic.optimizer_step().applied


@pytest.mark.parametrize("name", ["values", "returns", "weights"])
def test_a_micro_batch_without_a_field_is_refused_by_name(name: str) -> None:
    (batch,) = value_plan(valued_groups()).micro_batches
    del batch.fields_N[name]
    with pytest.raises(ValueError, match=rf"must carry \['{name}'\]"):
        tiny_critic().forward_backward(MicroBatchPlan((batch,)))


# ------------------------------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_restored_critic_goes_on_bit_equal(tmp_path: Path, dtype: torch.dtype) -> None:
    plans = [value_plan(valued_groups(seed), 20) for seed in range(4)]
    straight = tiny_critic(dtype=dtype, weight_decay=0.1)
    for plan in plans[:2]:
        update(straight, plan)
    straight.save(tmp_path)
    resumed = tiny_critic(dtype=dtype, weight_decay=0.1)
    update(resumed, plans[3])
    resumed.load(tmp_path)
    for plan in plans[2:]:
        for critic in (straight, resumed):
            update(critic, plan)
    assert_same(critic_weights(resumed), critic_weights(straight))
    assert all(torch.equal(*pair) for pair in zip(resumed.values(plans[0]), straight.values(plans[0]), strict=True))


def test_a_bfloat16_critic_that_begins_from_another_learns_from_there_on(tmp_path: Path) -> None:
    first = tiny_critic(model=tiny_model("llama", seed=1, dtype=torch.bfloat16))
    first.save(tmp_path)
    second = tiny_critic(dtype=torch.bfloat16, learning_rate=1e-6)
    second.begin_from(tmp_path)
    update(second, value_plan(valued_groups()))
    for name, weight in critic_weights(second).items():
        assert relative_error(weight, critic_weights(first)[name]) < 1e-2, name


def test_a_checkpoint_holds_decoder_and_value_head_and_no_language_model_head(tmp_path: Path) -> None:
    critic = tiny_critic("qwen3")
    critic.save(tmp_path)
    assert not [name for name in critic_weights(critic) if "lm_head" in name]
    with pytest.raises(CheckpointError, match="must hold the parameters that are trained"):
        tiny_critic("gemma3").load(tmp_path)


def test_offload_and_onload_change_nothing() -> None:
    critic, undisturbed = tiny_critic(), tiny_critic()
    plan = value_plan(valued_groups())
    for one in (critic, undisturbed):
        update(one, plan)
    critic.offload()
    critic.onload()
    for one in (critic, undisturbed):
        update(one, plan)
    assert_same(critic_weights(critic), critic_weights(undisturbed))
