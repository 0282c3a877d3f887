"""The line of a step tells what was measured, says what was not, and fits."""

from strop.metrics.step_line import heading, phase_seconds, step_line

FULL = {
    "reward/mean": 0.531,
    "reward/std": 0.412,
    "reward/solved_share": 1.0,
    "groups/zero_signal_share": 0.25,
    "groups/sampling_rounds": 3.0,
    "samples/truncated_share": 1.0,
    "samples/error_share": 1.0,
    "update/gradient_norm": 123456.0,
    "kl/reference": 0.000123,
    "tokens/sampled": 10_000_000.0,
    "timing/step_seconds": 100.0,
    "timing/rollout_seconds": 55.0,
    "timing/reward_seconds": 5.0,
    "timing/update_seconds": 30.0,
}


def test_a_full_line_fits_100_columns_and_still_names_the_bottleneck() -> None:
    line = step_line("1000/1000", FULL, 9, width=100)
    assert len(line) <= 100
    assert "100.0: rollout 55.0" in line


def test_heading_and_line_have_their_columns_in_the_same_places() -> None:
    head, line = heading(FULL, 9), step_line("1000/1000", FULL, 9)
    for name, cell in (("solved", "100%"), ("rounds", "3"), ("tok/s", "100k")):
        end = head.index(name) + len(name)
        assert line[:end].endswith(cell)


def test_what_was_not_measured_is_a_dash_and_never_a_zero() -> None:
    line = step_line("1/2", {"reward/mean": None, "reward/solved_share": None}, 4)
    assert line.split() == ["1/2", "none", "valid", "-", "-", "-", "-", "-", "-", "-"]


def test_time_in_no_phase_is_shown_as_other_and_the_phases_are_sorted() -> None:
    assert list(phase_seconds(FULL).items()) == [("rollout", 55.0), ("update", 30.0), ("other", 10.0), ("reward", 5.0)]
