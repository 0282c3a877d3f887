r"""The gold answer is a JSON schema, and the response must be JSON that it accepts.

References to other files and hosts are never followed. Patterns inside a schema are run under a time limit.
"""

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from strop.errors import ConfigError
from strop.tasks.grading.extract import after_thought
from strop.tasks.grading.grade import GoldError, Grade, GradeMode, UndecidedError
from strop.tasks.grading.options import GraderOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_CHARACTERS = 1_000_000
_FENCE = "```"
_MAX_FAULTS = 1000
_OPENING = re.compile(r"\{\s*(?:[\"}]|\Z)|\[\s*(?:[\"\[\]{\d-]|true|false|null|NaN|Infinity|\Z)")
"""What JSON may begin with."""
_BRACKET = re.compile(r"[{}\[\]]")


class JsonSchemaOptions(GraderOptions):
    """What else is checked."""

    check_formats: bool = False
    """Whether `format`, such as `date` or `email`, is checked too."""
    pattern_timeout_seconds: float = 1.0
    """Time limit of one pattern of the schema."""


_DEFAULTS = JsonSchemaOptions()


def grade_json_schema(
    response: str, gold: str, mode: GradeMode = GradeMode.STRICT, options: JsonSchemaOptions = _DEFAULTS
) -> Grade:
    """Grades by whether the schema accepts the response.

    STRICT: the response is one JSON text, or one fenced block that holds it, and no object names a key twice. LENIENT:
    the last fenced block counts, or all of the response, and in it the last object or array.
    Raises GoldError for a gold answer that is no schema; UndecidedError where a pattern of it takes too long.
    """
    validator = _validator(gold, options)
    text = after_thought(response).strip()
    if not text or len(text) > MAX_CHARACTERS:
        return Grade(0.0, None, mode, f"the answer must have 1 to {MAX_CHARACTERS} characters, got {len(text)}")
    try:
        answer, instance = _read(text, mode)
    except (ValueError, RecursionError) as error:
        return Grade(0.0, text[:200], mode, f"no JSON: {error}")
    try:
        fault = next(validator.iter_errors(instance), None)
    except RecursionError:
        return Grade(0.0, answer[:200], mode, "the JSON is nested too deep")
    if fault is None:
        return Grade(1.0, answer, mode, "the schema accepts the JSON")
    return Grade(0.0, answer, mode, f"{fault.json_path}: {fault.message[:200]}")


def _read(text: str, mode: GradeMode) -> tuple[str, Any]:
    if mode is GradeMode.STRICT:
        answer = _unfenced(text)
        return answer, json.loads(answer, parse_constant=_refuse, object_pairs_hook=_unique)
    blocks = text.split(_FENCE)[1::2]
    answer = blocks[-1].removeprefix("json").strip() if blocks else text
    try:
        return answer, json.loads(answer, parse_constant=_refuse)
    except json.JSONDecodeError:
        return _last_json(answer)


def _last_json(text: str) -> tuple[str, Any]:
    """The last object or array of a text that is not inside another.

    Brackets of plain language, as in `{see} [below]`, are passed over; where there are no others, the value that the
    text begins with counts. What begins as JSON and is faulty or cut off is an attempt: neither what stands before it
    nor what is inside it replaces it. After _MAX_FAULTS of them the search ends, so the work is bounded.
    """
    decoder = json.JSONDecoder(parse_constant=_refuse)
    closings = _closings(text)
    last: tuple[str, Any] | None = None
    fault: json.JSONDecodeError | None = None
    place = num_faults = 0
    while opening := _OPENING.search(text, place):
        start = opening.start()
        try:
            instance, place = decoder.raw_decode(text, start)
            last, fault = (text[start:place], instance), None
        except json.JSONDecodeError as error:
            num_faults += 1
            if start not in closings or num_faults > _MAX_FAULTS:
                raise
            fault = error if text[start : error.pos].strip("{[ \t\r\n") else fault
            place = closings[start] + 1
    if fault is not None:
        raise fault
    return _first_json(text, decoder) if last is None else last


def _first_json(text: str, decoder: json.JSONDecoder) -> tuple[str, Any]:
    instance, stop = decoder.raw_decode(text)
    return text[:stop], instance


def _closings(text: str) -> dict[int, int]:
    """Where each bracket that closes does so, by where it opens; brackets inside strings are taken for others."""
    closings: dict[int, int] = {}
    opened: list[int] = []
    for bracket in _BRACKET.finditer(text):
        if bracket.group() in "{[":
            opened.append(bracket.start())
        elif opened:
            closings[opened.pop()] = bracket.start()
    return closings


def _unfenced(text: str) -> str:
    """The content of a text that is one fenced block; any other text as it is."""
    if not (text.startswith(_FENCE) and text.endswith(_FENCE)) or text.count(_FENCE) != 2:
        return text
    language, _, content = text[len(_FENCE) : -len(_FENCE)].partition("\n")
    return content.strip() if language.strip().lower() in ("", "json") else text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("an object names a key twice")
    return keys


@lru_cache(maxsize=256)
def _validator(gold: str, options: JsonSchemaOptions) -> Any:
    try:
        import jsonschema
        import referencing
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the grader 'json_schema' needs the package 'jsonschema', which is not installed",
            "Run `pip install 'strop[graders]'`.",
        ) from error
    try:
        schema = json.loads(gold, parse_constant=_refuse)
        kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        kind.check_schema(schema)
    except (ValueError, RecursionError, jsonschema.SchemaError) as error:
        raise GoldError(f"a gold answer must be a JSON schema, got {gold[:80]!r}: {str(error)[:200]}") from error

    def bounded_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> "Iterator[Any]":
        if isinstance(instance, str) and not _matches(pattern, instance, options.pattern_timeout_seconds):
            yield jsonschema.ValidationError(f"{instance!r} does not match {pattern!r}")

    bounded = jsonschema.validators.extend(kind, {"pattern": bounded_pattern})
    formats = kind.FORMAT_CHECKER if options.check_formats else None
    return bounded(schema, registry=referencing.Registry(), format_checker=formats)


def _matches(pattern: str, text: str, timeout_seconds: float) -> bool:
    import regex

    try:
        return regex.search(pattern, text, timeout=timeout_seconds) is not None
    except TimeoutError as error:
        raise UndecidedError(
            f"the schema's pattern {pattern[:80]!r} must give an answer within {timeout_seconds:g} seconds"
        ) from error
