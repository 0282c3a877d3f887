"""Prompt tables made by hand: row i has the id `made:i`, the column n = i and two tokens."""

import numpy as np

from strop.data import DataRow, PromptTable, RenderedRow
from strop.records import Message


def make_table(num_rows: int, first_token: int = 0, source: str = "made") -> PromptTable:
    rows = (
        RenderedRow(
            row=DataRow(row_id=f"{source}:{index}", columns={"n": index}, source=source),
            messages=(Message(role="user", content=str(index)),),
            token_ids=np.array([first_token, index]),
            task="columns",
        )
        for index in range(num_rows)
    )
    return PromptTable(tuple(rows))
