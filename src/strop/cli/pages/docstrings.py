"""What a source file says of itself, read without importing it: the files of `algorithms` import torch."""

import ast
import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import strop

PACKAGE = Path(strop.__file__).parent

_LABEL = re.compile(r"^(Sources?|Deviations?|Defaults|Reads)\b")


def docstring(path: str) -> str:
    """Returns the docstring of a file, named from the package's folder on."""
    text = ast.get_docstring(ast.parse((PACKAGE / path).read_text(encoding="utf-8")))
    if text is None:
        raise ValueError(f"{path} must have a docstring, got none")
    return text


def named_functions(path: str, table: str) -> dict[str, str]:
    """Returns a table of names and `module.function` from a file: the literal that is given to `table`."""
    tree = ast.parse((PACKAGE / path).read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table:
            [literal] = [part for part in ast.walk(node) if isinstance(part, ast.Dict)]
            found: dict[str, str] = ast.literal_eval(literal)
            return found
    raise ValueError(f"{path} must have the table {table}, got none")


def as_markdown(text: str) -> str:
    """Returns a docstring as Markdown: indented blocks fenced, sources and deviations as paragraphs of their own."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_paragraphs(text.splitlines()))).strip() + "\n"


def _paragraphs(lines: list[str]) -> Iterator[str]:
    for is_block, part in groupby(_with_kind(lines), key=lambda pair: pair[0]):
        found = [line for _, line in part]
        if is_block:
            yield from ("```", *(line[4:] for line in _trimmed(found)), "```", "")
        else:
            for line in found:
                if label := _LABEL.match(line):
                    yield from ("", line.replace(label[0], f"**{label[0]}**", 1))
                else:
                    yield line


def _with_kind(lines: list[str]) -> Iterator[tuple[bool, str]]:
    """Each line with whether it is in an indented block; an empty line is in one where the next line is."""
    for place, line in enumerate(lines):
        following = next((later for later in lines[place:] if later), "")
        yield following.startswith("    ") and (bool(line) or _was_block(lines, place)), line


def _was_block(lines: list[str], place: int) -> bool:
    before = next((line for line in reversed(lines[:place]) if line), "")
    return before.startswith("    ")


def _trimmed(lines: list[str]) -> list[str]:
    return lines[: max(place for place, line in enumerate(lines) if line) + 1]
