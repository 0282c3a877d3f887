"""Every seam of the house, in one file. This file is the architecture.

Each protocol has one to a handful of methods, written for the person who implements the next one, and one
contract test suite in `tests/contract` that runs on every implementation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from strop.metrics import Metrics
from strop.records import (
    Completion,
    Continuation,
    Group,
    GroupRequest,
    Message,
    MicroBatchPlan,
    Prompt,
    RewardPart,
    Sample,
    WeightChunk,
    WeightReceipt,
)

# --------------------------------------------------------------------------------------------- devices


class Device(Protocol):
    """A kind of accelerator. The only code that may say `torch.cuda` or `torch.npu` is behind this."""

    name: str

    @property
    def torch_device(self) -> torch.device:
        """The device that tensors of this process live on."""

    def synchronize(self) -> None:
        """Waits until all work queued on the device is done."""

    def empty_cache(self) -> None:
        """Gives unused memory blocks back to the system."""

    def peak_memory_bytes(self) -> int:
        """Peak memory of this process on the device since it started (resident set size on a CPU)."""

    @property
    def collective_backend(self) -> str:
        """The torch.distributed backend of this device: gloo, nccl, hccl."""


# --------------------------------------------------------------------------------------------- scoring


class Scorer(Protocol):
    """Gives log-probs of tokens: reference model, teacher, and the probe of the weight-sync proof."""

    async def score(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        """Scores whole sequences, without any cache, at temperature 1.

        Entry i has len(token_ids[i]) - 1 values: the log-prob of token 1, 2, ... given those before it.
        """


# --------------------------------------------------------------------------------------------- rollout


class Sampler(Protocol):
    """Completes prompts: a rollout engine, or the router in front of several."""

    async def generate(self, request: GroupRequest) -> list[Completion]:
        """Completes the prompt once per stream. Order follows `request.streams`.

        A sample that cannot be finished has `finish` FAILED or ABORTED and keeps its tokens so far.
        """


class RolloutEngine(Sampler, Scorer, Protocol):
    """Samples completions from a copy of the policy that it owns.

    One event loop drives an engine: all calls come from it. `generate` may be called many times
    concurrently; the engine batches across calls.
    """

    async def interrupt(self) -> None:
        """Ends every running and waiting generation at once: each returns its tokens so far as ABORTED."""

    async def pause(self) -> None:
        """Stops between two tokens; requests stay in the engine and nothing is sampled until `resume`."""

    async def resume(self) -> None:
        """Goes on after `pause`."""

    async def sleep(self, *, drop_weights: bool = False) -> None:
        """Gives the memory of caches back, and that of weights where asked; interrupt open requests before."""

    async def wake(self) -> None:
        """Serves again; where `sleep` dropped weights, a full set must be received before anything is sampled."""

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        """Takes one full set of weights, drops every cache that depends on them, and reports what it holds.

        Raises ValueError naming the weights that were unknown, doubled, missing or of another shape.
        """


# --------------------------------------------------------------------------------------------- training


@dataclass(frozen=True)
class LossInputs:
    """What a loss sees of one micro-batch; N targets. Masks and weights arrive ready."""

    new_logprobs_N: torch.Tensor
    """Of the policy that is being trained, with gradient."""
    old_logprobs_N: torch.Tensor
    """Of the policy before the step, no gradient; on the first on-policy update these are
    `new_logprobs_N.detach()`, so that the ratio is exactly 1."""
    advantages_N: torch.Tensor
    weights_N: torch.Tensor
    """Aggregation weights: the loss is `(weights_N * losses_N).sum()`."""
    sample_ids_N: torch.Tensor
    """Which sample of the micro-batch; a sample is never split between micro-batches."""
    num_samples: int
    rollout_logprobs_N: torch.Tensor
    reference_logprobs_N: torch.Tensor | None = None
    entropies_N: torch.Tensor | None = None
    candidate_logprobs_NK: torch.Tensor | None = None
    """Of the policy that is being trained, with gradient, at the batch's `candidate_ids`; where `needs.candidates`."""
    fields_N: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Every target-aligned field that the batch carries, [N] or [N, K]."""


@dataclass(frozen=True)
class LossOutputs:
    """The scalar to differentiate, and what is worth knowing about it."""

    loss: torch.Tensor
    metrics: Metrics = field(default_factory=dict)


class LossFunction(Protocol):
    """A pure function from one record to another: no config look-up, no collectives, no device sync."""

    def __call__(self, inputs: LossInputs) -> LossOutputs:
        """Computes the loss of one micro-batch."""


@dataclass(frozen=True)
class UpdateReport:
    """What an optimizer update did."""

    gradient_norm: float
    """Global norm before clipping."""
    learning_rate: float
    applied: bool
    """False where the update was skipped: non-finite gradient, or nothing bore loss."""
    reason: str = ""
    """Why it was skipped."""
    suspects: tuple[tuple[int, int], ...] = ()
    """(group, sample) keys of the micro-batches whose loss or log-probs were not finite."""


@dataclass(frozen=True)
class Scores:
    """What one micro-batch's targets score; on the CPU, at the rollout temperature, without gradient."""

    logprobs_N: torch.Tensor
    top_ids_NK: torch.Tensor | None = None
    """The K most likely tokens at each target's place, most likely first; where asked for."""
    top_logprobs_NK: torch.Tensor | None = None
    """Their log-probs, normalised over the whole vocabulary."""
    collisions_N: torch.Tensor | None = None
    """Sum of the squared probabilities of the distribution at each target's place; where asked for."""


