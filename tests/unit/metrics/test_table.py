"""Tables of scores say how sure they are."""

import io
import math
import statistics

import pytest
from rich.console import Console

from strop.metrics.score import Change, Score, standard_error
from strop.metrics.table import comparison_table, scores_line


def made(*values: float, prefix: str = "p") -> Score:
    return Score.of([(f"{prefix}{place}", value) for place, value in enumerate(values)])


def shown(before: dict[str, Score], after: dict[str, Score]) -> str:
    stream = io.StringIO()
    Console(file=stream, width=100).print(comparison_table(before, after))
    return stream.getvalue()


def test_the_error_of_a_change_over_the_same_prompts_is_that_of_the_differences() -> None:
    before, after = made(0, 0, 1, 1, 0.5), made(1, 0, 1, 0.5, 0.75)
    change = Change.between(before, after)
    differences = [1, 0, 0, -0.5, 0.25]
    assert change.is_paired
    assert change.difference == pytest.approx(statistics.mean(differences))
    assert change.standard_error == pytest.approx(statistics.stdev(differences) / math.sqrt(5))


def test_prompts_that_all_gain_the_same_leave_no_doubt_about_the_change() -> None:
    change = Change.between(made(0, 0.5, 0.25), made(0.5, 1, 0.75))
    assert str(change) == "+50.0 ± 0.0"


@pytest.mark.parametrize("other", [made(1, 0, prefix="q"), made(1, 0, 1), Score(0.5, 0.5, 2)])
def test_scores_of_other_prompts_are_taken_as_independent(other: Score) -> None:
    before = made(1, 0)
    assert before.standard_error is not None
    assert other.standard_error is not None
    change = Change.between(before, other)
    assert not change.is_paired
    assert change.standard_error == pytest.approx(math.hypot(before.standard_error, other.standard_error))


def test_the_error_of_a_change_is_that_of_two_independent_scores() -> None:
    assert str(Change.between(Score(0.10, 0.03, 100), Score(0.60, 0.04, 100))) == "+50.0 ± 5.0"


def test_a_fall_is_shown_as_a_fall() -> None:
    assert str(Change.between(Score(0.60, 0.0, 100), Score(0.10, 0.0, 100))).startswith("-50.0")


def test_a_single_prompt_says_nothing_about_the_error() -> None:
    assert str(made(1.0)) == "100.0%"
    assert str(Change.between(made(0.0), made(1.0))) == "+100.0"
    with pytest.raises(ValueError, match="at least one prompt"):
        Score.of([])


def test_the_standard_error_is_that_of_the_sample_deviation() -> None:
    values = [0.0, 1.0, 0.5, 0.25]
    assert standard_error(values) == pytest.approx(statistics.stdev(values) / 2)


def test_the_table_says_which_error_it_shows() -> None:
    paired = shown({"sampled": made(0, 1)}, {"sampled": made(1, 1)})
    assert "prompt by prompt" in paired
    assert "+50.0 ± 50.0" in paired
    assert "are not paired" in shown({"sampled": made(0, 1)}, {"sampled": made(1, 1, prefix="q")})


def test_scores_without_a_counterpart_are_refused_with_their_names() -> None:
    with pytest.raises(ValueError, match=r"got \['greedy'\] and \['sampled'\]"):
        comparison_table({"greedy": Score(0, 0, 1)}, {"sampled": Score(0, 0, 1)})


def test_scores_over_different_numbers_of_prompts_say_so() -> None:
    line = scores_line({"sampled": Score(0.5, 0.1, 10), "greedy": Score(0.25, 0.1, 20)})
    assert line == "sampled 50.0% ± 10.0, greedy 25.0% ± 10.0 (10 to 20 prompts, ± standard error)"
