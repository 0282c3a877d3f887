"""Overlap of words, as SQuAD measures it (Rajpurkar et al., 2016): the harmonic mean of precision and recall.

Case, punctuation and the English articles do not count; the best of several gold answers does. Departures from the
published script: a character of Chinese, Japanese or Korean is a word, and a gold answer made of articles alone keeps
them, so that an empty answer never earns a point.
"""

import re
import unicodedata
from collections import Counter

from strop.tasks.grading.exact import gold_texts
from strop.tasks.grading.grade import GoldError, Grade, GradeMode
from strop.tasks.grading.numbers import parse_number
from strop.tasks.grading.options import GraderOptions
from strop.tasks.grading.place import Place, missing, placed_answer

_ARTICLES = frozenset(("a", "an", "the"))
_DIGIT = re.compile(r"\d")
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]|[^\s\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+"
)


class F1Options(GraderOptions):
    """Where the answer stands, how many right ones there are, and whether part of a point is given."""

    place: Place = "response"
    """Where the answer stands in the response."""
    alternatives: bool = False
    """Whether the gold answer is a JSON list of texts, the best of which counts."""
    threshold: float | None = None
    """With a number, the score is 1 from that F1 on, else 0; None gives the F1 itself."""


_DEFAULTS = F1Options()


def grade_f1(response: str, gold: str, mode: GradeMode = GradeMode.STRICT, options: F1Options = _DEFAULTS) -> Grade:
    """Grades by the overlap of words; LENIENT, accents do not count, and numbers count by value.

    Raises GoldError for a gold answer without a word.
    """
    golds = [_gold_words(text, mode) for text in gold_texts(gold, alternatives=options.alternatives)]
    answer = placed_answer(response, options.place)
    if answer is None:
        return Grade(0.0, None, mode, missing(options.place))
    words = _words(answer, mode)
    overlap = max(_f1(words, gold_words) for gold_words in golds)
    score = overlap if options.threshold is None else float(overlap >= options.threshold)
    return Grade(score, answer, mode, f"the F1 of the words is {overlap:.3f}")


def _f1(words: list[str], gold_words: list[str]) -> float:
    common = (Counter(words) & Counter(gold_words)).total()
    return 2 * common / (len(words) + len(gold_words)) if common else 0.0


def _gold_words(text: str, mode: GradeMode) -> list[str]:
    words = _words(text, mode) or _all_words(text, mode)
    if not words:
        raise GoldError(f"a gold answer must have a word, got {text[:80]!r}")
    return words


def _words(text: str, mode: GradeMode) -> list[str]:
    return [word for word in _all_words(text, mode) if word not in _ARTICLES]


def _all_words(text: str, mode: GradeMode) -> list[str]:
    text = unicodedata.normalize("NFKC", text).casefold()
    if mode is GradeMode.STRICT:
        return _WORD.findall(_without_punctuation(text))
    text = "".join(sign for sign in unicodedata.normalize("NFD", text) if not unicodedata.combining(sign))
    return [word for part in text.split() for word in _valued(part)]


def _valued(part: str) -> list[str]:
    number = parse_number(part.strip(".,;:!?()\"'")) if _DIGIT.search(part) else None
    return [str(number)] if number is not None else _WORD.findall(_without_punctuation(part))


def _without_punctuation(text: str) -> str:
    return "".join(sign for sign in text if not unicodedata.category(sign).startswith(("P", "S")))