class PlanScorer(Protocol):
    """Scores a packed mini-batch without gradient: the policy itself, a frozen reference or a teacher."""

    def score(self, plan: MicroBatchPlan, *, top_k: int = 0, collisions: bool = False) -> list[Scores]:
        """Scores the targets at the rollout temperature, one record a micro-batch."""


class Critic(Protocol):
    """Says what the state before each target is worth; trained beside the policy."""

    def values(self, plan: MicroBatchPlan) -> list[torch.Tensor]:
        """One [N] tensor a micro-batch, on the CPU, without gradient."""

    def forward_backward(self, plan: MicroBatchPlan) -> Metrics:
        """Adds the gradient of the value loss of a mini-batch, whose batches carry `values` and `returns`."""

    def optimizer_step(self) -> UpdateReport:
        """Clips, updates and clears the gradient, as a `TrainEngine` does."""

    @property
    def is_warming_up(self) -> bool:
        """Whether its next update is one of the first, in which the policy stays as it is."""

    def save(self, folder: Path) -> None:
        """Writes parameters and optimizer into an existing folder."""

    def load(self, folder: Path) -> None:
        """Restores what `save` wrote, bit-equal."""


class PolicyUpdater(PlanScorer, Protocol):
    """What a step asks of the policy, wherever it lives: in this process, or over several ranks."""

    def forward_backward(self, plan: MicroBatchPlan, loss: LossFunction) -> Metrics:
        """Adds the gradient of the whole mini-batch; returns the loss metrics summed over it."""

    def optimizer_step(self) -> UpdateReport:
        """Clips, updates and clears the gradient; skips and says so where the gradient is not finite."""


class TrainEngine(PolicyUpdater, Protocol):
    """Owns the policy, its optimizer and its own loop over micro-batches."""

    def export_weights(self) -> Iterator[WeightChunk]:
        """Streams every weight once under its checkpoint name (adapters merged), of the current version."""

    def offload(self) -> None:
        """Moves parameters, gradients and optimizer state off the device."""

    def onload(self) -> None:
        """Brings them back."""

    def save(self, folder: Path) -> None:
        """Writes parameters, optimizer and schedule into an existing folder."""

    def load(self, folder: Path) -> None:
        """Restores what `save` wrote, bit-equal."""


# --------------------------------------------------------------------------------------------- tasks


