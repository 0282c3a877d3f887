"""Work is shared out over ranks by its cost: nothing lost, nothing doubled, no rank with much more than the mean."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strop.metrics import values
from strop.records import Group
from strop.training.balance import balance_metrics, plan_over_ranks, share_out
from strop.training.costs import ComputeCosts
from strop.training.plan import plan_micro_batches
from support.tiny import tiny_groups, tiny_model
from support.training import all_keys, uneven_weights

COSTS = ComputeCosts(pair=0.01, target=0.3)


def cost_of(groups: list[Group], keys: list[tuple[int, int]], costs: ComputeCosts = COSTS) -> float:
    """Counted token by token: a prompt once a rank, its other tokens once a sample."""
    total = 0.0
    for group_index in sorted({group for group, _ in keys}):
        samples = [groups[group_index].samples[sample] for group, sample in keys if group == group_index]
        prompts = {tuple(sample.rows[0].token_ids[~sample.rows[0].loss_mask]) for sample in samples}
        (prompt,) = prompts
        total += sum(1 + costs.pair * (place + 1) for place in range(len(prompt)))
        for sample in samples:
            stop = sample.rows[0].num_tokens - 1
            total += sum(1 + costs.pair * (place + 1) for place in range(len(prompt), stop))
            total += costs.target * sample.num_sampled_tokens
    return total


def loads(groups: list[Group], shares: list[list[tuple[int, int]]]) -> list[float]:
    return [cost_of(groups, share) for share in shares]


@given(
    lengths=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 40), st.integers(1, 5)), min_size=1, max_size=6),
    num_ranks=st.integers(1, 5),
    whole=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_every_sample_goes_to_one_rank(lengths: list[tuple[int, int, int]], num_ranks: int, whole: bool) -> None:
    groups = [
        tiny_groups(1, size, seed=index, prompt_tokens=(prompt, prompt), sampled_tokens=(1, sampled))[0]
        for index, (prompt, sampled, size) in enumerate(lengths)
    ]
    shares = share_out(groups, all_keys(groups), num_ranks, COSTS, whole_groups=whole)
    assert len(shares) == num_ranks
    assert sorted(itertools.chain(*shares)) == all_keys(groups)
    if whole:
        owners = [
            {rank for rank, share in enumerate(shares) if any(g == index for g, _ in share)}
            for index in range(len(groups))
        ]
        assert all(len(ranks) == 1 for ranks in owners)
    dearest_sample = max(cost_of(groups, [key]) for key in all_keys(groups))
    if not whole:
        repeated = sum(cost_of(groups, [(index, 0)]) for index in range(len(groups)))
        mean = cost_of(groups, all_keys(groups)) / num_ranks
        assert max(loads(groups, shares)) <= mean + dearest_sample + repeated + 1e-6


def test_the_shares_are_the_same_in_any_order_of_the_samples() -> None:
    groups = tiny_groups(5, 4, seed=3)
    keys = all_keys(groups)
    assert share_out(groups, keys, 4, COSTS) == share_out(groups, keys[::-1], 4, COSTS)


def test_equal_groups_stay_whole() -> None:
    groups = tiny_groups(4, 3, prompt_tokens=(6, 6), sampled_tokens=(5, 5))
    shares = share_out(groups, all_keys(groups), 4, COSTS)
    assert sorted(shares) == [[(group, sample) for sample in range(3)] for group in range(4)]


def test_five_groups_on_four_ranks_do_not_leave_three_waiting() -> None:
    groups = tiny_groups(5, 8, prompt_tokens=(4, 4), sampled_tokens=(20, 20))
    shares = share_out(groups, all_keys(groups), 4, COSTS)
    costs = loads(groups, shares)
    assert max(costs) < 1.1 * sum(costs) / 4


def test_a_group_far_longer_than_the_rest_is_split() -> None:
    groups = tiny_groups(3, 6, prompt_tokens=(4, 4), sampled_tokens=(4, 4))
    groups.append(tiny_groups(1, 6, seed=9, prompt_tokens=(4, 4), sampled_tokens=(90, 90))[0])
    shares = share_out(groups, all_keys(groups), 3, COSTS)
    assert all(any(group == 3 for group, _ in share) for share in shares)
    costs = loads(groups, shares)
    assert max(costs) < 1.1 * sum(costs) / 3


def test_long_rows_count_by_their_square() -> None:
    """One row of 400 tokens against eight of 50: as many tokens, but more to attend to."""
    groups = tiny_groups(1, 1, prompt_tokens=(1, 1), sampled_tokens=(400, 400))
    groups += tiny_groups(8, 1, seed=1, prompt_tokens=(1, 1), sampled_tokens=(50, 50))
    costs = ComputeCosts(pair=0.05)
    long_rank = next(share for share in share_out(groups, all_keys(groups), 2, costs) if (0, 0) in share)
    assert long_rank == [(0, 0)]
    by_tokens = share_out(groups, all_keys(groups), 2, ComputeCosts())
    assert sorted(map(len, by_tokens)) == [1, 8]
    (mixed,) = [share for share in share_out(groups, all_keys(groups), 3, ComputeCosts()) if (0, 0) in share]
    assert mixed == [(0, 0)]


def test_fewer_samples_than_ranks_leave_ranks_without_work() -> None:
    groups = tiny_groups(1, 2)
    plan = plan_over_ranks(groups, all_keys(groups), uneven_weights(groups), num_ranks=4, costs=COSTS, max_tokens=4096)
    parts = [plan.of_rank(rank) for rank in range(4)]
    assert sum(bool(part.micro_batches) for part in parts) <= 2
    assert sum(part.num_targets for part in parts) == plan.num_targets > 0


def test_no_samples_make_an_empty_plan() -> None:
    plan = plan_over_ranks(tiny_groups(), [], {}, num_ranks=3, costs=COSTS, max_tokens=10)
    assert plan.micro_batches == plan.ranks == ()
    assert balance_metrics(plan, 3, COSTS) == {}


def test_one_rank_has_the_plan_of_one_process() -> None:
    groups = tiny_groups()
    arguments = (groups, all_keys(groups), uneven_weights(groups))
    plan = plan_over_ranks(*arguments, num_ranks=1, costs=COSTS, max_tokens=20)
    expected = plan_micro_batches(*arguments, max_tokens=20)
    assert [batch.sample_keys for batch in plan.micro_batches] == [
        batch.sample_keys for batch in expected.micro_batches
    ]
    assert plan.of_rank(0) is plan


def test_a_plan_keeps_the_weights_and_begins_with_the_dearest() -> None:
    groups = tiny_groups(6, 4)
    weights = uneven_weights(groups)
    plan = plan_over_ranks(groups, all_keys(groups), weights, num_ranks=3, costs=COSTS, max_tokens=25)
    assert list(plan.ranks) == sorted(plan.ranks)
    for rank in range(3):
        costs = [COSTS.of_batch(batch) for batch in plan.of_rank(rank).micro_batches]
        assert costs == sorted(costs, reverse=True)
    for batch in plan.micro_batches:
        expected = torch.tensor([weights[batch.sample_keys[index]] for index in batch.sample_ids_N.tolist()])
        torch.testing.assert_close(batch.fields_N["weights"], expected)
    doubled = plan.with_field("twice", [2 * batch.fields_N["weights"] for batch in plan.micro_batches])
    assert doubled.ranks == plan.ranks


def test_imbalance_is_what_is_waited_for() -> None:
    groups = tiny_groups(3, 1, prompt_tokens=(10, 10), sampled_tokens=(11, 11))
    weights = uneven_weights(groups)
    even = plan_over_ranks(groups, all_keys(groups), weights, num_ranks=3, costs=COSTS, max_tokens=100)
    assert values(balance_metrics(even, 3, COSTS)) == pytest.approx(
        {"update/rank_imbalance": 1.0, "update/lockstep_imbalance": 1.0}
    )
    two = plan_over_ranks(groups, all_keys(groups), weights, num_ranks=2, costs=COSTS, max_tokens=1)
    assert values(balance_metrics(two, 2, COSTS)) == pytest.approx(
        {"update/rank_imbalance": 4 / 3, "update/lockstep_imbalance": 4 / 3}
    )


def test_costs_of_a_batch_are_those_of_its_rows() -> None:
    groups = tiny_groups(1, 3)
    (batch,) = plan_micro_batches(groups, all_keys(groups), uneven_weights(groups), max_tokens=4096).micro_batches
    assert COSTS.of_batch(batch) == pytest.approx(cost_of(groups, all_keys(groups)))


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "mamba"])
def test_costs_are_counted_from_the_shapes(family: str) -> None:
    costs = ComputeCosts.of_model(tiny_model(family))
    match family:
        case "llama":
            matrices = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64)
            assert costs.pair == pytest.approx(2 * 32 * 2 / matrices)
        case "qwen3_moe":
            matrices = 2 * (2 * 32 * 32 + 2 * 32 * 16 + 2 * 3 * 32 * 16 + 4 * 32)
            assert costs.pair == pytest.approx(2 * 32 * 2 / matrices)
        case "mamba":
            assert costs.pair == 0
    assert costs.target > 0


def test_no_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="num_ranks must be at least 1, got 0"):
        share_out(tiny_groups(), [], 0, COSTS)
