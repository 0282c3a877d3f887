"""A mixture of data sets: what each part takes from `data`, and which part serves next.

    weights   0.75 0.25 (of prompt n; on a ramp they change with n)
    credits   +0.75 +0.25 a prompt; the part with the most serves and pays 1

So after any number of prompts each part has served its share, up to one prompt or so, without any randomness: the
order of parts is the same for every seed and needs nothing but the credits to go on. Within a part every row comes
exactly once a pass, in an order drawn from seed, pass and name. A part whose passes are used up leaves, and the
others go on in their ratio.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from strop.config.data import DataConfig, MixturePart, MixtureSource, SingleSource, Source
from strop.config.source_names import part_name, source_name
from strop.data.errors import SettingError
from strop.data.stream import PromptStream
from strop.data.table import PromptTable
from strop.records import Prompt


@dataclass(frozen=True)
class DataPart:
    """One data set with everything that says how it is read."""

    name: str
    source: SingleSource
    data: DataConfig
    """The `data` section as it holds for this part: its own task, columns and instruction."""
    key: str = "data"
    """Where the run file sets them, for errors: `data`, or a part such as `data.source.parts[1]`."""


def data_parts(data: DataConfig, source: Source, key: str = "data.source") -> list[DataPart]:
    """The parts of a source that stands under `key`, one where it is no mixture.

    Raises SettingError where names or tasks are missing.
    """
    if not isinstance(source, MixtureSource):
        return [DataPart(source_name(source), source, _with_task(data, source_name(source)))]
    parts = [_part(data, part, f"{key}.parts[{place}]") for place, part in enumerate(source.parts)]
    names = [part.name for part in parts]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise SettingError(f"the parts of a mixture must have names that differ, got {doubled!r} twice: set `name`")
    return parts


def _part(data: DataConfig, part: MixturePart, key: str) -> DataPart:
    name = part_name(part)
    own = {
        "task": part.task,
        "prompt_column": part.prompt_column,
        "answer_column": part.answer_column,
        "gold_response_column": part.gold_response_column,
        "instruction": part.instruction,
    }
    given = {key: value for key, value in own.items() if value is not None}
    return DataPart(name, part.source, _with_task(data.model_copy(update=given), name), key)


def _with_task(data: DataConfig, name: str) -> DataConfig:
    if data.task is None:
        raise SettingError(f"data.task must say what is asked of the rows of {name}, got none")
    return data


@dataclass(frozen=True)
class MixtureWeights:
    """The weight of each part, moving evenly from `first` to `last` over `ramp_prompts` prompts."""

    first: Mapping[str, float]
    last: Mapping[str, float]
    ramp_prompts: int | None = None

    @classmethod
    def read(cls, source: MixtureSource, num_prompts: Mapping[str, int]) -> "MixtureWeights":
        """Reads the weights of a mixture; a part without one weighs as much as it has prompts."""
        first, last = {}, {}
        for part in source.parts:
            name = part_name(part)
            first[name] = float(num_prompts[name]) if part.weight is None else part.weight
            last[name] = first[name] if part.final_weight is None else part.final_weight
        return cls(first, last, source.ramp_prompts)

    def at(self, num_served: int) -> dict[str, float]:
        """The weights for the prompt behind `num_served` others."""
        done = min(1.0, num_served / self.ramp_prompts) if self.ramp_prompts else 0.0
        return {name: (1 - done) * self.first[name] + done * self.last[name] for name in self.first}

    def lines(self) -> list[str]:
        """The shares in words, a line for each part."""
        first, last = _shares(self.first), _shares(self.last)
        ramp = f" after {self.ramp_prompts} prompts" if self.ramp_prompts else ""
        return [
            f"{name}: {first[name]:.1%} of the prompts" + (f", {last[name]:.1%}{ramp}" if last != first else "")
            for name in self.first
        ]


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


class MixtureStream:
    """Serves the prompts of several streams by weight; implements `PromptSource`."""

    def __init__(self, parts: Mapping[str, PromptStream], weights: MixtureWeights) -> None:
        self._parts = dict(parts)
        self._weights = weights
        self._credits = dict.fromkeys(self._parts, 0.0)
        self._num_served = 0
        self._returned: list[str] = []

    def take(self, num_prompts: int) -> list[Prompt]:
        """The next prompts: first those given back, then each part by its weight; at the very end fewer, then none."""
        if num_prompts < 0:
            raise ValueError(f"num_prompts must not be negative, got {num_prompts}")
        served: list[Prompt] = []
        while len(served) < num_prompts and (name := self._next_part()) is not None:
            served += self._parts[name].take(1)
        return served

    def give_back(self, prompts: Sequence[Prompt]) -> None:
        """Takes back prompts that were not trained; they are served again first, in the order given.

        Raises ValueError where a prompt is of no part, was not handed out, or was given back already.
        """
        by_part: dict[str, list[Prompt]] = {}
        for prompt in prompts:
            if prompt.source not in self._parts:
                raise ValueError(f"only prompts of this mixture can be given back, got one of {prompt.source!r}")
            by_part.setdefault(prompt.source, []).append(prompt)
        before = {name: self._parts[name].state() for name in by_part}
        try:
            for name, own in by_part.items():
                self._parts[name].give_back(own)
        except ValueError:
            for name, state in before.items():
                self._parts[name].restore(state)
            raise
        self._returned = [prompt.source for prompt in prompts] + self._returned

    def state(self) -> dict[str, Any]:
        """A JSON-able state from which `restore` goes on exactly."""
        return {
            "parts": {name: part.state() for name, part in self._parts.items()},
            "credits": dict(self._credits),
            "num_served": self._num_served,
            "returned": list(self._returned),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state; raises ValueError where it is of other parts, or of other prompts in one of them."""
        names = list(state.get("parts", {}))
        if sorted(names) != sorted(self._parts):
            raise ValueError(
                f"the parts of the mixture must be those of the checkpoint ({', '.join(names) or 'none'}), "
                f"got {', '.join(self._parts)}"
            )
        for name, part in self._parts.items():
            part.restore(state["parts"][name])
        self._credits = {name: float(state["credits"][name]) for name in self._parts}
        self._num_served = int(state["num_served"])
        self._returned = [str(name) for name in state["returned"]]

    def _next_part(self) -> str | None:
        """Names the part that serves now and lets it pay; None where every part is used up."""
        if self._returned:
            return self._returned.pop(0)
        weights = self._weights_now()
        if not weights:
            return None
        total = sum(weights.values())
        for name, weight in weights.items():
            self._credits[name] += weight / total
        chosen = max(weights, key=lambda name: self._credits[name])
        self._credits[chosen] -= 1
        self._num_served += 1
        return chosen

    def _weights_now(self) -> dict[str, float]:
        """The weights of the parts that go on. Where only parts are left whose turn has not come, it comes now."""
        going_on = {name for name, part in self._parts.items() if not part.is_exhausted}
        for weights in (self._weights.at(self._num_served), self._weights.last, self._weights.first):
            chosen = {name: weight for name, weight in weights.items() if name in going_on and weight > 0}
            if chosen:
                return chosen
        return {}


def build_stream(table: PromptTable, data: DataConfig, seed: int) -> PromptStream | MixtureStream:
    """The stream of a run: every row once a pass, the parts of a mixture by their weights."""
    if not isinstance(data.source, MixtureSource):
        return PromptStream(table, seed=seed, shuffle=data.shuffle, epochs=data.epochs)
    tables = table.by_source()
    streams = {
        name: PromptStream(
            part, seed=seed, shuffle=data.shuffle, epochs=data.epochs, salt=zlib.crc32(name.encode("utf-8"))
        )
        for name, part in tables.items()
    }
    return MixtureStream(streams, mixture_weights(table, data.source))


def mixture_weights(table: PromptTable, source: MixtureSource) -> MixtureWeights:
    """The weights of a mixture whose prompts are in the table."""
    return MixtureWeights.read(source, {name: len(part) for name, part in table.by_source().items()})
