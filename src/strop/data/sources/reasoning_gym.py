"""reasoning_gym: rows made by a generator, by name, size and seed.

A row carries `question`, `answer` and `metadata`; the generator's own scorer needs the metadata. The package
imports all its generators at once (about 1.5 s), so it is imported only when such a source is read.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from strop.config.data import ReasoningGymSource
from strop.data.errors import DataError, require_package
from strop.data.rows import PlacedRow
from strop.errors import nearest_hint


def read_reasoning_gym(source: ReasoningGymSource) -> Iterator[PlacedRow]:
    """Yields `source.size` generated rows.

    Raises DataError where the generator, one of its options or a value is unknown; ModuleNotFoundError, naming
    the extra, without reasoning_gym.
    """
    require_package("reasoning_gym", "reasoning-gym", f"the generator {source.name!r}")
    generator = _create(source)
    for index in range(source.size):
        entry = generator[index]
        columns = {"question": entry["question"], "answer": entry["answer"], "metadata": entry["metadata"]}
        yield PlacedRow(f"{source.name} of seed {source.seed}, row {index}", columns)


def generator_names() -> list[str]:
    """Every generator that reasoning_gym has, in the order of their names."""
    from reasoning_gym.factory import DATASETS

    return sorted(DATASETS)


def check_generator_name(name: str) -> None:
    """Raises DataError with the nearest name where reasoning_gym has no such generator."""
    require_package("reasoning_gym", "reasoning-gym", f"the generator {name!r}")
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        raise DataError(
            f"reasoning_gym must have the generator that is named, got {name!r}{nearest_hint(name, DATASETS)}; "
            f"it has {len(DATASETS)}, such as chain_sum and leg_counting"
        )


def _create(source: ReasoningGymSource) -> Any:
    check_generator_name(source.name)
    import reasoning_gym

    _check_options(source)
    try:
        return reasoning_gym.create_dataset(source.name, size=source.size, seed=source.seed, **source.options)
    except (AssertionError, TypeError, ValueError) as error:
        raise DataError(f"generator {source.name!r} refuses its options {source.options}: {error}") from error


def _check_options(source: ReasoningGymSource) -> None:
    from reasoning_gym.factory import DATASETS

    known = {field.name for field in dataclasses.fields(DATASETS[source.name][1])} - {"size", "seed"}
    for option in source.options:
        if option in ("size", "seed"):
            raise DataError(f"{option} of a generator must be set as `source.{option}`, got it in `source.options`")
        if option not in known:
            raise DataError(
                f"generator {source.name!r} must know its options, got {option!r}{nearest_hint(option, known)}; "
                f"it knows {', '.join(sorted(known))}"
            )
