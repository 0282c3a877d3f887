"""What was found in a data set, for a person to read before a run starts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DataReport:
    """Counts and lengths of the prompts of one data set; lengths are in tokens, of the prompts that were kept."""

    sources: tuple[str, ...]
    num_rows: int
    """Rows that were read."""
    num_prompts: int
    """Prompts that are served: rows without the overlong ones."""
    num_overlong: int
    """Prompts longer than the budget, which were dropped."""
    num_duplicates: int
    """Prompts whose token ids another prompt before them has; they are served all the same."""
    shortest_tokens: int
    longest_tokens: int
    mean_tokens: float
    budget_tokens: int | None
    """The longest prompt allowed; None where nothing bounds it."""
    columns: tuple[str, ...]
    """Columns that every row has."""
    notices: tuple[str, ...] = ()
    """What should be told beside the counts."""

    def lines(self) -> list[str]:
        """The report as plain lines of text."""
        budget = "no limit" if self.budget_tokens is None else f"limit {self.budget_tokens}"
        lines = [
            f"{self.num_prompts} prompts from {', '.join(self.sources)}",
            f"prompt tokens: {self.shortest_tokens} to {self.longest_tokens}, mean {self.mean_tokens:.1f} ({budget})",
            f"columns: {', '.join(self.columns)}",
        ]
        if self.num_overlong:
            lines.append(f"{self.num_overlong} of {self.num_rows} rows dropped: overlong")
        if self.num_duplicates:
            lines.append(f"{self.num_duplicates} prompts are duplicates of others")
        return lines + list(self.notices)
