"""Each offline loss against its formula, written as slow loops in float64, and against finite differences."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.algorithms.offline.dpo import Dpo
from strop.algorithms.offline.ipo import Ipo
from strop.algorithms.offline.kto import Kto
from strop.algorithms.offline.method import OfflineMethod
from strop.algorithms.offline.sft import Sft
from strop.protocols import LossInputs
from strop.records import FinishState, Group, MicroBatchPlan, Prompt, Sample
from strop.trainers.offline.passes import OfflineRoles, evaluate_batch, plan_batch, reference_point, with_margin
from strop.training.fsdp2.reference import FrozenReference
from support.tiny import random_ids, tiny_model, tiny_row
from support.training import gradients, tiny_engine

Answers = list[tuple[list[float], list[float]]]
"""(new, reference) log-probs of each answer's tokens."""
METHODS: dict[str, OfflineMethod] = {
    "sft": Sft(),
    "dpo": Dpo(0.3),
    "dpo_smooth": Dpo(0.3, 0.2),
    "ipo": Ipo(0.2),
    "kto": Kto(0.4, 1.5, 0.5),
}


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


def log_sigmoid(value: float) -> float:
    return -math.log1p(math.exp(-value)) if value >= 0 else value - math.log1p(math.exp(value))


def ratio(answer: tuple[list[float], list[float]]) -> float:
    total = 0.0
    for new, reference in zip(*answer, strict=True):
        total += new - reference
    return total


def sft_loss(answers: Answers) -> float:
    tokens = [value for new, _ in answers for value in new]
    return -sum(tokens) / len(tokens)


def dpo_loss(answers: Answers, beta: float, smoothing: float = 0.0) -> float:
    losses = []
    for chosen, rejected in zip(answers[0::2], answers[1::2], strict=True):
        margin = beta * (ratio(chosen) - ratio(rejected))
        losses.append(-(1 - smoothing) * log_sigmoid(margin) - smoothing * log_sigmoid(-margin))
    return sum(losses) / len(losses)


def ipo_loss(answers: Answers, beta: float) -> float:
    losses = []
    for chosen, rejected in zip(answers[0::2], answers[1::2], strict=True):
        margin = ratio(chosen) / len(chosen[0]) - ratio(rejected) / len(rejected[0])
        losses.append((margin - 1 / (2 * beta)) ** 2)
    return sum(losses) / len(losses)


def kto_loss(
    answers: Answers, labels: Sequence[bool], point: float, beta: float, weights: tuple[float, float]
) -> float:
    losses = []
    for answer, is_desirable in zip(answers, labels, strict=True):
        if is_desirable:
            losses.append(weights[0] * (1 - sigmoid(beta * (ratio(answer) - point))))
        else:
            losses.append(weights[1] * (1 - sigmoid(beta * (point - ratio(answer)))))
    return sum(losses) / len(losses)


def inputs_of(
    answers: Answers,
    weights: Sequence[float],
    labels: Sequence[bool] = (),
    point: float = 0.0,
    dtype: torch.dtype = torch.float64,
) -> LossInputs:
    counts = torch.tensor([len(new) for new, _ in answers])
    new = torch.tensor([value for one, _ in answers for value in one], dtype=dtype, requires_grad=True)
    each = torch.tensor(weights, dtype=dtype).repeat_interleave(counts)
    fields = {"reference_point": torch.full_like(each, point)}
    if labels:
        fields["labels"] = torch.tensor([float(label) for label in labels], dtype=dtype).repeat_interleave(counts)
    return LossInputs(
        new_logprobs_N=new,
        old_logprobs_N=new.detach(),
        advantages_N=torch.ones_like(each),
        weights_N=each,
        sample_ids_N=torch.arange(len(answers)).repeat_interleave(counts),
        num_samples=len(answers),
        rollout_logprobs_N=torch.zeros_like(each),
        reference_logprobs_N=torch.tensor([value for _, one in answers for value in one], dtype=dtype),
        fields_N=fields,
    )


def random_answers(seed: int, num_answers: int) -> Answers:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 30, num_answers)
    return [(list(-rng.exponential(2, n)), list(-rng.exponential(2, n))) for n in lengths]


TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5}
every_dtype = pytest.mark.parametrize("dtype", TOLERANCES)
LABELS = [True, False, True, True, False, False]


