"""Words that take an answer back: "not 5", "more than 5", "4 to 5", "5 dozen" and "5 is wrong" are not 5.

A value that is taken out of a sentence counts only where nothing beside it denies, compares or multiplies it.
"""

import re

from strop.tasks.grading.characters import plain_characters
from strop.tasks.grading.numbers import number_places


def _words(text: str) -> list[str]:
    return re.findall(r"\S+", text)


NEGATIONS = frozenset(
    _words(
        "not no never neither nor cannot cant isnt without wrong incorrect incorrectly false untrue mistaken "
        "impossible unlikely hardly doubtful nowhere unknown unclear undefined except unlike"
    )
)
NUMBER_WORDS = frozenset(
    _words(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand "
        "million billion trillion hundreds thousands millions billions trillions dozen dozens score scores gross "
        "half halves third thirds fourth fourths fifth fifths sixth sixths seventh sevenths eighth eighths ninth "
        "ninths tenth tenths hundredth hundredths thousandth thousandths quarter quarters twice thrice double "
        "triple squared cubed doubled tripled halved factorial"
    )
)
COMPARISONS = frozenset(_words("more less fewer greater larger smaller bigger higher lower above below over under"))

_NUMBER_WORD = "|".join(sorted(NUMBER_WORDS))
_MORE = "|".join(sorted(COMPARISONS))
_SIGN = r"(?:[<>]=?|!=|\\(?:leq?|geq?|neq?|[lg]t|pm|mp)(?![A-Za-z])|\+/?-)"
_DENIED = re.compile(rf"\b(?:{'|'.join(sorted(NEGATIONS))})\b|n't\b", re.IGNORECASE)
_TAKEN_BACK_BEFORE = re.compile(
    rf"\b(?:{_MORE}|other|rather)\s+than\b|\bat\s+(?:the\s+)?(?:very\s+)?(?:least|most)\b|\b(?:between|within|exceed\w*)\b"
    rf"|(?:\b(?:above|below|over|under|beyond|almost|nearly|up\s+to|but|or|{_NUMBER_WORD})(?:\s+(?:of|to|and))?|{_SIGN}|\^)"
    r"[\s$({*]*$"
    r"|(?<![A-Za-z])(?:minus|plus|negative|times|mod|choose|sqrt|log|ln|exp|sin|cos|tan|close\s+to"
    r"|(?:divided|multiplied)\s+by|(?:root|square|cube|power|log|logarithm|reciprocal|inverse|opposite)\s+of)[\s$({*]*$",
    re.IGNORECASE,
)
_TAKEN_BACK_BEHIND = re.compile(
    rf"^[\s$)}}*]*(?:{_SIGN}|\+(?!\s*\w))|^\W*(?:{_NUMBER_WORD}|or|mod|choose)\b|\b(?:{_MORE})\s+than\b"
    rf"|\b(?:or|and|to|plus|minus|by)\s+(?:an?\s+)?(?:{_MORE}|so|up|upwards|{_NUMBER_WORD})\b"
    r"|\bat\s+(?:the\s+)?(?:very\s+)?(?:least|most)\b|\b(?:or|to)\s+[$(]*-?\.?\d",
    re.IGNORECASE,
)
_MULTIPLIED_BEHIND = re.compile(r"^(?:[kKMBijnxyz]|\s[xyz]|\s*\\?(?:pi|sqrt|times|cdot)|!\s*[^\s])(?![A-Za-z])")
"""A letter for a factor: `5k`, `5x`, `5 pi`; an exclamation mark at the end of a sentence is none."""
_PART_BEFORE = re.compile(
    r"\d\s*(?:[-+*/x]|\\times|\\cdot|,?\s*and|"
    r"(?:hours?|hrs?|minutes?|mins?|feet|foot|ft|dollars?|pounds?|years?|months?|weeks?|days?),?(?:\s+and)?)\s*[$({]*$",
    re.IGNORECASE,
)
"""What makes a number a part of a larger one: `10 + 5`, `6 and 1/2`, `6 hours 30 minutes`."""
_NUMBERS_BEFORE = re.compile(r"(?:.*(?:\bis|\bare|[:=])\s)?[^A-Za-z=]*\d[^A-Za-z=]*")
"""Numbers and signs alone before another number: a pair, a list, a time."""
_TAG = re.compile(r"</?[A-Za-z]\w*>")
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n")
_REASON = re.compile(r"\b(?:because|since|as|for|given|where|so)\b", re.IGNORECASE)
_CLAUSE = re.compile(r"[,;:=]|\b(?:so|thus|hence|therefore)\b", re.IGNORECASE)
_RANGE = re.compile(r"\s*(?:-+|\u2013|\u2014|~|\.\.+|to|or|through|till|until)\s*\$?", re.IGNORECASE)
_BEHIND_NUMBER = re.compile(r"\d([^\d]*)$")
_NEARBY = 300
"""How many characters beside a value are read."""


def is_doubted(before: str, behind: str) -> bool:
    """Whether the text before a value or the text behind it takes the value back.

    Behind a value, what follows the end of its sentence or a word such as "because" does not count.
    """
    before, behind = (_TAG.sub(" ", plain_characters(part)) for part in (before[-_NEARBY:], behind[:_NEARBY]))
    behind = _REASON.split(_SENTENCE_END.split(behind, maxsplit=1)[0], maxsplit=1)[0]
    if _DENIED.search(before) or _DENIED.search(behind) or _MULTIPLIED_BEHIND.search(behind):
        return True
    return bool(_TAKEN_BACK_BEFORE.search(before) or _TAKEN_BACK_BEHIND.search(behind))


def is_doubted_at(text: str, start: int, stop: int) -> bool:
    """Whether the sentence around `text[start:stop]` takes it back; of what stands before, its own clause counts."""
    before = clause_before(text, start)
    sentence = _SENTENCE_END.split(text[max(0, start - _NEARBY) : start])[-1]
    previous = _BEHIND_NUMBER.search(sentence)
    if (previous and _RANGE.fullmatch(previous[1])) or _PART_BEFORE.search(sentence):
        return True
    return bool(_NUMBERS_BEFORE.fullmatch(sentence)) or is_doubted(before, text[stop : stop + _NEARBY])


def clause_before(text: str, place: int) -> str:
    """The part of a clause that stands before a place."""
    return _CLAUSE.split(_SENTENCE_END.split(text[max(0, place - _NEARBY) : place])[-1])[-1]


def last_undoubted_number(text: str) -> str | None:
    """The last number that stands in a text as digits; None without one, and where its sentence takes it back."""
    text = plain_characters(text)
    places = number_places(text)
    if not places or is_doubted_at(text, *places[-1]):
        return None
    return text[slice(*places[-1])]
