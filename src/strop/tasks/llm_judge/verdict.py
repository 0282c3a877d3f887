"""How a judge's answer becomes a value. Thoughts (`<think>`) are left out, and the last verdict of several counts."""

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import regex

from strop.config.judges import JsonVerdict, LabelVerdict, NumberVerdict, Verdict
from strop.data.errors import SettingError
from strop.tasks.grading.extract import after_thought
from strop.tasks.llm_judge.engine import JudgeError

ReadVerdict = Callable[[str], float]
"""From a judge's answer to a value; raises JudgeError where it holds no verdict."""

PATTERN_SECONDS = 1.0
"""A pattern that backtracks for longer finds nothing."""
_SHOWN_CHARACTERS = 200
_OPENING = re.compile(r'\{\s*["}]')
_MOST_READINGS = 8
_FAILURE_COST = 512
"""What an object that breaks costs beside its characters, in characters."""
_PIECE = 2**16


def verdict_reader(config: Verdict, reward: str) -> ReadVerdict:
    """Returns the reader of verdicts; raises SettingError where the pattern is no regular expression of one group."""
    match config:
        case NumberVerdict():
            return partial(_read_number, _compiled(config.pattern, reward), config.lowest, config.highest)
        case LabelVerdict():
            return partial(_read_label, {label.casefold(): value for label, value in config.labels.items()})
        case JsonVerdict():
            return partial(_read_json, config.field, config.lowest, config.highest)


def _compiled(pattern: str, reward: str) -> "regex.Pattern[str]":
    try:
        compiled = regex.compile(pattern)
    except regex.error as error:
        raise SettingError(f"the pattern of reward {reward!r} must be a regular expression: {error}") from error
    if compiled.groups != 1:
        raise SettingError(
            f"the pattern of reward {reward!r} must have one group, the number, got {compiled.groups}",
            r"Write for example 'score: (\d+)', and (?:...) for groups that are not the number.",
        )
    return compiled


def _read_number(pattern: "regex.Pattern[str]", lowest: float, highest: float, answer: str) -> float:
    text = after_thought(answer)
    try:
        matches = list(pattern.finditer(text, timeout=PATTERN_SECONDS))
    except TimeoutError:
        raise JudgeError(f"the pattern ran for over {PATTERN_SECONDS:g} s on the judge's answer{_of(text)}") from None
    if not matches:
        raise JudgeError(f"the judge's answer must hold the pattern, got{_of(text)}")
    shown = matches[-1][1] or ""
    try:
        number = float(shown)
    except ValueError:
        raise JudgeError(f"the judge must give a number, got {shown!r} in{_of(text)}") from None
    return _scaled(number, lowest, highest)


def _read_label(labels: Mapping[str, float], answer: str) -> float:
    text = after_thought(answer).casefold()
    longest_first = sorted(labels, key=len, reverse=True)
    names = "|".join(regex.escape(label) for label in longest_first)
    found = regex.findall(rf"(?<!\w)(?:{names})(?!\w)", text)
    if not found:
        raise JudgeError(f"the judge's answer must hold one of {', '.join(labels)}, got{_of(text)}")
    return labels[found[-1]]


def _read_json(field: str, lowest: float, highest: float, answer: str) -> float:
    text = after_thought(answer)
    found = [item for item in _objects(text) if field in item]
    if not found:
        raise JudgeError(f"the judge's answer must hold a JSON object with the key {field!r}, got{_of(text)}")
    number = found[-1][field]
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise JudgeError(f"the judge must give a number as {field!r}, got {number!r}"[:_SHOWN_CHARACTERS])
    return _scaled(number, lowest, highest)


def _objects(text: str) -> list[Mapping[str, Any]]:
    """Every JSON object in the text, outer ones only, in order.

    An object that does not close is read to where it breaks, and what is inside of it again. Raises JudgeError where
    that reads the text many times over, as only text that is made for it does.
    """
    decoder, objects, left = json.JSONDecoder(), [], _MOST_READINGS * (len(text) + _PIECE)
    place = 0
    while start := _OPENING.search(text, place):
        place = start.start()
        if place > _PIECE:  # an error counts the lines before it, which would be all of them each time
            text, place = text[place:], 0
        try:
            value, place = decoder.raw_decode(text, place)
            objects.append(value)
        except (ValueError, RecursionError) as error:
            left -= _FAILURE_COST + _read_to(error, text) - place
            place += 1
        if left < 0:
            raise JudgeError(f"the judge's answer must hold whole JSON objects, got{_of(text)}")
    return objects


def _read_to(error: Exception, text: str) -> int:
    """How far an object was read; to the end where a text does not close, and where the error does not say it."""
    if not isinstance(error, json.JSONDecodeError) or error.msg.startswith("Unterminated string"):
        return len(text)
    return error.pos


def _scaled(number: float, lowest: float, highest: float) -> float:
    """From 0 to 1; not a number lies in no range."""
    if not lowest <= number <= highest:
        raise JudgeError(f"the judge's number must be from {lowest:g} to {highest:g}, got {str(number)[:40]}")
    return (number - lowest) / (highest - lowest)


def _of(text: str) -> str:
    """The answer, for an error, its end if it is long: verdicts stand there."""
    shown = text.strip()
    return f" {shown!r}" if len(shown) <= _SHOWN_CHARACTERS else f" ...{shown[-_SHOWN_CHARACTERS:]!r}"
