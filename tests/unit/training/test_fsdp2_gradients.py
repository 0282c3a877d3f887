"""The update depends on the batch only: any cut gives the gradients of one sample at a time."""

import pytest
import torch

from strop.algorithms.build import build_algorithm
from strop.config.algorithm import AlgorithmConfig
from strop.config.bundles import BUNDLES, resolve_algorithm
from strop.metrics import values
from strop.protocols import LossInputs, LossOutputs
from strop.training.fsdp2.engine import Fsdp2Engine
from support.tiny import FAMILIES, tiny_groups, tiny_model
from support.training import (
    assert_gradients_close,
    gradients,
    oracle_gradients,
    ratio_loss,
    relative_error,
    tiny_engine,
    tiny_plan,
)

BUDGETS = [1, 13, 30, 1000]


def measured(engine: Fsdp2Engine, max_tokens: int, share_prefix: bool = True) -> tuple[float, dict]:
    metrics = engine.forward_backward(tiny_plan(tiny_groups(), max_tokens, share_prefix), ratio_loss)
    return values(metrics)["update/loss"], gradients(engine)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_packed_gradients_equal_one_sample_at_a_time(family: str, checkpointing: bool) -> None:
    expected_loss, expected = oracle_gradients(tiny_model(family, attn="eager"), tiny_groups(), 0.6, entropy=True)
    engine = tiny_engine(family, temperature=0.6, entropy=True, gradient_checkpointing=checkpointing)
    loss, actual = measured(engine, 30)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert_gradients_close(actual, expected, 1e-5)


@pytest.mark.parametrize("max_tokens", BUDGETS)
def test_any_token_budget_gives_the_same_gradients(max_tokens: int) -> None:
    expected_loss, expected = oracle_gradients(tiny_model("llama", attn="eager"), tiny_groups())
    loss, actual = measured(tiny_engine(), max_tokens)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert_gradients_close(actual, expected, 1e-5)


def test_in_float64_the_agreement_is_closer() -> None:
    _, expected = oracle_gradients(tiny_model("llama", dtype=torch.float64, attn="eager"), tiny_groups())
    _, actual = measured(tiny_engine(dtype=torch.float64), 13)
    assert_gradients_close(actual, expected, 1e-6)


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_the_chunk_of_log_probs_changes_no_gradient(chunk: int) -> None:
    _, expected = measured(tiny_engine(), 1000)
    _, actual = measured(tiny_engine(logprob_chunk_tokens=chunk), 1000)
    assert_gradients_close(actual, expected, 1e-5)


def test_announcing_the_gradient_of_the_loss_changes_nothing_but_the_work() -> None:
    expected_loss, expected = measured(tiny_engine("gemma3", temperature=0.6), 20)
    loss, actual = measured(tiny_engine("gemma3", temperature=0.6, gradient_known=True), 20)
    assert loss == expected_loss
    assert_gradients_close(actual, expected, 1e-5)


@pytest.mark.parametrize("name", sorted(set(BUNDLES) - {"gspo", "gmpo", "sapo", "clip_cov", "kl_cov"}))
def test_the_algorithms_keep_the_gradient_that_they_announce(name: str) -> None:
    algorithm = build_algorithm(resolve_algorithm(AlgorithmConfig(name=name), max_new_tokens=8))
    assert algorithm.needs.on_policy_gradient_known
    both = [tiny_engine(gradient_known=known) for known in (False, True)]
    for engine in both:
        engine.forward_backward(tiny_plan(tiny_groups(), 20), algorithm.loss)
    expected, actual = map(gradients, both)
    assert_gradients_close(actual, expected, 1e-5)


def test_a_wrongly_announced_gradient_is_found() -> None:
    def doubled(inputs: LossInputs) -> LossOutputs:
        return LossOutputs(2 * ratio_loss(inputs).loss)

    with pytest.raises(RuntimeError, match="must be the one that was announced"):
        tiny_engine(gradient_known=True).forward_backward(tiny_plan(tiny_groups()), doubled)


def test_the_announced_gradient_is_not_used_once_old_and_new_log_probs_differ() -> None:
    engines = [tiny_engine(gradient_known=known) for known in (False, True)]
    for engine in engines:
        plan = tiny_plan(tiny_groups(), 20)
        plan = plan.with_field("old_logprobs", [scores.logprobs_N - 0.1 for scores in engine.score(plan)])
        engine.forward_backward(plan, ratio_loss)
    expected, actual = map(gradients, engines)
    assert_gradients_close(actual, expected, 0)


