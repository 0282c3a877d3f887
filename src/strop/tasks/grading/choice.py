r"""Multiple choice: the answer is a letter, or several.

`B`, `(B)`, `B.`, `\text{B}` and `B) Paris` are the letter B. The letter stands in the last box, on the answer line, or
is all of the response.
"""

import re

from pydantic import Field

from strop.tasks.grading.doubt import is_doubted, is_doubted_at
from strop.tasks.grading.extract import BOXES, after_thought, answer_line, last_box, last_labelled, undecorated
from strop.tasks.grading.grade import GoldError, Grade, GradeMode
from strop.tasks.grading.latex import normal_text, unified
from strop.tasks.grading.options import GraderOptions


class ChoiceOptions(GraderOptions):
    """Which letters there are."""

    letters: str = Field(default="ABCDEFGHIJ", pattern=r"^[A-Z]+$")
    """The letters that may be chosen."""
    several: bool = False
    """Whether several letters may be right, in any order: `A, C`, `AC` and `C and A` are then the same."""


_DEFAULTS = ChoiceOptions()
_MAX_LINE = 300
_ONE = re.compile(r"\(?\s*([A-Za-z])\s*(?:[).:](?P<meaning>\s.*)?)?", re.DOTALL)
_SEVERAL = re.compile(r"[A-Z](?:(?:\s*(?:,|;|&|\band\b)\s*|\s*)[A-Z])*")
_MENTIONED = re.compile(r"\(([A-Z])\)|\b(?:option|choice)\s+\(?([A-Z])\b", re.IGNORECASE)
_BRACKETED = re.compile(r"\(([A-Za-z])\)")
_WORD_BEHIND = {"I": "is|because|since", "A": "is|was|seems|because|since|as|and|or|but|fits|must|would"}
_ALONE = re.compile(
    r"(?<![A-Za-z'])(?:([B-HJ-Z])|"
    + "|".join(rf"({letter})(?! (?!(?:{words})\b)[a-z])" for letter, words in _WORD_BEHIND.items())
    + r")(?![A-Za-z'])"
)
"""A letter that stands alone, and is not the word that begins "I think" or "A cat"."""
_OPTION = re.compile(r"(?<![A-Za-z'])(?:\(([A-Za-z])\)|([A-Z])[).:](?=\s|$))")
_TAKEN_BACK = re.compile(
    r"\s*[-,;:]?\s*(?:(?:and|or)\s+(?:\(|[A-Z]\b)|(?:is|was|isn't|wasn't|cannot|can't)\s.*\b(?:not|wrong|incorrect|false|right|true)\b"
    r"|(?:definitely\s+|certainly\s+)?(?:not|wrong|incorrect|false)\W*$)",
    re.IGNORECASE | re.DOTALL,
)
"""What follows the letter where it is no text of an option: `B) is wrong`, `(B) or (C)`."""
_LETTER_LINE = re.compile(r"^\W*([A-Z])(?:[).:]\s.*|\W*)$", re.MULTILINE)


def grade_choice(
    response: str, gold: str, mode: GradeMode = GradeMode.STRICT, options: ChoiceOptions = _DEFAULTS
) -> Grade:
    """Grades the chosen letters.

    LENIENT: "the answer is B" may stand inside a sentence, and without any such label the one letter in brackets or
    behind "option" counts, else the one letter that the last line has. A response that names several options without a
    label has chosen none, nor has "not B". Raises GoldError where the gold answer is none of the letters.
    """
    wanted = _letters(gold, options)
    if not wanted:
        raise GoldError(f"a gold choice must be of the letters {options.letters}, got {gold[:80]!r}")
    answer = _answer(after_thought(response), mode, options)
    if not answer:
        return Grade(0.0, answer, mode, "no choice found")
    chosen = _letters(answer, options)
    if not chosen:
        return Grade(0.0, answer, mode, f"{answer[:80]!r} is no choice of {options.letters}")
    return Grade(float(chosen == wanted), answer, mode, f"{''.join(sorted(chosen))} was chosen")


def _answer(text: str, mode: GradeMode, options: ChoiceOptions) -> str | None:
    labelled = last_box(text, BOXES) or answer_line(text)
    if labelled:
        return labelled
    whole = text.strip()
    if mode is GradeMode.STRICT or (len(whole) <= _MAX_LINE and _letters(whole, options)):
        return whole if len(whole) <= _MAX_LINE else None
    return _loosely(text, options)


def _loosely(text: str, options: ChoiceOptions) -> str | None:
    labelled = last_labelled(text)
    if labelled:
        found = list(_BRACKETED.finditer(labelled)) or _alone(labelled, options)
        if options.several or len(_distinct(found)) != 1:
            return labelled
        doubted = is_doubted(labelled[: found[0].start()], labelled[found[-1].end() :])
        return None if doubted else _distinct(found).pop()
    mentioned = list(_MENTIONED.finditer(text)) or list(_LETTER_LINE.finditer(text))
    last_line = text.rstrip().rpartition("\n")[2]
    if not mentioned:
        text, mentioned = last_line, _alone(last_line, options)
    chosen = _distinct(mentioned)
    if len(chosen) != 1 or any(is_doubted_at(text, *_place(match)) for match in mentioned):
        return None
    return chosen.pop()


def _alone(text: str, options: ChoiceOptions) -> list[re.Match[str]]:
    return [match for match in _ALONE.finditer(text) if _letter(match) in options.letters]


def _distinct(matches: list[re.Match[str]]) -> set[str]:
    return {_letter(match) for match in matches}


def _place(match: re.Match[str]) -> tuple[int, int]:
    return match.span(match.lastindex or 0)


def _letter(match: re.Match[str]) -> str:
    return next(group for group in match.groups() if group).upper()


def _letters(text: str, options: ChoiceOptions) -> frozenset[str]:
    """The letters that a text wholly is; empty where it is none."""
    text = undecorated(text)
    if "\\" in text or "$" in text:
        text = normal_text(unified(text))
    one = _ONE.fullmatch(text)
    if one:
        meaning = one["meaning"] or ""
        others = {(first or second).upper() for first, second in _OPTION.findall(meaning)} - {one[1].upper()}
        taken_back = others or _TAKEN_BACK.match(meaning)
        letters = frozenset() if taken_back else frozenset(one[1].upper())
    elif options.several and _SEVERAL.fullmatch(text.strip("() .")):
        letters = frozenset(letter for letter in text if letter.isupper())
    else:
        letters = frozenset()
    return letters if letters <= frozenset(options.letters) else frozenset()
