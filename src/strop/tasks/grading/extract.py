r"""Where an answer stands in a response: behind the thought, in the last box, behind the last marker.

The last mention wins, and an answer inside a thought does not count. All searches take time linear in the response.
"""

import re

_OPEN_THOUGHT, _CLOSE_THOUGHT = "<think>", "</think>"


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


def last_box(text: str, commands: tuple[str, ...] = (r"\boxed",)) -> str | None:
    r"""The content of the last `\boxed{...}`; None without one, and where the last one never closes."""
    start = -1
    names = "|".join(re.escape(command) for command in commands)
    for match in re.finditer(rf"(?:{names})(?=\s*\{{)", text):
        start = match.end()
    if start < 0:
        return None
    start = text.index("{", start)
    stop = closing_brace(text, start)
    return None if stop is None else text[start + 1 : stop].strip()


def closing_brace(text: str, start: int) -> int | None:
    r"""The place of the brace that closes the one at `start`; escaped braces (`\{`) do not count. None without one."""
    depth = 0
    place = start
    while place < len(text):
        match text[place]:
            case "\\":
                place += 1
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if depth == 0:
                    return place
        place += 1
    return None
