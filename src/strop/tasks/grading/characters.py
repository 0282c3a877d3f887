r"""Unicode written in ASCII and LaTeX, so that nothing behind this file has to know of it.

Digits of all scripts become 0-9, all dashes that mean minus become `-`, all spaces one plain space; superscripts,
vulgar fractions, roots, Greek letters and relation signs become the LaTeX that means the same.
"""

import re
import unicodedata

_SIGNS = {
    **dict.fromkeys("\u2212\ufe63\uff0d\u2010\u2011\u2043", "-"),
    **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f", ""),
    **dict.fromkeys("\u2044\u2215\u00f7\uff0f", "/"),
    **dict.fromkeys("\u2018\u2019\u2032\u02bc", "'"),
    **dict.fromkeys("\u00d7\u22c5\u00b7\u2219\u2217", r"\times "),
    **dict.fromkeys("\u221a", r"\sqrt "),
    "\u066b": ".",
    "\u066c": ",",
    "\u221e": r"\infty ",
    "\u2264": r"\le ",
    "\u2265": r"\ge ",
    "\u2260": r"\ne ",
    "\u2208": r"\in ",
    "\u222a": r"\cup ",
    "\u2229": r"\cap ",
    "\u2205": r"\emptyset ",
    "\u00b0": r"^\circ ",
    "\u00b1": r"\pm ",
    "\u2213": r"\mp ",
    "\u2192": r"\to ",
    "\u211d": r"\mathbb{R}",
    "\u2124": r"\mathbb{Z}",
    "\u2115": r"\mathbb{N}",
    "\u211a": r"\mathbb{Q}",
}
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₍₎", "0123456789+-()", strict=True))
_RAISED = re.compile(f"[{''.join(_SUPERSCRIPTS)}]+")
_LOWERED = re.compile(f"[{''.join(_SUBSCRIPTS)}]+")
_FOREIGN = re.compile(r"[^\x00-\x7f]")
_MINUS_DASH = re.compile(r"(?<![0-9A-Za-z)}\s])\s*[\u2013\u2014](?=\s*[\d.\\$])|^[\u2013\u2014](?=\s*[\d.\\$])")


def plain_characters(text: str) -> str:
    """The text with every character that has an ASCII or LaTeX spelling written that way."""
    if text.isascii():
        return text
    text = _RAISED.sub(lambda run: "^{" + "".join(_SUPERSCRIPTS[sign] for sign in run.group()) + "}", text)
    text = _LOWERED.sub(lambda run: "_{" + "".join(_SUBSCRIPTS[sign] for sign in run.group()) + "}", text)
    text = _MINUS_DASH.sub("-", text)
    return _FOREIGN.sub(lambda match: _plain(match.group()), text)


def _plain(character: str) -> str:
    if character in _SIGNS:
        return _SIGNS[character]
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if character.isspace():
        return " "
    name = unicodedata.name(character, "")
    if name.startswith("VULGAR FRACTION"):
        return _fraction(character)
    if name.startswith(("GREEK SMALL LETTER ", "GREEK CAPITAL LETTER ")) and len(name.split()) == 4:
        return _greek(name)
    if name.startswith("FULLWIDTH "):
        return unicodedata.normalize("NFKC", character)
    return character


def _fraction(character: str) -> str:
    top, slash, bottom = unicodedata.normalize("NFKC", character).partition("\N{FRACTION SLASH}")
    return rf"\frac{{{top}}}{{{bottom}}}" if slash and top and bottom else character


def _greek(name: str) -> str:
    _, size, _, letter = name.split()
    letter = "lambda" if letter == "LAMDA" else letter.lower()
    return rf"\{letter if size == 'SMALL' else letter.capitalize()} "
