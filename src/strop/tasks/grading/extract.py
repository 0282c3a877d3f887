r"""Where an answer stands in a response: behind the thought, in the last box, behind the last marker or label.

The last mention wins, and an answer inside a thought does not count. All searches take time linear in the response.
"""

import re

from strop.tasks.grading.doubt import clause_before, is_doubted

_OPEN_THOUGHT, _CLOSE_THOUGHT = "<think>", "</think>"

BOX = (r"\boxed",)
BOXES = (r"\boxed", r"\fbox")

_BEFORE = r"[\s*_#>`~\-]*"
_AROUND = r"[\s*_`~]*"
_LABEL_LINE = re.compile(
    rf"^{_BEFORE}(?:the\s+)?(?:final\s+)?answer{_AROUND}(?:(?::|=|\bis\b\s*:?){_AROUND}(?P<rest>\S.*)?|)$",
    re.IGNORECASE,
)
_LABEL = re.compile(r"\banswer\b(?:\s+(?:is\b|would\s+be\b|must\s+be\b|=)|\s*[*_]*\s*[:=])(?:\s*:)?", re.IGNORECASE)
_BARE_DECORATION = re.compile(r"^[\s*_`>~]+|[\s*_`~]+$")


def after_thought(response: str) -> str:
    """The part of a response that answers: what follows the last closed thought, up to one that never closes.

    A closing tag without an opening one counts too: the chat template opened the thought.
    """
    answer = response.rpartition(_CLOSE_THOUGHT)[2]
    return answer.partition(_OPEN_THOUGHT)[0]


def last_marked(text: str, marker: str) -> str | None:
    """The rest of the line behind the last `marker`; None without a marker."""
    _, found, rest = text.rpartition(marker)
    return rest.partition("\n")[0].strip() if found else None


def last_tagged(text: str, tag: str) -> str | None:
    """What stands between the last `<tag>` and its `</tag>`; None where the last one does not close."""
    _, found, rest = text.rpartition(f"<{tag}>")
    content, closed, _ = rest.partition(f"</{tag}>")
    return content.strip() if found and closed else None


def last_box(text: str, commands: tuple[str, ...] = BOX) -> str | None:
    r"""The content of the last whole `\boxed{...}`, the last to close; None without one. One walk over the braces."""
    names = "|".join(re.escape(command) for command in commands)
    opened: list[int] = []
    content: tuple[int, int] | None = None
    for match in re.finditer(rf"(?:{names})\s*\{{|\\.|[{{}}]", text, re.DOTALL):
        token = match.group()
        if token == "{":
            opened.append(-1)
        elif token == "}":
            start = opened.pop() if opened else -1
            content = (start, match.start()) if start >= 0 else content
        elif token.endswith("{") and len(token) > 2:
            opened.append(match.end())
    return None if content is None else text[slice(*content)].strip()


def answer_line(text: str) -> str | None:
    """What a line such as `Final answer: 5` or `**Answer:** 5` says, the last of its kind.

    Of a line with the label alone it is the next line that holds anything. None without such a line; decoration of
    Markdown is taken off.
    """
    lines = text.splitlines()
    for place in range(len(lines) - 1, -1, -1):
        if "nswer" not in lines[place] and "NSWER" not in lines[place]:
            continue
        match = _LABEL_LINE.match(lines[place]) if len(lines[place]) < 2000 else None
        if match:
            rest = match["rest"]
            return undecorated(rest) if rest else _first_line(lines[place + 1 :])
    return None


def _first_line(lines: list[str]) -> str:
    return next((undecorated(line) for line in lines if undecorated(line)), "")


def last_labelled(text: str) -> str | None:
    """The rest of the line behind the last "answer is" or "answer:"; None without one, and in "no answer is ..."."""
    found = None
    for match in _LABEL.finditer(text):
        found = match
    if found is None or is_doubted(clause_before(text, found.start()), ""):
        return None
    return undecorated(text[found.end() :].partition("\n")[0])


def undecorated(text: str) -> str:
    """A line without spaces and Markdown's signs for bold, italics and code around it."""
    text = text.strip()
    while text:
        bare = _BARE_DECORATION.sub("", text)
        if bare == text:
            break
        text = bare
    return text
