"""Which passes over a batch are made: only those that the algorithm needs."""

from typing import Any

import pytest

from strop.trainers.step import prepare_update, update
from support.update_half import resolved, sampled_groups, step_settings, update_roles


@pytest.mark.parametrize(
    ("correction", "has_pass"),
    [({}, True), ({"policies": 2}, False), ({"policies": 2, "token_band": [0.5, 2.0]}, False)],
)
def test_old_log_probs_are_scored_unless_the_sampler_stands_for_the_old_policy(
    correction: dict[str, Any], has_pass: bool
) -> None:
    settings = resolved(correction=correction)
    roles = update_roles(settings)
    step = step_settings(epochs=2)
    prepared = prepare_update(roles, step, sampled_groups())
    fields = [batch.fields_N for plan in prepared.plans for batch in plan.micro_batches]
    assert all(("old_logprobs" in found) == has_pass for found in fields)
    updated = update(roles, step, prepared)
    assert [report.applied for report in updated.reports] == [True, True]
