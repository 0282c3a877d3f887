"""The names of data sets in row ids, metrics, reports and `rewards.sources`."""

from pathlib import Path

from strop.config.data import HubSource, JsonlSource, MixturePart, ParquetSource, ReasoningGymSource, SingleSource


def source_name(source: SingleSource) -> str:
    """The name of a source: short, and the same wherever the data lies on disk."""
    match source:
        case JsonlSource() | ParquetSource():
            return source.path.name
        case HubSource():
            path = Path(source.path).resolve().name if Path(source.path).is_dir() else source.path
            return "/".join(part for part in (path, source.subset, source.split) if part)
        case ReasoningGymSource():
            return f"{source.name}-seed{source.seed}"


def part_name(part: MixturePart) -> str:
    """The name that a part of a mixture gives itself, or else that of its source."""
    return part.name or source_name(part.source)
