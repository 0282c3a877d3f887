r"""Where the answer stands, for the graders whose answer may stand anywhere."""

from typing import Literal

from strop.tasks.grading.extract import (
    BOXES,
    after_thought,
    answer_line,
    last_box,
    last_marked,
    last_tagged,
)

Place = Literal["response", "last_line", "answer_line", "box", "tag", "marker", "any"]
r"""`response`: all behind the thought. `tag`: between `<answer>` and `</answer>`. `marker`: behind `####`. `box`: in
`\boxed{}` or `\fbox{}`. `any`: the first found of box, tag, answer line and marker, else all behind the thought."""


def placed_answer(response: str, place: Place) -> str | None:
    """The text that stands where the answer must stand; None where nothing does."""
    text = after_thought(response)
    match place:
        case "response":
            return text.strip() or None
        case "last_line":
            return text.strip().rpartition("\n")[2].strip() or None
        case "answer_line":
            return answer_line(text)
        case "box":
            return last_box(text, BOXES)
        case "tag":
            return last_tagged(text, "answer")
        case "marker":
            return last_marked(text, "####")
        case "any":
            found = (last_box(text, BOXES), last_tagged(text, "answer"), answer_line(text), last_marked(text, "####"))
            return next((answer for answer in found if answer), text.strip() or None)


def missing(place: Place) -> str:
    """The reason for a 0 where no answer was found."""
    return "the answer is empty" if place in ("response", "last_line", "any") else f"no answer found as `{place}`"
