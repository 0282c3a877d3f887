r"""Multiple choice: the answer is a letter, or several.

`B`, `(B)`, `B.`, `\text{B}` and `B) Paris` are the letter B. The letter stands in the last box, on the answer line, or
is all of the response.
"""

import re

from pydantic import Field

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
_ONE = re.compile(r"\(?\s*([A-Za-z])\s*(?:[).:](?:\s.*)?)?", re.DOTALL)
_SEVERAL = re.compile(r"[A-Z](?:(?:\s*(?:,|;|&|\band\b)\s*|\s*)[A-Z])*")
_MENTIONED = re.compile(r"\(([A-Z])\)|\b(?:option|choice)\s+\(?([A-Z])\b", re.IGNORECASE)
_BRACKETED = re.compile(r"\(([A-Za-z])\)")
_ALONE = re.compile(r"(?<![A-Za-z'])([A-Z])(?![A-Za-z'])")


def grade_choice(
    response: str, gold: str, mode: GradeMode = GradeMode.STRICT, options: ChoiceOptions = _DEFAULTS
) -> Grade:
    """Grades the chosen letters.

    LENIENT: "the answer is B" may stand inside a sentence, and without any such label the last letter in brackets or
    behind "option" counts, else the one letter that the last line has. Raises GoldError where the gold answer is none
    of the letters.
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
        bracketed = {letter.upper() for letter in _BRACKETED.findall(labelled)}
        alone = bracketed or {letter for letter in _ALONE.findall(labelled) if letter in options.letters}
        return alone.pop() if len(alone) == 1 and not options.several else labelled
    mentioned: list[str] = [first or second for first, second in _MENTIONED.findall(text)]
    if mentioned:
        return mentioned[-1]
    letters: list[str] = _ALONE.findall(text.strip().rpartition("\n")[2])
    return letters[0] if len(letters) == 1 and letters[0] in options.letters else None


def _letters(text: str, options: ChoiceOptions) -> frozenset[str]:
    """The letters that a text wholly is; empty where it is none."""
    text = undecorated(text)
    if "\\" in text or "$" in text:
        text = normal_text(unified(text))
    one = _ONE.fullmatch(text)
    if one:
        letters = frozenset(one[1].upper())
    elif options.several and _SEVERAL.fullmatch(text.strip("() .")):
        letters = frozenset(letter for letter in text if letter.isupper())
    else:
        letters = frozenset()
    return letters if letters <= frozenset(options.letters) else frozenset()
