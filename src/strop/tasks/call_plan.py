"""How a reward function of the user's wants to be called, read once from its signature.

Per sample, where it takes `completion`; per group, where it takes `completions` (the form of TRL, in which every
column is a list with one entry a sample):

    def reward(completion, answer): ...                  one sample: text, and columns of its row by name
    def reward(completions, answer, **kwargs): ...       one group: lists of equal length

Beside columns there are `prompt` (the chat messages) and `finish` ("stopped" or "length"), `prompts` and `finishes`
in the plural form, and the fixed `arguments` of the config. `**kwargs` gets all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from strop.data.errors import SettingError
from strop.errors import nearest_hint
from strop.records import Group, Sample

SINGULAR = ("completion", "prompt", "finish")
PLURAL = ("completions", "prompts", "finishes")


@dataclass(frozen=True)
class CallPlan:
    """The names that a function takes, and the fixed arguments that it gets."""

    function: str
    """Name of the function, for errors."""
    per_group: bool
    names: frozenset[str]
    required: frozenset[str]
    takes_everything: bool
    """Whether it has `**kwargs`."""
    fixed: Mapping[str, Any]

    @classmethod
    def read(cls, parameters: Sequence[Parameter], name: str, fixed: Mapping[str, Any]) -> "CallPlan":
        """Reads the plan from a signature; raises SettingError where the function cannot be called in either form."""
        named = [p for p in parameters if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)]
        if any(p.kind is Parameter.POSITIONAL_ONLY for p in parameters):
            raise SettingError(f"reward {name!r} must take its arguments by name, got positional-only ones")
        names = frozenset(p.name for p in named)
        if ("completion" in names) == ("completions" in names):
            raise SettingError(
                f"reward {name!r} must take `completion` (called for each sample) or `completions` (called for each "
                f"group), and not both; it takes: {', '.join(sorted(names)) or 'nothing by name'}"
            )
        plan = cls(
            function=name,
            per_group="completions" in names,
            names=names,
            required=frozenset(p.name for p in named if p.default is Parameter.empty),
            takes_everything=any(p.kind is Parameter.VAR_KEYWORD for p in parameters),
            fixed=dict(fixed),
        )
        plan._check_fixed()
        return plan

    def check_columns(self, columns: frozenset[str]) -> None:
        """Raises SettingError where a required argument is neither a column nor given otherwise."""
        offered = columns | set(self._own_names) | set(self.fixed)
        for name in sorted(self.required - offered):
            raise SettingError(
                f"reward {self.function!r} needs the argument {name!r}{nearest_hint(name, offered)}, which is no "
                f"column of every row; columns found: {', '.join(sorted(columns)) or 'none'}"
            )

    def sample_arguments(self, group: Group, sample: Sample, completion: str) -> dict[str, Any]:
        """The arguments for one sample."""
        own = {"completion": completion, "prompt": list(group.prompt.messages), "finish": sample.finish.value}
        return self._chosen({**group.prompt.columns, **self.fixed, **own})

    def group_arguments(self, group: Group, completions: Sequence[str]) -> dict[str, Any]:
        """The arguments for a whole group: columns repeated once a sample."""
        num_samples = len(group.samples)
        columns = {name: [value] * num_samples for name, value in group.prompt.columns.items()}
        own = {
            "completions": list(completions),
            "prompts": [list(group.prompt.messages) for _ in group.samples],
            "finishes": [sample.finish.value for sample in group.samples],
        }
        return self._chosen({**columns, **self.fixed, **own})

    @property
    def _own_names(self) -> tuple[str, ...]:
        return PLURAL if self.per_group else SINGULAR

    def _check_fixed(self) -> None:
        for name in self.fixed:
            if name in self._own_names:
                raise SettingError(
                    f"rewards.arguments of {self.function!r} must not set {name!r}, which every call brings"
                )
            if name not in self.names and not self.takes_everything:
                raise SettingError(
                    f"rewards.arguments of {self.function!r} must be arguments that it takes, got {name!r}"
                    f"{nearest_hint(name, self.names)}"
                )

    def _chosen(self, available: dict[str, Any]) -> dict[str, Any]:
        if self.takes_everything:
            return available
        return {name: value for name, value in available.items() if name in self.names}
