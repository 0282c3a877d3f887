"""What the engine asks of the code that runs a model, and which code that is.

softmax attention in every layer    Network + KvMemory + Stepper             packed, prompts shared in a group
some layer carries a state          RecurrentNetwork + Cohorts + CohortStepper   transformers' own cache
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedModel

from strop.config.rollout import RolloutConfig
from strop.models.attention import supports_shared_prefix
from strop.rollout.native.memory import KvMemory
from strop.rollout.native.network import Network
from strop.rollout.native.recurrent import RecurrentNetwork
from strop.rollout.native.recurrent_check import check_cache
from strop.rollout.native.recurrent_cohorts import Cohorts, CohortStepper
from strop.rollout.native.roster import Roster
from strop.rollout.native.scoring import score_sequences
from strop.rollout.native.stepper import EngineCounters, Stepper
from strop.rollout.native.stops import Decode
from strop.rollout.native.weights import WeightTable

ScoreSequences = Callable[[Sequence[NDArray[np.int64]]], list[NDArray[np.float32]]]
"""Gives n - 1 log-probs at temperature 1 for each sequence of n tokens, without any cache."""


class NetworkPart(Protocol):
    """The model, as far as requests and publications ask for it."""

    weights: WeightTable

    @property
    def vocabulary_size(self) -> int:
        """V, the token ids that may be fed in."""

    @property
    def max_length(self) -> int | None:
        """The model's own maximum of prompt plus completion tokens; None where its config says none."""


class MemoryPart(Protocol):
    """What is kept of the tokens that were computed."""

    @property
    def num_tokens(self) -> int:
        """The tokens that memory is held for."""

    @property
    def num_bytes(self) -> int:
        """The memory that they take."""

    def release(self) -> None:
        """Gives all memory back."""


class StepperPart(Protocol):
    """Moves what is in the roster on; owns roster and memory between two calls of the engine."""

    counters: EngineCounters
    decode_text: Decode | None

    def step(self, version: int) -> None:
        """Admits what fits or draws a token for every running sample, with weights of `version`."""

    def drop_caches(self) -> None:
        """Sends running samples back to be prefilled: what the cache holds is of other weights."""

    def reset(self) -> None:
        """Forgets everything: a step that raised may have left things half-made."""

    def forget_finished(self) -> None:
        """Gives up the places of samples that were finished from outside."""


@dataclass(frozen=True, slots=True)
class EngineParts:
    """One way to run a model."""

    network: NetworkPart
    roster: Roster
    memory: MemoryPart
    stepper: StepperPart
    score: ScoreSequences


def build_parts(model: PreTrainedModel, config: RolloutConfig, decode: Decode | None) -> EngineParts:
    """Takes the model over and chooses how it is run. Raises ModelError for models that the engine cannot run."""
    if supports_shared_prefix(model.config):
        return _packed_parts(model, config, decode)
    return _recurrent_parts(model, config, decode)


def _packed_parts(model: PreTrainedModel, config: RolloutConfig, decode: Decode | None) -> EngineParts:
    network = Network(model, packed_linears=config.packed_linears)
    roster = Roster(config.max_running, config.max_cache_tokens)
    memory = KvMemory(config.max_cache_tokens)
    return EngineParts(
        network, roster, memory, Stepper(network, roster, memory, decode), partial(score_sequences, network)
    )


def _recurrent_parts(model: PreTrainedModel, config: RolloutConfig, decode: Decode | None) -> EngineParts:
    network = RecurrentNetwork(model)
    check_cache(network)
    roster = Roster(config.max_running, config.max_cache_tokens, shares_prompts=False)
    cohorts = Cohorts()
    return EngineParts(network, roster, cohorts, CohortStepper(network, roster, cohorts, decode), network.score)
