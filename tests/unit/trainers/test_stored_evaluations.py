"""Stored evaluations: what they say of each prompt is kept of the first policy and of the newest."""

from pathlib import Path

from strop.trainers.run_folder import PER_PROMPT, RunFolder


def test_the_values_of_each_prompt_are_kept_where_they_are_compared_and_nowhere_else(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for step in (0, 5, 10):
        for label in ("sampled", "greedy"):
            folder.write_evaluation(step, label, {"scores": {label: [0.5, 0.1, 1]}, PER_PROMPT: {label: {"p": 0.5}}})
    stored = folder.read_evaluations()
    holding = {step: [label for label, one in ways.items() if PER_PROMPT in one] for step, ways in stored.items()}
    assert holding == {"0": ["sampled", "greedy"], "5": [], "10": ["sampled", "greedy"]}
    assert all("scores" in one for ways in stored.values() for one in ways.values())
