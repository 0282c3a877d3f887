"""Data: rows are read from a source, rendered to prompts once, and served exactly once an epoch.

    sources/ --> SourceRows --> prompts.py (task, renderer.py) --> PromptTable --> stream.py, mixture.py --> Prompt
                                                              \\--> SourceReport --> DataReport

transcript.py keeps conversations of several turns token-exact.
"""

from strop.data.errors import DataError, MissingColumnError
from strop.data.mixture import DataPart, MixtureStream, build_stream, data_parts, mixture_weights
from strop.data.prompts import build_prompts, prompt_budget
from strop.data.renderer import ChatRenderer, build_renderer
from strop.data.report import DataReport, Duplicates, SourceReport
from strop.data.rows import BadRow, DataRow, SourceRows
from strop.data.sources import load_rows, read_source
from strop.data.stream import PromptStream
from strop.data.table import PromptTable, RenderedRow
from strop.data.transcript import Transcript

__all__ = [
    "BadRow",
    "ChatRenderer",
    "DataError",
    "DataPart",
    "DataReport",
    "DataRow",
    "Duplicates",
    "MissingColumnError",
    "MixtureStream",
    "PromptStream",
    "PromptTable",
    "RenderedRow",
    "SourceReport",
    "SourceRows",
    "Transcript",
    "build_prompts",
    "build_renderer",
    "build_stream",
    "data_parts",
    "load_rows",
    "mixture_weights",
    "prompt_budget",
    "read_source",
]
