"""An update is AdamW on a clipped gradient, or is skipped with its reason and the weights bit-unchanged."""

import math

import pytest
import torch

from strop.config.training import TrainingConfig
from strop.errors import ModelError
from strop.protocols import LossInputs, LossOutputs
from strop.records import MicroBatchPlan, PackedBatch
from strop.training.errors import TooManySkippedUpdates
from strop.training.fsdp2.engine import Fsdp2Engine
from strop.training.fsdp2.optimizer import ParameterOptimizer
from support.tiny import tiny_groups, tiny_model
from support.training import gradients, parameters, ratio_loss, run_update, tiny_engine, tiny_plan


def assert_same(actual: dict, expected: dict) -> None:
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[name], expected[name]) for name in expected)


def broken_plan(max_tokens: int = 20) -> MicroBatchPlan:
    """A plan whose sample (0, 1) has a NaN advantage."""
    batches = []
    for batch in tiny_plan(tiny_groups(), max_tokens).micro_batches:
        advantages = batch.fields_N["advantages"].clone()
        for sample_id, key in enumerate(batch.sample_keys):
            if key == (0, 1):
                advantages[batch.sample_ids_N == sample_id] = math.nan
        batches.append(batch.with_fields(advantages=advantages))
    return MicroBatchPlan(tuple(batches))


def adamw_oracle(engine: Fsdp2Engine, steps: int, settings: dict) -> dict:
    """AdamW written out in float64 over gradients that the engine gives; the gradient is clipped before."""
    weights = {name: value.double() for name, value in parameters(engine).items()}
    means = {name: torch.zeros_like(value) for name, value in weights.items()}
    squares = {name: torch.zeros_like(value) for name, value in weights.items()}
    twin = tiny_engine(dtype=torch.float64)
    for step in range(1, steps + 1):
        with torch.no_grad():
            for name, weight in twin.causal_lm.named_parameters():
                weight.copy_(weights[name])
        twin.forward_backward(tiny_plan(tiny_groups()), ratio_loss)
        found = gradients(twin)
        twin.optimizer.clear_gradients()
        norm = math.sqrt(sum(float(gradient.square().sum()) for gradient in found.values()))
        scale = min(1.0, settings["max_gradient_norm"] / norm)
        for name, gradient in found.items():
            gradient = gradient * scale
            means[name] = 0.9 * means[name] + 0.1 * gradient
            squares[name] = 0.99 * squares[name] + 0.01 * gradient**2
            decay = settings["weight_decay"] if weights[name].ndim >= 2 else 0.0
            mean, square = means[name] / (1 - 0.9**step), squares[name] / (1 - 0.99**step)
            weights[name] -= settings["learning_rate"] * (decay * weights[name] + mean / (square.sqrt() + 1e-8))
    return weights


def test_three_updates_follow_adamw_with_clipping_and_decay_on_matrices_only() -> None:
    settings = {"learning_rate": 1e-3, "weight_decay": 0.1, "beta2": 0.99, "max_gradient_norm": 0.5}
    engine = tiny_engine(dtype=torch.float64, **settings)
    expected = adamw_oracle(engine, 3, settings)
    for _ in range(3):
        report = run_update(engine, tiny_plan(tiny_groups(), 20))
        assert report.applied
        assert report.gradient_norm > 0.5
    for name, value in parameters(engine).items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-7)


def test_the_learning_rate_counts_applied_updates() -> None:
    engine = tiny_engine(learning_rate=1.0e-3, warmup_updates=4, max_skipped_updates=9)
    rates = [run_update(engine, plan).learning_rate for plan in (tiny_plan(tiny_groups()), broken_plan())]
    rates.append(run_update(engine, tiny_plan(tiny_groups())).learning_rate)
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.5e-3])


def test_gradients_are_freed_after_a_step() -> None:
    engine = tiny_engine()
    run_update(engine, tiny_plan(tiny_groups()))
    assert gradients(engine) == {}


def test_a_non_finite_loss_skips_the_update_and_names_the_samples_of_its_micro_batch() -> None:
    engine = tiny_engine()
    before = parameters(engine)
    report = run_update(engine, broken_plan(max_tokens=1))
    assert not report.applied
    assert report.suspects == ((0, 1),)
    assert "not finite" in report.reason
    assert_same(parameters(engine), before)


def test_a_gradient_that_is_not_finite_though_the_loss_is_skips_the_update() -> None:
    def sharp(inputs: LossInputs) -> LossOutputs:
        # The root of 0 has slope infinity.
        zero_N = inputs.new_logprobs_N - inputs.old_logprobs_N
        return LossOutputs((inputs.weights_N * zero_N.sqrt()).sum())

    engine = tiny_engine()
    before = parameters(engine)
    report = run_update(engine, tiny_plan(tiny_groups(num_groups=1)), sharp)
    assert not report.applied
    assert set(report.suspects) == {(0, 0), (0, 1), (0, 2)}
    assert_same(parameters(engine), before)


