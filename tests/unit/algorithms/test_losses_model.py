"""The gradient of every policy loss by the weights of a transformer, against finite differences."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, GPT2Config, PreTrainedModel

from strop.algorithms.losses.table import LOSSES
from strop.algorithms.policy_gradient import PolicyGradient
from strop.config.bundles import BUNDLES, ResolvedAlgorithm
from strop.protocols import LossInputs

PROMPT, LENGTH, SAMPLES = 3, 9, 4
NUM_TARGETS = SAMPLES * (LENGTH - PROMPT)
SETTINGS: dict[str, ResolvedAlgorithm] = {
    **{bundle.loss: replace(bundle, dual_clip=3.0) for bundle in BUNDLES.values()},
    "gspo": replace(BUNDLES["gspo"], clip_low=0.05, clip_high=0.05),
    "dppo_kl": replace(BUNDLES["dppo"], loss="dppo_kl", clip_low=0.01, clip_high=0.01),
}


def two_layers() -> PreTrainedModel:
    """A model that computes in float64 throughout: the norms of llama and its kin go through float32."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=16, initializer_range=0.3)
        return AutoModelForCausalLM.from_config(config, dtype=torch.float64, attn_implementation="sdpa").eval()


class Policy:
    """Two layers in float64, a batch of random tokens, and one direction in the space of all weights."""

    def __init__(self) -> None:
        self.model = two_layers()
        generator = torch.Generator().manual_seed(0)
        self.ids = torch.randint(8, self.model.config.vocab_size, (SAMPLES, LENGTH), generator=generator)
        self.weights = [weight for weight in self.model.parameters() if weight.requires_grad]
        self.direction = [torch.randn(w.shape, generator=generator, dtype=torch.float64) for w in self.weights]

    def logprobs(self) -> Tensor:
        """Log-probs of the tokens behind the prompts, [N]."""
        logits = self.model(input_ids=self.ids).logits[:, PROMPT - 1 : -1]
        return logits.log_softmax(-1).gather(-1, self.ids[:, PROMPT:, None]).flatten()

    @torch.no_grad()
    def logprobs_moved(self, step: float) -> Tensor:
        """The same with the weights moved along the direction, and moved back."""
        originals = [weight.clone() for weight in self.weights]
        for weight, direction in zip(self.weights, self.direction, strict=True):
            weight += step * direction
        moved = self.logprobs()
        for weight, original in zip(self.weights, originals, strict=True):
            weight.copy_(original)
        return moved


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy()


def inputs_at(new: Tensor, old: Tensor) -> LossInputs:
    ids = torch.arange(NUM_TARGETS) // (LENGTH - PROMPT)
    return LossInputs(
        new_logprobs_N=new,
        old_logprobs_N=old,
        advantages_N=torch.tensor([1.3, -0.7, 0.4, -1.1], dtype=torch.float64)[ids],
        weights_N=torch.tensor([0.1, 0.2, 0.05, 0.3], dtype=torch.float64)[ids],
        sample_ids_N=ids,
        num_samples=SAMPLES,
        rollout_logprobs_N=old,
        fields_N={"chosen": (torch.arange(NUM_TARGETS) % 3 == 0).double()},
    )


def objective(settings: ResolvedAlgorithm, new: Tensor, at: Tensor, old: Tensor) -> float:
    """The loss as a plain function of log-probs; CISPO's weights stay those at `at`."""
    if settings.loss != "cispo":
        return PolicyGradient(settings).loss(inputs_at(new, old)).loss.item()
    inputs = inputs_at(new, old)
    weights = (at - old).exp().clamp(1 - settings.clip_low, 1 + settings.clip_high)
    return -(inputs.weights_N * weights * inputs.advantages_N * new).sum().item()


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_of_a_loss_by_the_weights_is_its_slope(name: str, policy: Policy) -> None:
    settings, step = SETTINGS[name], 1e-6
    old = policy.logprobs().detach() + 0.2 * torch.sin(torch.arange(NUM_TARGETS, dtype=torch.float64))
    new = policy.logprobs()
    gradients = torch.autograd.grad(PolicyGradient(settings).loss(inputs_at(new, old)).loss, policy.weights)
    found = sum(float((g * d).sum()) for g, d in zip(gradients, policy.direction, strict=True))
    up, down = (objective(settings, policy.logprobs_moved(sign * step), new.detach(), old) for sign in (1, -1))
    assert abs(found) > 1e-3
    assert found == pytest.approx((up - down) / (2 * step), rel=1e-5)
