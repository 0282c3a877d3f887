r"""Where an answer stands in a response: behind the thought, in the last box, behind the last marker or label.

The last mention wins, and an answer inside a thought does not count. All searches take time linear in the response.
"""

import re

from strop.tasks.grading.doubt import clause_before, is_doubted

_THOUGHT_TAG = re.compile(r"<(/?)think(?:ing)?\s*>", re.IGNORECASE)

BOX = (r"\boxed",)
BOXES = (r"\boxed", r"\fbox")

_BEFORE = r"[\s*_#>`~\-]*"
_AROUND = r"[\s*_`~]*"
_LABEL_LINE = re.compile(
    rf"^{_BEFORE}(?:the\s+)?(?:final\s+)?answer{_AROUND}(?:(?::|=|\bis\b\s*:?){_AROUND}(?P<rest>\S.*)?|)$",
    re.IGNORECASE,
)
_LABEL = re.compile(r"\banswer\b(?:\s+(?:is\b|would\s+be\b|must\s+be\b|=)|\s*[*_]*\s*[:=])(?:\s*:)?", re.IGNORECASE)
_EMPHASIS = re.compile(r"<(b|i|u|em|strong|code)>([^<]*)</\1>", re.IGNORECASE)
_DECORATION = "*_`~" + "".join(chr(code) for code in range(0x3001) if chr(code).isspace())


def after_thought(response: str) -> str:
    """The part of a response that answers: what follows the last closed thought, up to one that never closes.

    Thoughts may hold thoughts; `<think>` and `<thinking>` open one, in any case. A closing tag without an opening one
    counts too: the chat template opened the thought.
    """
    depth, start, stop = 0, 0, len(response)
    for tag in _THOUGHT_TAG.finditer(response):
        if not tag[1]:
            stop = tag.start() if depth == 0 else stop
            depth += 1
            continue
        depth = max(depth - 1, 0)
        if depth == 0:
            start, stop = tag.end(), len(response)
    return response[start:stop]


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
    r"""The content of the last whole `\boxed{...}`, the last to close; None without one. One walk over the braces.

    A box that holds nothing but a box is that box.
    """
    names = "|".join(re.escape(command) for command in commands)
    opened: list[tuple[int, int]] = []
    box = content = None
    for match in re.finditer(rf"(?:{names})\s*\{{|\\.|[{{}}]", text, re.DOTALL):
        token = match.group()
        if token == "{":
            opened.append((-1, -1))
        elif token == "}":
            command, start = opened.pop() if opened else (-1, -1)
            if start < 0:
                continue
            inside = (start, match.start())
            content = content if box is not None and _is_all(box, text, inside) else inside
            box = (command, match.end())
        elif token.endswith("{") and len(token) > 2:
            opened.append((match.start(), match.end()))
    return None if content is None else text[slice(*content)].strip()


def _is_all(part: tuple[int, int], text: str, span: tuple[int, int]) -> bool:
    """Whether a part of a text is all that a span of it holds, spaces aside."""
    return span[0] <= part[0] and not (text[span[0] : part[0]].strip() or text[part[1] : span[1]].strip())


def answer_line(text: str) -> str | None:
    """What a line such as `Final answer: 5` or `**Answer:** 5` says, the last of its kind.

    Of a line with the label alone it is the next line that holds anything. None without such a line; decoration of
    Markdown is taken off.
    """
    lines = text.splitlines()
    for place in range(len(lines) - 1, -1, -1):
        if "nswer" not in lines[place] and "NSWER" not in lines[place]:
            continue
        match = _LABEL_LINE.match(_unmarked(lines[place])) if len(lines[place]) < 2000 else None
        if match:
            rest = match["rest"]
            quote = ">" if lines[place].lstrip().startswith(">") else ""
            return undecorated(rest) if rest else _first_line(lines[place + 1 :], quote)
    return None


def _first_line(lines: list[str], quote: str) -> str:
    """The first line that holds anything; a sign of quotation before it is taken off where the label has one too."""
    bare = (undecorated(line.lstrip().removeprefix(quote)) for line in lines)
    return next(filter(None, bare), "")


def last_labelled(text: str) -> str | None:
    """The rest of the line behind the last "answer is" or "answer:"; None without one, and in "no answer is ..."."""
    found = None
    for match in _LABEL.finditer(text):
        found = match
    if found is None or is_doubted(clause_before(text, found.start()), ""):
        return None
    return undecorated(text[found.end() :].partition("\n")[0])


def undecorated(text: str) -> str:
    """A line without spaces and Markdown's signs for bold, italics and code around it, and without HTML's in it."""
    return _unmarked(text).strip(_DECORATION)


def _unmarked(text: str) -> str:
    """The text without HTML's signs for emphasis."""
    return _EMPHASIS.sub(r"\2", text)
