r"""Units: what stands behind a number, in one spelling.

`10\text{ cm}`, `10 cm`, `10\,\mathrm{cm}` and `10 centimetres` have the unit `cm`; `30^\circ` and `30 degrees` have
`degree`, `5th` and `5^{th}` have `ordinal`. Units are never converted: 1 m and 100 cm are different answers.
"""

import re

from strop.tasks.grading.doubt import COMPARISONS, NEGATIONS, NUMBER_WORDS

_NAMES = {
    "cm": "centimeter centimetre",
    "mm": "millimeter millimetre",
    "km": "kilometer kilometre",
    "m": "meter metre",
    "in": "inch inche",
    "ft": "foot feet",
    "mi": "mile",
    "yd": "yard",
    "kg": "kilogram",
    "g": "gram",
    "mg": "milligram",
    "lb": "pound",
    "oz": "ounce",
    "l": "liter litre",
    "ml": "milliliter millilitre",
    "s": "second sec",
    "min": "minute",
    "h": "hour hr",
    "degree": r"deg \circ ^\circ",
    "$": r"dollar usd \$",
    "cent": "cents",
    "€": "euro eur",
    "£": "gbp",
    "mph": "",
    "kmh": "kph",
}
_CANONICAL = {spelling: name for name, spellings in _NAMES.items() for spelling in [name, *spellings.split()]}
_SPEEDS = {"mi per h": "mph", "km per h": "kmh"}
_POWER_WORDS = {"sq": "2", "square": "2", "cu": "3", "cubic": "3"}
_POWER_BEHIND = {"squared": "2", "cubed": "3"}
_SINGLE_LETTERS = frozenset("mghlLs")
_MAX_WORDS = 3
_NO_UNITS = (
    NEGATIONS
    | NUMBER_WORDS
    | COMPARISONS
    | frozenset(
        re.findall(
            r"\S+",
            "pi theta alpha beta infty sqrt sin cos tan log ln exp or and is isn are was be to from mod if then but "
            "for all any at most least than between within up so either both maybe perhaps about approximately "
            "plus minus base except only equals a an the i e x y z n k",
        )
    )
)
"""Words behind a number that say something of it: `5 or six`, `5 dozen` and `5 is wrong` have no unit."""
_POWER = r"(?:\s*\^\s*(?:\{\s*(\d)\s*\}|(\d)))?"
_AS_TEXT = re.compile(rf"(?P<rest>.*\S)\s*\\text\{{\s*(?P<name>[A-Za-z][A-Za-z ./^0-9]*?)\s*\}}{_POWER}", re.DOTALL)
_AS_WORDS = re.compile(rf"(?P<rest>.*[\d}})])\s*(?P<name>[A-Za-z]+(?:[ /][A-Za-z]+){{0,2}}){_POWER}", re.DOTALL)
_AS_DEGREES = re.compile(r"(?P<rest>.*\S)\s*\^\\circ\s*(?P<scale>\\text\{\s*[CF]\s*\}|[CF]|)\s*", re.DOTALL)
_AS_ORDINAL = re.compile(r"(?P<rest>\d+)\s*(?:\^\s*)?(?:\{\s*)?(?:\\text\{\s*)?(?P<letters>st|nd|rd|th)[\s}]*")
_ORDINAL_LETTERS = {"1": "st", "2": "nd", "3": "rd"}
_AS_BASE = re.compile(r"(?P<rest>[0-9A-Fa-f]+)_\{?(?P<base>\d{1,2})\}?")


def split_unit(text: str) -> tuple[str, str]:
    """Splits a text in one spelling (`latex.unified`) into value and unit; the unit is empty where there is none."""
    degrees = _AS_DEGREES.fullmatch(text)
    if degrees:
        return degrees["rest"].strip(), "degree" + re.sub(r"\\text|\W", "", degrees["scale"])
    ordinal = _AS_ORDINAL.fullmatch(text)
    if ordinal and ordinal["letters"] == _ordinal_letters(ordinal["rest"]):
        return ordinal["rest"], "ordinal"
    base = _AS_BASE.fullmatch(text)
    if base:
        return base["rest"], f"base {base['base']}"
    for pattern in (_AS_TEXT, _AS_WORDS):
        match = pattern.fullmatch(text)
        if match and (
            _may_be_unit(match["name"]) if pattern is _AS_TEXT else _is_unit(match["name"], match["rest"], text)
        ):
            return match["rest"].strip(), _canonical(match["name"], match[3] or match[4] or "")
    return text, ""


def _ordinal_letters(digits: str) -> str:
    """What stands behind a number that counts places: `2^{nd}` is such a one, `2^{st}` a power."""
    return "th" if digits[-2:-1] == "1" else _ORDINAL_LETTERS.get(digits[-1], "th")


def _may_be_unit(name: str) -> bool:
    """Whether a text is at most three words, none of which says something of the number; behind `cm`, "squared" may."""
    words = [word if len(word) == 1 else word.lower() for word in re.findall(r"[A-Za-z]+", name)]
    if len(words) > 1 and words[-1] in _POWER_BEHIND:
        words.pop()
    return len(words) <= _MAX_WORDS and not any(word in _NO_UNITS for word in words)


def _is_unit(name: str, rest: str, text: str) -> bool:
    """Whether bare letters behind a number are a unit: known ones, and words; `5x` and `5 or 6` have none."""
    words = re.split(r"[ /]", name)
    if not _may_be_unit(name):
        return False
    if _singular(words[0].lower()) in _CANONICAL and (len(name) > 1 or name in _SINGLE_LETTERS):
        return len(name) > 1 or text[len(rest)] == " "
    return len(words[0]) > 3 and words[0].islower()


def _canonical(name: str, power: str) -> str:
    words = [word for word in re.split(r"[ .]+", name.lower().replace("^", "").replace("/", " per ")) if word]
    for word in words:
        power = _POWER_WORDS.get(word) or _POWER_BEHIND.get(word) or power
    kept = [_singular(word) for word in words if word not in _POWER_WORDS and word not in _POWER_BEHIND]
    unit = " ".join(_CANONICAL.get(word, word) for word in kept)
    unit = _SPEEDS.get(unit, unit)
    return unit + (f"^{power}" if power and not unit.endswith(power) else "")


def _singular(word: str) -> str:
    if word in _CANONICAL:
        return word
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