def test_an_overflow_below_the_log_probs_skips_and_suspects_everyone() -> None:
    engine = tiny_engine()
    engine.forward_backward(tiny_plan(tiny_groups()), ratio_loss)
    engine.causal_lm.model.norm.weight.grad[0] = math.inf
    before = parameters(engine)
    report = engine.optimizer_step()
    assert not report.applied
    assert len(report.suspects) == 6
    assert_same(parameters(engine), before)


def test_a_skipped_update_leaves_no_trace_in_the_next_one() -> None:
    clean, skipping = tiny_engine(), tiny_engine()
    run_update(skipping, broken_plan())
    for engine in (clean, skipping):
        run_update(engine, tiny_plan(tiny_groups()))
    assert_same(parameters(skipping), parameters(clean))


def test_skips_in_a_row_end_the_run_and_a_good_update_between_them_does_not() -> None:
    engine = tiny_engine(max_skipped_updates=2)
    good, bad = tiny_plan(tiny_groups()), broken_plan(max_tokens=1)
    for plan in (bad, good, bad):
        run_update(engine, plan)
    with pytest.raises(TooManySkippedUpdates, match=r"got 2 updates in a row .* group 0 sample 1") as caught:
        run_update(engine, bad)
    assert caught.value.suspects == ((0, 1),)
    assert gradients(engine) == {}


def test_nothing_to_learn_from_is_a_skip_with_its_own_reason() -> None:
    engine = tiny_engine(max_skipped_updates=1)
    before = parameters(engine)
    batches = tiny_plan(tiny_groups()).micro_batches
    weightless = MicroBatchPlan(tuple(batch.with_fields(weights=torch.zeros(batch.num_targets)) for batch in batches))
    for plan in (MicroBatchPlan(()), weightless, MicroBatchPlan((without_targets(),))):
        metrics = engine.forward_backward(plan, ratio_loss)
        report = engine.optimizer_step()
        assert metrics["update/loss"].result == 0
        assert (report.applied, report.reason) == (False, "no target bore loss")
        assert report.gradient_norm == 0
    assert_same(parameters(engine), before)


def without_targets() -> PackedBatch:
    """Three tokens that run through the model and predict nothing."""
    (batch,) = tiny_plan(tiny_groups(num_groups=1, group_size=1)).micro_batches
    empty = torch.empty(0, dtype=torch.int64)
    fields = {name: values[:0] for name, values in batch.fields_N.items()}
    return PackedBatch(
        batch.token_ids_T, batch.ordinals_T, batch.rope_positions_T, batch.segments, empty, empty, empty, (), fields
    )


def test_a_micro_batch_without_weights_is_refused_by_name() -> None:
    (batch,) = tiny_plan(tiny_groups(num_groups=1)).micro_batches
    del batch.fields_N["weights"]
    with pytest.raises(ValueError, match=r"must carry \['weights'\]"):
        tiny_engine().forward_backward(MicroBatchPlan((batch,)), ratio_loss)


def test_bfloat16_weights_learn_below_their_own_precision() -> None:
    engine = tiny_engine(dtype=torch.bfloat16, learning_rate=1e-6)
    before = parameters(engine)
    masters = {name: master.clone() for name, master in engine.optimizer.masters.items()}
    for _ in range(3):
        assert run_update(engine, tiny_plan(tiny_groups())).applied
    unchanged = torch.cat([(value == before[name]).flatten() for name, value in parameters(engine).items()])
    assert unchanged.double().mean() > 0.9, "at this rate most bfloat16 weights round to themselves"
    for name, master in engine.optimizer.masters.items():
        assert master.dtype == torch.float32
        assert (master - masters[name]).abs().max() > 1e-6


def test_frozen_parameters_are_neither_trained_nor_given_a_gradient() -> None:
    model = tiny_model("llama")
    model.model.embed_tokens.weight.requires_grad_(False)
    engine = tiny_engine(model=model)
    before = parameters(engine)
    engine.forward_backward(tiny_plan(tiny_groups()), ratio_loss)
    assert "model.embed_tokens.weight" not in gradients(engine)
    engine.optimizer_step()
    after = parameters(engine)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == before.keys() - {"model.embed_tokens.weight"}


def test_dropout_is_refused_by_name() -> None:
    model = tiny_model("llama")
    model.config.attention_dropout = 0.1
    with pytest.raises(ModelError, match=r"attention_dropout=0\.1"):
        tiny_engine(model=model)


def test_a_micro_batch_over_the_budget_is_counted() -> None:
    metrics = tiny_engine(micro_batch_tokens=4).forward_backward(tiny_plan(tiny_groups(), 4), ratio_loss)
    assert metrics["update/micro_batches"].result == 6
    assert metrics["update/micro_batches_over_budget"].result > 0


def test_the_norm_of_a_large_gradient_is_exact() -> None:
    weight = torch.nn.Parameter(torch.zeros(4000, 4000))
    weight.grad = 1e-3 * torch.randn(4000, 4000, generator=torch.Generator().manual_seed(0))
    norm = ParameterOptimizer({"weight": weight}, TrainingConfig()).gradient_norm()
    assert norm == pytest.approx(float(weight.grad.double().norm()), rel=1e-6)
