"""`strop samples`: browses what a run sampled."""


def samples() -> None:
    """Browse."""
