"""A reference says of the targets what its own model says, whatever became of the policy."""

from collections.abc import Callable

import pytest
import torch

from strop.config.model import LoraConfig
from strop.config.training import TrainingConfig
from strop.devices.cpu import CpuDevice
from strop.models.lora import attach_adapters
from strop.protocols import PlanScorer
from strop.training.fsdp2.reference import AdapterFreeReference, FrozenReference
from support.tiny import tiny_groups, tiny_model
from support.training import run_update, tiny_engine, tiny_plan


def frozen_reference() -> PlanScorer:
    config = TrainingConfig(logprob_chunk_tokens=7)
    return FrozenReference(tiny_model("llama"), config, temperature=0.6, device=CpuDevice())


def adapter_free_reference() -> PlanScorer:
    """The base of a policy whose adapters were trained."""
    pytest.importorskip("peft")
    model = tiny_model("llama")
    attach_adapters(model, LoraConfig(rank=2, alpha=4.0), seed=0)
    engine = tiny_engine(model=model, temperature=0.6)
    for _ in range(2):
        run_update(engine, tiny_plan(tiny_groups(), 20))
    return AdapterFreeReference(engine)


@pytest.mark.parametrize("make_reference", [frozen_reference, adapter_free_reference])
def test_it_scores_all_that_is_asked_as_an_untrained_policy_does(make_reference: Callable[[], PlanScorer]) -> None:
    plan = tiny_plan(tiny_groups(), 20)
    expected = tiny_engine(temperature=0.6).score(plan, top_k=3, collisions=True)
    reference = make_reference()
    for asked, plain, scores in zip(
        reference.score(plan, top_k=3, collisions=True), reference.score(plan), expected, strict=True
    ):
        assert torch.equal(asked.top_ids_NK, scores.top_ids_NK)
        for name in ("logprobs_N", "top_logprobs_NK", "collisions_N"):
            torch.testing.assert_close(getattr(asked, name), getattr(scores, name), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(plain.logprobs_N, scores.logprobs_N, rtol=1e-5, atol=1e-6)
        assert plain.top_ids_NK is plain.top_logprobs_NK is plain.collisions_N is None
