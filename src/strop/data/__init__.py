"""Data: rows are read from a source, rendered to prompts once, and served exactly once an epoch.

sources/ --> DataRow --> prompts.py (task, renderer.py) --> PromptTable --> stream.py --> Prompt
"""

from strop.data.errors import DataError, MissingColumnError
from strop.data.prompts import PromptTable, build_prompts, prompt_budget
from strop.data.renderer import ChatRenderer, build_renderer
from strop.data.report import DataReport
from strop.data.rows import DataRow
from strop.data.sources import load_rows
from strop.data.stream import PromptStream

__all__ = [
    "ChatRenderer",
    "DataError",
    "DataReport",
    "DataRow",
    "MissingColumnError",
    "PromptStream",
    "PromptTable",
    "build_prompts",
    "build_renderer",
    "load_rows",
    "prompt_budget",
]
