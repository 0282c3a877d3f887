"""The value loss, its weights and the explained variance are those of slow loops in float64, cut as one likes."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from torch import Tensor

from strop.algorithms.value_loss import value_loss, value_metrics, value_weights
from strop.metrics import Metrics, merge, values
from support.tiny import tiny_groups

CLIP = 0.2


def random_fields(num_targets: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[Tensor, dict]:
    """New values, and the fields of a mini-batch with weights that differ."""
    generator = torch.Generator().manual_seed(seed)
    new_N, old_N, returns_N = (torch.randn(num_targets, generator=generator, dtype=torch.float64) for _ in range(3))
    weights_N = torch.rand(num_targets, generator=generator, dtype=torch.float64)
    # A third of the values stay near what they were, so that the clip leaves them alone.
    new_N[::3] = old_N[::3] + 0.1 * new_N[::3]
    fields = {"values": old_N, "returns": returns_N, "weights": weights_N / weights_N.sum()}
    return new_N.to(dtype), {name: field.to(dtype) for name, field in fields.items()}


def slow_loss(new_N: Tensor, fields_N: dict[str, Tensor]) -> tuple[float, float, list[float]]:
    """The loss, the share of the weight where the clip rules, and the gradient by each value."""
    loss, clipped, slopes = 0.0, 0.0, []
    rows = zip(*(field.double().tolist() for field in (new_N, *(fields_N[name] for name in fields_N))), strict=True)
    for new, old, target, weight in rows:
        bound = min(max(new, old - CLIP), old + CLIP)
        free_error, bound_error = (new - target) ** 2, (bound - target) ** 2
        loss += weight * 0.5 * max(free_error, bound_error)
        clipped += weight * (bound_error > free_error)
        slopes.append(0.0 if bound_error > free_error else weight * (new - target))
    return loss, clipped / float(fields_N["weights"].double().sum()), slopes


def cut(new_N: Tensor, fields_N: dict[str, Tensor], bounds: list[int]) -> list[tuple[Tensor, dict]]:
    places = [slice(start, stop) for start, stop in zip([0, *bounds], [*bounds, len(new_N)], strict=True)]
    return [(new_N[place], {name: field[place] for name, field in fields_N.items()}) for place in places]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("num_targets", [1, 2, 7, 10_000])
def test_the_loss_and_its_gradient_are_the_formula(num_targets: int, dtype: torch.dtype, tolerance: float) -> None:
    new_N, fields_N = random_fields(num_targets, dtype)
    new_N.requires_grad_()
    result = value_loss(new_N, fields_N, CLIP)
    result.loss.backward()
    loss, clipped, slopes = slow_loss(new_N.detach(), fields_N)
    assert float(result.loss.detach()) == pytest.approx(loss, rel=tolerance)
    found = values(result.metrics)
    assert found["value/loss"] == pytest.approx(loss, rel=tolerance)
    assert found["value/clipped_share"] == pytest.approx(clipped, rel=tolerance, abs=tolerance)
    np.testing.assert_allclose(new_N.grad.double(), slopes, rtol=tolerance, atol=tolerance / num_targets)


def test_the_gradient_is_that_of_finite_differences() -> None:
    new_N, fields_N = random_fields(60)
    new_N.requires_grad_()
    assert torch.autograd.gradcheck(lambda given_N: value_loss(given_N, fields_N, CLIP).loss, new_N)


@pytest.mark.parametrize("bounds", [[], [1], [3, 4, 20], list(range(1, 30))])
def test_metrics_of_parts_are_those_of_the_whole(bounds: list[int]) -> None:
    new_N, fields_N = random_fields(30)
    loss, clipped, _ = slow_loss(new_N, fields_N)
    merged = values(merge(value_loss(*part, CLIP).metrics for part in cut(new_N, fields_N, bounds)))
    assert merged["value/loss"] == pytest.approx(loss, rel=1e-10)
    assert merged["value/clipped_share"] == pytest.approx(clipped, rel=1e-10)


def test_a_value_that_stands_where_it_stood_learns_as_without_a_clip() -> None:
    _, fields_N = random_fields(20)
    new_N = fields_N["values"].clone().requires_grad_()
    result = value_loss(new_N, fields_N, 1e-9)
    result.loss.backward()
    torch.testing.assert_close(new_N.grad, fields_N["weights"] * (new_N.detach() - fields_N["returns"]))
    assert values(result.metrics)["value/clipped_share"] == 0


def slow_explained(fields_N: dict[str, Tensor]) -> float:
    old_N, returns_N, weights_N = (fields_N[name].tolist() for name in ("values", "returns", "weights"))
    total = sum(weights_N)

    def variance(observed: list[float]) -> float:
        average = sum(w * x for w, x in zip(weights_N, observed, strict=True)) / total
        return sum(w * (x - average) ** 2 for w, x in zip(weights_N, observed, strict=True)) / total

    errors = [target - old for target, old in zip(returns_N, old_N, strict=True)]
    return 1 - variance(errors) / variance(returns_N)


def test_the_explained_variance_is_one_less_the_share_that_is_left() -> None:
    _, fields_N = random_fields(50)
    fields_N["values"] = fields_N["returns"] + 0.5 * fields_N["values"] + 3
    found = values(value_metrics(fields_N, lambda sums: sums))
    assert found["value/explained_variance"] == pytest.approx(slow_explained(fields_N), rel=1e-10)
    assert found["value/mean"] == pytest.approx(float((fields_N["weights"] * fields_N["values"]).sum()), rel=1e-10)
    fields_N["values"] = fields_N["returns"] - 2
    assert values(value_metrics(fields_N, lambda sums: sums))["value/explained_variance"] == pytest.approx(1)


def in_two_processes(shares: list[dict[str, Tensor]]) -> list[Metrics]:
    """What each of two processes says, which add up their sums as an all-reduce does."""
    barrier, given = Barrier(2), [torch.empty(0)] * 2

    def work(rank: int) -> Metrics:
        def total(sums: Tensor) -> Tensor:
            given[rank] = sums
            barrier.wait(timeout=10)
            both = given[0] + given[1]
            barrier.wait(timeout=10)
            return both

        return value_metrics(shares[rank], total)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(work, range(2)))


@pytest.mark.parametrize("bound", [0, 1, 20, 50])
def test_the_explained_variance_of_two_processes_is_that_of_all_their_targets(bound: int) -> None:
    new_N, fields_N = random_fields(50)
    merged = values(merge(in_two_processes([share for _, share in cut(new_N, fields_N, [bound])])))
    assert merged["value/explained_variance"] == pytest.approx(slow_explained(fields_N), rel=1e-10)
    assert merged["value/mean"] == pytest.approx(float((fields_N["weights"] * fields_N["values"]).sum()), rel=1e-10)


@pytest.mark.parametrize("returned", [0.0, 1.0, -0.3])
def test_constant_returns_have_no_variance_to_explain(returned: float) -> None:
    _, fields_N = random_fields(999, torch.float32)
    fields_N["returns"] = torch.full((999,), returned)
    assert values(value_metrics(fields_N, lambda sums: sums))["value/explained_variance"] is None


def test_nothing_that_bears_loss_says_nothing() -> None:
    empty = torch.empty(0)
    fields_N = {"values": empty, "returns": empty, "weights": empty}
    assert value_metrics(fields_N, lambda sums: sums) == {}
    assert float(value_loss(empty, fields_N, CLIP).loss) == 0


def test_every_sampled_token_weighs_the_same_and_invalid_samples_are_in_no_denominator() -> None:
    groups = tiny_groups(num_groups=2, group_size=3)
    valid = [(0, 0), (0, 2), (1, 0), (1, 1)]
    weights = value_weights(groups, valid)
    counts = {key: groups[key[0]].samples[key[1]].num_sampled_tokens for key in valid}
    assert weights == dict.fromkeys(valid, 1 / sum(counts.values()))
    assert sum(weights[key] * counts[key] for key in valid) == pytest.approx(1)
    assert value_weights(groups, []) == {}