@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_candidates_that_are_the_whole_vocabulary_give_the_gradient_of_the_entropy(chunk: int) -> None:
    def entropy_loss(inputs: LossInputs) -> LossOutputs:
        if inputs.candidate_logprobs_NK is None:
            return LossOutputs((inputs.weights_N * inputs.entropies_N).sum())
        logprobs_NV = inputs.candidate_logprobs_NK
        return LossOutputs(-(inputs.weights_N[:, None] * logprobs_NV.exp() * logprobs_NV).sum())

    plan = tiny_plan(tiny_groups(), 20)
    direct, summed = tiny_engine(entropy=True), tiny_engine(candidates=True, logprob_chunk_tokens=chunk)
    every_id = torch.arange(direct.causal_lm.config.vocab_size)
    ids = [every_id.expand(batch.num_targets, -1) for batch in plan.micro_batches]
    direct.forward_backward(plan, entropy_loss)
    summed.forward_backward(plan.with_field("candidate_ids", ids), entropy_loss)
    assert_gradients_close(gradients(summed), gradients(direct), 1e-5)


def test_a_hybrid_model_is_run_one_row_at_a_time() -> None:
    expected_loss, expected = oracle_gradients(tiny_model("qwen3_next", attn="eager"), tiny_groups())
    engine = tiny_engine("qwen3_next")
    assert not engine.shares_prefixes
    loss, actual = measured(engine, 40, share_prefix=False)
    assert loss == pytest.approx(expected_loss, rel=1e-4)
    assert_gradients_close(actual, expected, 1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_the_first_on_policy_ratio_is_exactly_one(temperature: float) -> None:
    ratios = []

    def loss(inputs: LossInputs) -> LossOutputs:
        ratios.append((inputs.new_logprobs_N - inputs.old_logprobs_N).exp().detach())
        return ratio_loss(inputs)

    tiny_engine(temperature=temperature).forward_backward(tiny_plan(tiny_groups(), 20), loss)
    assert all(bool((ratio == 1).all()) for ratio in ratios)


def test_attached_old_logprobs_are_the_scored_ones_and_differ_after_an_update() -> None:
    engine = tiny_engine(temperature=0.6)
    plan = tiny_plan(tiny_groups(), 20)
    plan = plan.with_field("old_logprobs", [scores.logprobs_N for scores in engine.score(plan)])
    gaps = []

    def loss(inputs: LossInputs) -> LossOutputs:
        gaps.append(float((inputs.new_logprobs_N.detach() - inputs.old_logprobs_N).abs().max()))
        return ratio_loss(inputs)

    engine.forward_backward(plan, loss)
    assert max(gaps) < 1e-6
    engine.optimizer_step()
    gaps.clear()
    engine.forward_backward(plan, loss)
    assert max(gaps) > 1e-3


def test_sequences_are_scored_at_temperature_one() -> None:
    engine = tiny_engine(temperature=0.6)
    sequence = tiny_groups()[0].samples[0].rows[0].token_ids
    logits = tiny_model("llama", attn="eager")(torch.from_numpy(sequence)[None]).logits[0, :-1]
    expected = torch.log_softmax(logits, -1).gather(1, torch.from_numpy(sequence)[1:, None])[:, 0].detach()
    (scored,) = engine.score_tokens([sequence])
    torch.testing.assert_close(torch.from_numpy(scored), expected, rtol=1e-5, atol=1e-5)


def test_the_loss_falls_as_the_gradient_says() -> None:
    """Finite differences of the whole engine in float64: the loss along the gradient has slope |gradient|^2."""
    engine = tiny_engine(dtype=torch.float64)
    plan = tiny_plan(tiny_groups(), 20)

    def reinforce(inputs: LossInputs) -> LossOutputs:
        return LossOutputs(-(inputs.weights_N * inputs.advantages_N * inputs.new_logprobs_N).sum())

    def loss_at(step: float, direction: dict) -> float:
        with torch.no_grad():
            for name, weight in engine.causal_lm.named_parameters():
                weight.add_(direction[name], alpha=step)
        value = values(engine.forward_backward(plan, reinforce))["update/loss"]
        engine.optimizer.clear_gradients()
        return value

    engine.forward_backward(plan, reinforce)
    direction = gradients(engine)
    slope = sum(float(gradient.square().sum()) for gradient in direction.values())
    engine.optimizer.clear_gradients()
    step = 1e-3 / slope**0.5
    behind = loss_at(-step, direction)
    ahead = loss_at(2 * step, direction)
    assert relative_error(torch.tensor((ahead - behind) / (2 * step)), torch.tensor(slope)) < 1e-3
