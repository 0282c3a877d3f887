"""Test cases of a programming problem, in the shapes that data sets have.

    {"inputs": [...], "outputs": [...]}                       programs that read stdin and print (APPS, TACO)
    {"inputs": [...], "outputs": [...], "fn_name": "solve"}   functions, or methods of the class `Solution`
    [{"input": ..., "output": ..., "testtype": "stdin"}, ...] LiveCodeBench; "functional" needs `fn_name` or `metadata`

Arguments of a function are a list, or text with one JSON value a line. What it must return is JSON; where the arguments
are a list and the result is a text, the text itself is right as well as the value that it is as JSON: data sets of
either habit cannot be told apart.
"""

import json
from dataclasses import dataclass
from typing import Any

from strop.tasks.grading.grade import GoldError

_REMEDY = "Mend or remove the row."


@dataclass(frozen=True, slots=True)
class Case:
    """One test: what goes in and what must come out."""

    stdin: str = ""
    arguments: tuple[Any, ...] = ()
    expected: Any = ""
    """Text that must be printed, or the JSON value that must be returned."""
    or_text: str | None = None
    """A text that may be returned instead."""


@dataclass(frozen=True, slots=True)
class Cases:
    """The tests of one problem."""

    fn_name: str | None
    """None for programs that read stdin and print."""
    cases: tuple[Case, ...]


def read_cases(gold: str) -> Cases:
    """Reads the test cases from a row's JSON; raises GoldError where it has none of the shapes above, or no test."""
    try:
        content = json.loads(gold)
    except (ValueError, RecursionError) as error:
        raise GoldError(f"test cases must be JSON: {error}, got {gold[:80]!r}", _REMEDY) from error
    if isinstance(content, list):
        content = _from_list(content)
    if not isinstance(content, dict):
        raise GoldError(f"test cases must be an object or a list, got {gold[:80]!r}", _REMEDY)
    inputs, outputs, fn_name = (content.get(name) for name in ("inputs", "outputs", "fn_name"))
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise GoldError(f"test cases must have the lists `inputs` and `outputs`, got keys {list(content)}", _REMEDY)
    if len(inputs) != len(outputs) or not inputs:
        raise GoldError(
            f"test cases must have one output an input and at least one, got {len(inputs)} inputs and {len(outputs)} "
            "outputs",
            _REMEDY,
        )
    if fn_name is not None and not (isinstance(fn_name, str) and fn_name.isidentifier()):
        raise GoldError(f"fn_name must be the name of a function, got {fn_name!r}", _REMEDY)
    read = _stdin_case if fn_name is None else _call_case
    return Cases(fn_name, tuple(read(given, expected) for given, expected in zip(inputs, outputs, strict=True)))


def _from_list(content: list[Any]) -> dict[str, Any]:
    if not all(isinstance(case, dict) and {"input", "output"} <= set(case) for case in content):
        raise GoldError("each test case of a list must have `input` and `output`", _REMEDY)
    kinds = {case.get("testtype", "stdin") for case in content}
    if not kinds <= {"stdin"} and not kinds <= {"functional"}:
        found = sorted(map(str, kinds))
        raise GoldError(f"the testtype of all cases must be stdin or functional, got {found}", _REMEDY)
    names = {case.get("fn_name") or (case.get("metadata") or {}).get("func_name") for case in content}
    if kinds == {"functional"} and (len(names) != 1 or None in names):
        raise GoldError("functional test cases must name one function, in `fn_name` or `metadata.func_name`", _REMEDY)
    return {
        "inputs": [case["input"] for case in content],
        "outputs": [case["output"] for case in content],
        "fn_name": names.pop() if kinds == {"functional"} else None,
    }


def _stdin_case(given: Any, expected: Any) -> Case:
    return Case(stdin=_text(given, "input"), expected=_text(expected, "output"))


def _text(value: Any, what: str) -> str:
    """Text or a number, or a list of these as lines."""
    values = value if isinstance(value, list) else [value]
    if any(isinstance(item, bool) or not isinstance(item, str | int | float) for item in values):
        raise GoldError(
            f"the {what} of a program must be text, a number or a list of these, got {json.dumps(value)[:80]}", _REMEDY
        )
    return "\n".join(map(str, values))


def _call_case(given: Any, expected: Any) -> Case:
    if not isinstance(given, str | list):
        raise GoldError(f"the arguments of a function must be a list, got {json.dumps(given)[:80]}", _REMEDY)
    if isinstance(given, str):
        return Case(
            arguments=tuple(_lines(given)), expected=_value(expected) if isinstance(expected, str) else expected
        )
    if isinstance(expected, str):
        return Case(arguments=tuple(given), expected=_value(expected), or_text=expected)
    return Case(arguments=tuple(given), expected=expected)


def _lines(text: str) -> list[Any]:
    return [_value(line) for line in text.splitlines() if line.strip()]


def _value(text: str) -> Any:
    """The JSON value of a text; the text itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