class RewardFunction(Protocol):
    """Judges the samples of one group. A failure is data, never an exception and never a 0."""

    @property
    def name(self) -> str:
        """Its name in metrics and errors."""

    async def __call__(self, group: Group, completions: Sequence[str]) -> list[RewardPart]:
        """Returns one part a sample, in order; `completions` are the decoded texts without the stop token."""


class Task(Protocol):
    """Turns a data row into messages, says what a right answer looks like, and names its rewards."""

    @property
    def name(self) -> str:
        """The name that the config gives it."""

    @property
    def rewards(self) -> Sequence[RewardFunction]:
        """Its own graders; none where rows are judged by the user's functions only."""

    def messages(self, row: Mapping[str, Any]) -> list[Message]:
        """The chat turns that put the row's question. Raises KeyError naming a missing column."""

    def render_gold(self, row: Mapping[str, Any]) -> str | None:
        """A response that must score 1; None where the source has no gold answer."""


class Renderer(Protocol):
    """Chat template and tokenizer behind one door: text in, token ids out, exactly once."""

    def render(self, messages: Sequence[Message]) -> NDArray[np.int64]:
        """The prompt's ids, generation prompt included, exactly one BOS where the model wants one."""

    def decode(self, token_ids: NDArray[np.int64]) -> str:
        """The text of a completion, special tokens left out."""

    def extend(
        self,
        messages: Sequence[Message],
        turn_token_ids: NDArray[np.int64],
        said: Sequence[Message],
        stop_token_ids: frozenset[int] = frozenset(),
    ) -> Continuation:
        """Goes on behind a sampled turn, token-exactly, or as a new prompt where the template rewrites what was before.

        `messages` are those that the turn answers, `said` what was said to it (by a user, a tool).
        """


# --------------------------------------------------------------------------------------------- data


class StreamPosition(NamedTuple):
    """Where a prompt stream stands."""

    epoch: int
    offset: int
    """How many rows of this epoch were handed out."""


class PromptSource(Protocol):
    """Hands out prompts: each row exactly once an epoch, in an order that depends on the seed and epoch only."""

    def take(self, num_prompts: int) -> list[Prompt]:
        """The next prompts, crossing epoch ends; at the end of the last epoch fewer, then none."""

    def state(self) -> dict[str, Any]:
        """A JSON-able state from which `restore` goes on exactly."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state; raises ValueError where the state is of another data set."""


# --------------------------------------------------------------------------------------------- algorithms


@dataclass(frozen=True)
class AlgorithmNeeds:
    """What an algorithm wants computed; an engine computes only this."""

    entropy: bool = False
    candidates: bool = False
    """Log-probs of the policy at the batch's `candidate_ids`, [N, K], with gradient."""
    old_logprobs: bool = False
    """A pass of the policy over the batch before the first update, also where it is on-policy."""
    sampler_is_old: bool = False
    """The sampler's log-probs stand for the old policy's: no such pass, however many updates there are."""
    current_logprobs: bool = False
    """A pass of the policy before every update, for what is chosen over the whole mini-batch."""
    reference_logprobs: bool = False
    reference_top_k: int = 0
    """The reference's so many most likely tokens become the batch's candidates."""
    values: bool = False
    """A critic's values of the rows, before the advantages."""
    token_rewards: bool = False
    """Old and reference log-probs of the rows, before the advantages: `Algorithm.token_rewards` reads them."""
    collisions: bool = False
    """Old log-probs and collisions of the rows, before the advantages."""
    teacher: bool = False
    """A teacher's log-probs of the rows, before the advantages."""
    teacher_top_k: int = 0
    """The teacher's so many most likely tokens become the rows' candidates."""
    greedy_baseline: bool = False
    """One greedy sample a prompt, judged and never trained on."""

    on_policy_gradient_known: bool = False
    """Whether the loss has the gradient -weight * advantage by each log-prob wherever old and new log-probs are
    equal: a loss of single tokens without KL and entropy terms. An engine may then save work, and checks it."""

    @property
    def reference(self) -> bool:
        """Whether there must be a reference model."""
        return self.reference_logprobs or self.token_rewards


