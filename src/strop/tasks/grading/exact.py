"""The answer must be the gold answer, letter by letter."""

import json
import re
import unicodedata

from strop.tasks.grading.extract import undecorated
from strop.tasks.grading.grade import GoldError, Grade, GradeMode
from strop.tasks.grading.options import GraderOptions
from strop.tasks.grading.place import Place, missing, placed_answer


class ExactOptions(GraderOptions):
    """Where the answer stands, and whether there are several right ones."""

    place: Place = "response"
    """Where the answer stands in the response."""
    alternatives: bool = False
    """Whether the gold answer is a JSON list of texts, each of them right."""


_DEFAULTS = ExactOptions()


def grade_exact(
    response: str, gold: str, mode: GradeMode = GradeMode.STRICT, options: ExactOptions = _DEFAULTS
) -> Grade:
    """Grades by equality of texts; spaces around the answer, and how an accent is encoded, never count.

    LENIENT: neither do case, width of spaces, Markdown's decoration and a full stop at the end.
    Raises GoldError for an empty gold answer.
    """
    golds = {_normal(text, mode) for text in gold_texts(gold, alternatives=options.alternatives)}
    answer = placed_answer(response, options.place)
    if answer is None:
        return Grade(0.0, None, mode, missing(options.place))
    if _normal(answer, mode) in golds:
        return Grade(1.0, answer, mode, "the text is the gold answer")
    return Grade(0.0, answer, mode, "the text differs from the gold answer")


def gold_texts(gold: str, *, alternatives: bool) -> list[str]:
    """The right answers, none of them empty; raises GoldError where there is none, or no JSON list of texts."""
    if not alternatives:
        texts: object = [gold]
    else:
        try:
            texts = json.loads(gold)
        except ValueError as error:
            raise GoldError(f"a gold answer with alternatives must be a JSON list, got {gold[:80]!r}") from error
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise GoldError(f"gold answers must be texts that are not empty, got {gold[:80]!r}")
    return texts


def _normal(text: str, mode: GradeMode) -> str:
    text = unicodedata.normalize("NFC", text).strip()
    if mode is GradeMode.STRICT:
        return text
    return re.sub(r"\s+", " ", undecorated(undecorated(text).removesuffix("."))).strip().casefold()
