"""The graders by name. Nothing is imported before a grader is asked for.

Each entry names a function `grade(response, gold, mode, options) -> Grade` and the pydantic class of its options.
`load_grader` binds the options, so what it returns is a picklable function of (response, gold, mode).
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from strop.tasks.grading.grade import GradeMode, Grader
from strop.tasks.grading.options import GraderOptions, NoOptions, OptionError, read_options

_BOTH = (GradeMode.STRICT, GradeMode.LENIENT)


@dataclass(frozen=True, slots=True)
class GraderEntry:
    """Where a grader lives and what it knows."""

    function: str
    """`module:function` inside this package."""
    options: str | None = None
    """Name of the options' class in the same module; None where there is nothing to set."""
    modes: tuple[GradeMode, ...] = _BOTH
    """The modes it knows, its default first."""
    gold_columns: tuple[str, ...] = ("answer",)
    """Columns of a data set that may hold the gold answer, the first found is taken."""
    gold_may_be_json: bool = False
    """Whether a gold answer may be a list or an object, which the grader reads as JSON."""


_TEXTS = ("answer", "answers", "gold", "target")

GRADERS: dict[str, GraderEntry] = {
    "gsm8k": GraderEntry("gsm8k:grade_gsm8k"),
    "math": GraderEntry("math:grade_math", "MathOptions", gold_columns=("answer", "solution")),
    "math_verify": GraderEntry(
        "math_verify:grade_math_verify",
        "MathVerifyOptions",
        modes=(GradeMode.LENIENT,),
        gold_columns=("answer", "solution"),
    ),
    "final_answer": GraderEntry("final_answer:grade_final_answer", gold_columns=_TEXTS),
    "choice": GraderEntry("choice:grade_choice", "ChoiceOptions", gold_columns=("answer", "answerKey", "label")),
    "exact": GraderEntry("exact:grade_exact", "ExactOptions", gold_columns=_TEXTS, gold_may_be_json=True),
    "f1": GraderEntry("f1:grade_f1", "F1Options", gold_columns=_TEXTS, gold_may_be_json=True),
    "numeric": GraderEntry("numeric:grade_numeric", "NumericOptions", gold_columns=_TEXTS),
    "regex": GraderEntry("pattern:grade_regex", "RegexOptions", gold_columns=("pattern", "regex", "answer")),
    "json_schema": GraderEntry(
        "json_schema:grade_json_schema", "JsonSchemaOptions", gold_columns=("schema", "answer"), gold_may_be_json=True
    ),
    "code": GraderEntry(
        "code:grade_code",
        "CodeOptions",
        gold_columns=("tests", "test_cases", "input_output", "answer"),
        gold_may_be_json=True,
    ),
    "reasoning_gym": GraderEntry("reasoning_gym:grade_reasoning_gym", "ReasoningGymOptions", modes=(GradeMode.STRICT,)),
}


def find_entry(name: str) -> GraderEntry:
    """The entry of a grader; raises OptionError listing the names where there is none."""
    if name not in GRADERS:
        raise OptionError(f"scorer must be one of {', '.join(GRADERS)}, got {name!r}")
    return GRADERS[name]


def load_grader(name: str, arguments: Mapping[str, Any] | None = None) -> Grader:
    """Imports a grader and binds its options; raises OptionError for an unknown name or an option that is wrong."""
    entry = find_entry(name)
    module_name, _, function_name = entry.function.partition(":")
    module = importlib.import_module(f"strop.tasks.grading.{module_name}")
    function = getattr(module, function_name)
    kind: type[GraderOptions] = NoOptions if entry.options is None else getattr(module, entry.options)
    options = read_options(kind, name, dict(arguments or {}))
    bound = function if not arguments else partial(function, options=options)
    return cast(Grader, bound)
