"""What was found in the data, for a person to read before a run starts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strop.data.rows import NUM_SHOWN_BAD_ROWS, BadRow, SourceRows
from strop.data.table import PromptTable, RenderedRow

NUM_SHOWN_PLACES = 3


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Counts and lengths of one source; lengths are in tokens, of the prompts that were kept."""

    name: str
    task: str
    num_rows: int
    """Rows that were read, bad ones too."""
    num_prompts: int
    """Prompts that are served: rows without the bad and the overlong ones."""
    bad: tuple[BadRow, ...]
    """Rows that cannot be used, and were left out."""
    num_overlong: int
    """Prompts longer than the budget, which were dropped."""
    longest_overlong_tokens: int | None
    """The longest of these; None where there is none."""
    num_without_gold: int
    """Prompts without a gold answer."""
    shortest_tokens: int
    longest_tokens: int
    mean_tokens: float
    special: tuple[str, ...] = ()
    """Places of prompts whose messages hold special tokens as text, which are such tokens in the prompt."""

    @classmethod
    def of(
        cls, read: SourceRows, task: str, bad: Sequence[BadRow], rendered: Sequence[RenderedRow], table: PromptTable
    ) -> "SourceReport":
        """Counts what was read, what could be rendered, and what of it was kept (`table`)."""
        lengths = [len(row.token_ids) for row in table.rows]
        num_overlong = len(rendered) - len(table)
        return cls(
            name=read.name,
            task=task,
            num_rows=read.num_read,
            num_prompts=len(table),
            bad=tuple(bad),
            num_overlong=num_overlong,
            longest_overlong_tokens=max(len(row.token_ids) for row in rendered) if num_overlong else None,
            num_without_gold=sum(row.gold is None for row in table.rows),
            shortest_tokens=min(lengths),
            longest_tokens=max(lengths),
            mean_tokens=sum(lengths) / len(lengths),
            special=tuple(f"{row.row.where}: {row.special}" for row in table.rows if row.special is not None),
        )

    def losses(self, budget_tokens: int | None) -> list[str]:
        """A line for each reason why rows are not served, or not as they stand."""
        lines = []
        if self.bad:
            shown = "; ".join(str(row) for row in self.bad[:NUM_SHOWN_BAD_ROWS])
            more = f"; and {len(self.bad) - NUM_SHOWN_BAD_ROWS} more" if len(self.bad) > NUM_SHOWN_BAD_ROWS else ""
            lines.append(f"{self.name}: {len(self.bad)} of {self.num_rows} rows skipped: bad ({shown}{more})")
        if self.num_overlong:
            lines.append(
                f"{self.name}: {self.num_overlong} of {self.num_rows} rows dropped: overlong "
                f"(up to {self.longest_overlong_tokens} tokens, limit {budget_tokens})"
            )
        if self.special:
            shown = "; ".join(self.special[:NUM_SHOWN_PLACES])
            lines.append(
                f"{self.name}: {len(self.special)} of {self.num_rows} rows have special tokens in their messages, "
                f"which are such tokens in the prompt ({shown})"
            )
        return lines


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Prompts that are asked more than once, over all sources."""

    num_repeated: int
    """Prompts whose token ids another prompt before them has; they are served all the same."""
    num_contradictions: int
    """Those of them whose gold answer is another one."""
    contradictions: tuple[str, ...] = ()
    """Places of the first contradictions, each beside the prompt that it contradicts."""

    @classmethod
    def of(cls, rows: Iterable[RenderedRow]) -> "Duplicates":
        """Compares every prompt with those before it."""
        first: dict[bytes, RenderedRow] = {}
        num_repeated, places = 0, []
        for row in rows:
            earlier = first.setdefault(row.token_ids.tobytes(), row)
            if earlier is row:
                continue
            num_repeated += 1
            if earlier.gold != row.gold:
                places.append(f"{earlier.row.where} and {row.row.where}")
        return cls(num_repeated, len(places), tuple(places[:NUM_SHOWN_PLACES]))

    def lines(self) -> list[str]:
        """A line for what there is of them."""
        lines = []
        if self.num_repeated:
            lines.append(f"{self.num_repeated} prompts are duplicates of others")
        if self.num_contradictions:
            places = "; ".join(self.contradictions)
            lines.append(f"{self.num_contradictions} of them with another gold answer: {places}")
        return lines


@dataclass(frozen=True, slots=True)
class DataReport:
    """What was found in all sources together."""

    sources: tuple[SourceReport, ...]
    duplicates: Duplicates
    budget_tokens: int | None
    """The longest prompt allowed; None where nothing bounds it."""
    columns: tuple[str, ...]
    """Columns that every row has."""
    shares: tuple[str, ...] = ()
    """For a mixture, the share of each source in words; empty else."""
    notices: tuple[str, ...] = ()
    """What should be told beside the counts."""

    @property
    def num_rows(self) -> int:
        """Rows that were read."""
        return sum(source.num_rows for source in self.sources)

    @property
    def num_prompts(self) -> int:
        """Prompts that are served."""
        return sum(source.num_prompts for source in self.sources)

    @property
    def num_overlong(self) -> int:
        """Prompts that were dropped for their length."""
        return sum(source.num_overlong for source in self.sources)

    @property
    def num_bad(self) -> int:
        """Rows that were skipped because they cannot be used."""
        return sum(len(source.bad) for source in self.sources)

    @property
    def shortest_tokens(self) -> int:
        """The length of the shortest prompt that is served."""
        return min(source.shortest_tokens for source in self.sources)

    @property
    def longest_tokens(self) -> int:
        """The length of the longest prompt that is served."""
        return max(source.longest_tokens for source in self.sources)

    @property
    def mean_tokens(self) -> float:
        """The mean length of the prompts that are served."""
        return sum(source.mean_tokens * source.num_prompts for source in self.sources) / self.num_prompts

    def lines(self) -> list[str]:
        """The report as plain lines of text."""
        budget = "no limit" if self.budget_tokens is None else f"limit {self.budget_tokens}"
        lines = [
            f"{self.num_prompts} prompts from {', '.join(source.name for source in self.sources)}",
            f"prompt tokens: {self.shortest_tokens} to {self.longest_tokens}, mean {self.mean_tokens:.1f} ({budget})",
            f"columns: {', '.join(self.columns) or 'none that every row has'}",
            *self.shares,
        ]
        for source in self.sources:
            lines += source.losses(self.budget_tokens)
        return [*lines, *self.duplicates.lines(), *self.notices]