@every_dtype
@pytest.mark.parametrize("seed", range(5))
def test_every_loss_is_its_formula(seed: int, dtype: torch.dtype) -> None:
    answers = random_answers(seed, 6)
    if dtype == torch.float32:
        answers = [([float(np.float32(x)) for x in new], [float(np.float32(x)) for x in ref]) for new, ref in answers]
    num_tokens = sum(len(new) for new, _ in answers)
    point = 1.7
    cases = {
        "sft": (inputs_of(answers, [1 / num_tokens] * 6, dtype=dtype), sft_loss(answers)),
        "dpo": (inputs_of(answers, [1 / 3] * 6, dtype=dtype), dpo_loss(answers, 0.3)),
        "dpo_smooth": (inputs_of(answers, [1 / 3] * 6, dtype=dtype), dpo_loss(answers, 0.3, 0.2)),
        "ipo": (inputs_of(answers, [1 / 3] * 6, dtype=dtype), ipo_loss(answers, 0.2)),
        "kto": (
            inputs_of(answers, [1 / 6] * 6, LABELS, point, dtype=dtype),
            kto_loss(answers, LABELS, point, 0.4, (1.5, 0.5)),
        ),
    }
    for name, (inputs, expected) in cases.items():
        found = METHODS[name].loss(inputs)
        assert float(found.loss.detach()) == pytest.approx(expected, rel=TOLERANCES[dtype]), name
        assert found.metrics["offline/loss"].result == pytest.approx(expected, rel=TOLERANCES[dtype]), name


@pytest.mark.parametrize("name", METHODS)
def test_every_gradient_is_the_finite_difference(name: str) -> None:
    answers = random_answers(3, 6)
    inputs = inputs_of(answers, [1 / 6] * 6, LABELS, 0.9)
    assert torch.autograd.gradcheck(lambda new: METHODS[name].loss(_with_new(inputs, new)).loss, inputs.new_logprobs_N)


def _with_new(inputs: LossInputs, new: torch.Tensor) -> LossInputs:
    return LossInputs(**{**inputs.__dict__, "new_logprobs_N": new})


@settings(max_examples=50, deadline=None)
@given(st.floats(-1e4, 1e4), st.sampled_from(["dpo", "dpo_smooth", "ipo", "kto"]))
def test_losses_and_gradients_of_extreme_ratios_are_finite(total: float, name: str) -> None:
    answers: Answers = [([total], [0.0]), ([-total], [0.0])]
    inputs = inputs_of(answers, [1.0, 1.0], [True, False])
    loss = METHODS[name].loss(inputs).loss
    (gradient,) = torch.autograd.grad(loss, inputs.new_logprobs_N)
    assert bool(loss.isfinite())
    assert bool(gradient.isfinite().all())


def test_rewards_margin_and_accuracy_are_those_of_the_pairs() -> None:
    answers: Answers = [([-1.0], [-3.0]), ([-2.0], [-1.0]), ([-5.0, -1.0], [-1.0, -1.0]), ([-1.0], [-1.0])]
    metrics = Dpo(0.5).loss(inputs_of(answers, [0.5] * 4)).metrics
    assert metrics["rewards/chosen"].result == pytest.approx((1.0 - 2.0) / 2)
    assert metrics["rewards/rejected"].result == pytest.approx((-0.5 + 0.0) / 2)
    assert metrics["rewards/margin"].result == pytest.approx((1.5 - 2.0) / 2)
    assert metrics["rewards/accuracy"].result == 0.5


def test_half_a_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="even number of samples, got 3"):
        Dpo(0.1).loss(inputs_of(random_answers(0, 3), [1.0] * 3))


def test_the_margin_of_answers_with_one_label_has_no_value() -> None:
    metrics = Kto(0.1).loss(inputs_of(random_answers(0, 2), [0.5] * 2, [True, True])).metrics
    assert with_margin(metrics)["rewards/margin"].result is None
    mixed = Kto(0.1).loss(inputs_of([([-1.0], [-3.0]), ([-2.0], [-1.0])], [0.5] * 2, [True, False])).metrics
    assert with_margin(mixed)["rewards/margin"].result == pytest.approx(0.1 * (2.0 - -1.0))


# ------------------------------------------------------------------------------ through a model of two layers


def batch(num_groups: int, answers: int, label: bool = False) -> list[Group]:
    """Prompts of 20 tokens, each with answers of other lengths."""
    rng = np.random.default_rng(7)
    groups = []
    for g in range(num_groups):
        prompt = random_ids(rng, 20)
        rows = [tiny_row(rng, 20, int(rng.integers(1, 9)), prompt) for _ in range(answers)]
        rows = [replace(row, advantages=row.loss_mask.astype(np.float32)) for row in rows]
        reward = float(g % 2) if label else None
        samples = tuple(Sample(s, (row,), FinishState.STOPPED, reward) for s, row in enumerate(rows))
        groups.append(Group(Prompt(f"p{g}", 0, prompt, (), ""), samples))
    return groups


def roles(name: str, max_tokens: int = 4096, policy_seed: int = 0, reference_seed: int = 1) -> OfflineRoles:
    """A policy of two layers in float64, and another model as its reference."""
    method = METHODS[name]
    engine = tiny_engine(
        model=tiny_model("llama", policy_seed, torch.float64),
        gradient_known=method.needs.known_gradient,
        micro_batch_tokens=max_tokens,
    )
    reference = FrozenReference(
        tiny_model("llama", reference_seed, torch.float64), engine.config, temperature=1.0, device=engine.device
    )
    return OfflineRoles(method, engine, reference, 64)