class Algorithm(Protocol):
    """One named bundle of pure functions: a short file that reads beside its paper."""

    name: str

    @property
    def needs(self) -> AlgorithmNeeds:
        """The outputs and extra passes that it uses."""

    def shape(self, group: Group) -> Group:
        """The judged group with rewards changed as the algorithm asks: what truncation or length cost."""

    def select(self, groups: Sequence[Group]) -> list[Group]:
        """The groups worth training on (dynamic sampling drops those without signal)."""

    def token_rewards(self, groups: Sequence[Group]) -> tuple[list[Group], Metrics]:
        """The groups with `token_rewards` on every row where tokens earn something of their own, as they came else."""

    def advantages(self, groups: Sequence[Group]) -> list[Group]:
        """The groups with `advantages` on every row; invalid samples get weight, not advantage, 0."""

    def weights(self, groups: Sequence[Group]) -> dict[tuple[int, int], float]:
        """Per (group, sample): the aggregation weight of each of its sampled tokens, over this mini-batch."""

    def has_gradient(self, sample: Sample) -> bool:
        """False where the sample's loss has no gradient at all, so that computing it changes nothing."""

    def prepare(self, plan: MicroBatchPlan) -> tuple[MicroBatchPlan, Metrics]:
        """Fixes what depends on the whole mini-batch, as fields of its batches, right before its update."""

    def loss(self, inputs: LossInputs) -> LossOutputs:
        """The loss of one micro-batch."""

    def observe(self, metrics: Metrics, num_samples: int) -> None:
        """Takes notice of a step's merged metrics and how many samples it had, for coefficients that adapt."""

    def state(self) -> dict[str, Any]:
        """What adapts, JSON-able, for the checkpoint."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state."""


# --------------------------------------------------------------------------------------------- the rest


class CheckpointPart(Protocol):
    """Something that a checkpoint keeps: the train engine, the prompt stream, the trainer's counters."""

    def save(self, folder: Path) -> None:
        """Writes itself into an existing, empty folder, as plain files."""

    def load(self, folder: Path) -> None:
        """Restores what `save` wrote, exactly."""


class CheckpointStore(Protocol):
    """Keeps step folders that are whole or absent."""

    def save(self, step: int, parts: Mapping[str, CheckpointPart], scores: Mapping[str, float] | None = None) -> Path:
        """Writes a step: each part writes itself into a folder of its name, then the step becomes visible.

        `scores` are evaluation results at this step, by metric name: what keep-best compares.
        """

    def latest(self) -> Path | None:
        """The newest whole step, verified by checksums; None where there is none."""


# --------------------------------------------------------------------------------------------- weight sync


class WeightTransfer(Protocol):
    """Carries full sets of weights from the training engine, whose stream it was made with, to rollout engines."""

    async def send(
        self, receivers: Mapping[str, RolloutEngine], version: int, *, scale: float = 1.0
    ) -> dict[str, tuple[WeightReceipt, WeightReceipt]]:
        """Streams the weights to every receiver; returns by name what was sent and what the receiver says it holds.

        The first receipt is the sender's account, computed from the tensors as they were sent (scaled, cast or
        quantised); the second is the receiver's. Comparing the two is the caller's business. `scale` multiplies every
        floating-point weight before it is cast: a canary. Raises `transfer.DeliveryError` naming the receivers that
        failed; the others then hold the old or the new set whole, or refuse to sample.
        """


class RequestGate(Protocol):
    """The door in front of the rollout engines; a router of requests implements it too."""

    def shut(self) -> None:
        """Lets no new request through; those inside go on."""

    async def emptied(self, timeout_seconds: float) -> None:
        """Waits until no request is inside. Raises TimeoutError saying how many are."""

    def release(self) -> None:
        """Lets requests through again."""

    def refuse(self, error: Exception) -> None:
        """Answers every waiting and later request with an error: the run is stopping."""


class MetricSink(Protocol):
    """Takes the metrics of a step somewhere."""

    def log(self, step: int, metrics: Metrics) -> None:
        """Writes the metrics of one step."""

    def close(self) -> None:
        """Flushes and closes."""
