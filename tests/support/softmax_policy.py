"""A policy of three tensors, a trainer of it, and a sampler that keeps a cache: small enough to break on purpose."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from strop.records import Completion, FinishState, GroupRequest, WeightChunk, WeightReceipt
from strop.transfer import weight_checksum

VOCABULARY, HIDDEN = 11, 6

Weights = dict[str, torch.Tensor]


def initial_weights(seed: int = 0) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    return {
        "embedding": torch.randn(VOCABULARY, HIDDEN, generator=generator, dtype=torch.float64),
        "body": torch.randn(HIDDEN, HIDDEN, generator=generator, dtype=torch.float64),
        "head": torch.randn(VOCABULARY, HIDDEN, generator=generator, dtype=torch.float64),
    }


def state_after(weights: Weights, token_ids: Sequence[int]) -> torch.Tensor:
    """The hidden state behind a sequence: what a cache would keep."""
    places = (1 + torch.arange(len(token_ids), dtype=torch.float64)) / len(token_ids)
    embedded = weights["embedding"][torch.as_tensor(np.asarray(token_ids))]
    return torch.tanh(weights["body"] @ (embedded * places[:, None]).mean(0))


def next_logprobs(weights: Weights, state: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(weights["head"] @ state, dim=-1)


def score(weights: Weights, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    values = [
        float(next_logprobs(weights, state_after(weights, token_ids[:place]))[token_ids[place]])
        for place in range(1, len(token_ids))
    ]
    return np.array(values)


class Trainer:
    """Moves its weights by small random steps."""

    def __init__(self) -> None:
        self.weights = initial_weights()
        self.version = 0
        self._generator = torch.Generator().manual_seed(1)

    def step(self, size: float) -> None:
        for tensor in self.weights.values():
            tensor += size * torch.randn(tensor.shape, generator=self._generator, dtype=tensor.dtype)
        self.version += 1

    def export_weights(self) -> Iterator[WeightChunk]:
        for name, tensor in self.weights.items():
            yield WeightChunk(name, tensor, self.version)

    def score(self, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
        return score(self.weights, token_ids)


class Sampler:
    """A right implementation of `protocols.RolloutEngine`, with a cache of prefixes that `receive_weights` drops."""

    def __init__(self, seed: int = 7) -> None:
        self.weights = initial_weights(seed)
        self.version = -1
        self.cache: dict[tuple[int, ...], torch.Tensor] = {}
        self.calls: list[str] = []
        self._random = np.random.default_rng(seed)

    async def score(self, token_ids: Sequence[NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        return [score(self.weights, sequence).astype(np.float32) for sequence in token_ids]

    async def generate(self, request: GroupRequest) -> list[Completion]:
        self.calls.append("generate")
        partials = request.partial or (None,) * len(request.streams)
        return [self._complete(request, partial) for partial in partials]

    def _complete(self, request: GroupRequest, partial: Completion | None) -> Completion:
        token_ids = [] if partial is None else partial.token_ids.tolist()
        logprobs = [] if partial is None else partial.logprobs.tolist()
        versions = [] if partial is None else partial.policy_versions.tolist()
        while len(token_ids) < request.sampling.max_new_tokens:
            drawn = self._draw((*request.prompt_token_ids.tolist(), *token_ids), request.sampling.temperature)
            token_ids.append(drawn[0])
            logprobs.append(drawn[1])
            versions.append(self.version)
        return Completion(np.array(token_ids), np.array(logprobs, np.float32), np.array(versions), FinishState.LENGTH)

    def _draw(self, prefix: tuple[int, ...], temperature: float) -> tuple[int, float]:
        if prefix not in self.cache:
            self.cache[prefix] = state_after(self.weights, prefix)
        logprobs = next_logprobs(self.weights, self.cache[prefix])
        if temperature == 0:
            token_id = int(logprobs.argmax())
        else:
            token_id = int(self._random.choice(VOCABULARY, p=logprobs.exp().numpy()))
        return token_id, float(logprobs[token_id])

    async def interrupt(self) -> None:
        self.calls.append("interrupt")

    async def pause(self) -> None:
        self.calls.append("pause")

    async def resume(self) -> None:
        self.calls.append("resume")

    async def sleep(self) -> None:
        self.calls.append("sleep")

    async def wake(self) -> None:
        self.calls.append("wake")

    async def receive_weights(self, chunks: Iterable[WeightChunk], version: int) -> WeightReceipt:
        self.calls.append("receive")
        self.drop_caches()
        names = []
        for chunk in chunks:
            self.take(chunk)
            names.append(chunk.name)
        self.version = version
        return WeightReceipt(version, tuple(names), tuple(weight_checksum(self.weights[name]) for name in names))

    def drop_caches(self) -> None:
        self.cache.clear()

    def take(self, chunk: WeightChunk) -> None:
        self.weights[chunk.name] = chunk.tensor.clone()