def groups_for(name: str) -> list[Group]:
    return batch(5, 2 if name in ("dpo", "dpo_smooth", "ipo") else 1, label=name == "kto")


def loss_of(found: OfflineRoles, plan: MicroBatchPlan) -> float:
    return float(found.policy.forward_backward(plan, found.method.loss)["update/loss"].value)


@pytest.mark.parametrize("name", METHODS)
def test_the_gradient_of_a_model_is_the_finite_difference(name: str) -> None:
    found = roles(name)
    plan = plan_batch(found, groups_for(name))
    loss_of(found, plan)
    grads = gradients(found.policy)
    named = dict(found.policy.causal_lm.named_parameters())
    norm = math.sqrt(sum(float((value**2).sum()) for value in grads.values()))

    def moved(by: float) -> float:
        """The loss a step along the gradient, whose slope is the gradient's norm."""
        with torch.no_grad():
            for key, value in grads.items():
                named[key].add_(by / norm * value)
        return loss_of(found, plan)

    step = 5e-4  # norms of the model round to float32
    ahead, behind = moved(step), moved(-2 * step)
    assert (ahead - behind) / (2 * step) == pytest.approx(norm, rel=1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_no_cut_into_micro_batches_changes_loss_or_gradient(name: str) -> None:
    results = []
    for max_tokens in (4096, 70, 1):
        found = roles(name, max_tokens)
        plan = plan_batch(found, groups_for(name))
        results.append((len(plan.micro_batches), loss_of(found, plan), gradients(found.policy)))
    counts = [count for count, _, _ in results]
    assert counts == sorted(counts)
    assert counts[0] == 1
    assert counts[-1] == 5
    for _, loss, grads in results[1:]:
        assert loss == pytest.approx(results[0][1], rel=1e-12)
        for key, value in grads.items():
            torch.testing.assert_close(value, results[0][2][key], rtol=1e-9, atol=1e-12)


def test_the_reference_point_is_the_mean_ratio_of_each_prompt_with_the_answer_before() -> None:
    found, groups = roles("kto"), groups_for("kto")
    model, reference = (tiny_model("llama", seed, torch.float64, attn="eager") for seed in (0, 1))

    def logprob(lm: torch.nn.Module, prompt: np.ndarray, answer: np.ndarray) -> float:
        ids = torch.from_numpy(np.concatenate([prompt, answer]))
        with torch.no_grad():
            scores = torch.log_softmax(lm(ids[None], use_cache=False).logits[0], -1)
        return sum(float(scores[place - 1, ids[place]]) for place in range(len(prompt), len(ids)))

    answers = [group.samples[0].rows[0].token_ids[20:] for group in groups]
    total = 0.0
    for index, group in enumerate(groups):
        prompt, other = group.prompt.token_ids, answers[index - 1]
        total += logprob(model, prompt, other) - logprob(reference, prompt, other)
    expected = max(0.0, total / len(groups))
    assert reference_point(found, groups) == pytest.approx(expected, rel=1e-5)
    swapped = roles("kto", policy_seed=1, reference_seed=0)
    assert reference_point(swapped, groups) == pytest.approx(max(0.0, -total / len(groups)), rel=1e-5)
    assert total != 0
    assert reference_point(found, groups[:1]) == 0.0


def test_a_mismatched_answer_is_cut_to_the_model() -> None:
    found, groups = roles("kto"), groups_for("kto")
    short = OfflineRoles(found.method, found.policy, found.reference, 21)
    assert math.isfinite(reference_point(short, groups))


@pytest.mark.parametrize("name", METHODS)
def test_the_held_out_loss_is_that_of_training(name: str) -> None:
    found = roles(name, 70)
    groups = groups_for(name)
    evaluated = evaluate_batch(found, groups)["offline/loss"].result
    assert evaluated == pytest.approx(loss_of(found, plan_batch(found, groups)), rel=1e-6)


def test_one_token_and_ten_thousand_tokens_weigh_as_the_formula_says() -> None:
    answers: Answers = [([-1.0], [-2.0]), ([-0.5] * 10_000, [-0.6] * 10_000)]
    weight = 1 / 10_001
    assert float(Sft().loss(inputs_of(answers, [weight] * 2)).loss.detach()) == pytest.approx(
        sft_loss(answers), rel=1e-10
    )
    assert float(Ipo(0.2).loss(inputs_of(answers, [1.0] * 2)).loss.detach()) == pytest.approx(
        ipo_loss(answers, 0.2), rel=1e-10
    )
    assert float(Dpo(0.1).loss(inputs_of(answers, [1.0] * 2)).loss.detach()) == pytest.approx(
        dpo_loss(answers, 0.1), rel=1e-10
    )
