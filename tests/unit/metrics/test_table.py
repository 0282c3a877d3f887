"""Tables of scores say how sure they are."""

import pytest

from strop.metrics.table import Score, change, comparison_table, scores_line


def test_the_error_of_a_change_is_that_of_two_independent_scores() -> None:
    assert change(Score(0.10, 0.03, 100), Score(0.60, 0.04, 100)) == "+50.0 ± 5.0"


def test_a_fall_is_shown_as_a_fall() -> None:
    assert change(Score(0.60, 0.0, 100), Score(0.10, 0.0, 100)).startswith("-50.0")


def test_scores_without_a_counterpart_are_refused_with_their_names() -> None:
    with pytest.raises(ValueError, match=r"got \['greedy'\] and \['sampled'\]"):
        comparison_table({"greedy": Score(0, 0, 1)}, {"sampled": Score(0, 0, 1)})


def test_scores_over_different_numbers_of_prompts_say_so() -> None:
    line = scores_line({"sampled": Score(0.5, 0.1, 10), "greedy": Score(0.25, 0.1, 20)})
    assert line == "sampled 50.0% ± 10.0, greedy 25.0% ± 10.0 (10 to 20 prompts)"
