"""Reward functions are found by file or module, and what is wrong with them is said with its line."""

from pathlib import Path

import pytest

from strop.tasks.load_function import load_function


def write(folder: Path, text: str) -> Path:
    file = folder / "mine.py"
    file.write_text(text)
    return file


def test_a_function_of_a_file_is_loaded_with_its_surroundings(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        "from dataclasses import dataclass\n@dataclass\nclass Scale:\n    by: float = 2.0\n"
        "def reward(completion): return Scale().by\n",
    )
    assert load_function(f"{file}:reward")(completion="x") == 2.0


def test_a_function_of_a_module_is_imported() -> None:
    assert load_function("math:floor")(2.5) == 2


@pytest.mark.parametrize("location", ["mine.py", "mine.py:", ":reward", "reward", "mine.py:not a name"])
def test_another_form_is_refused(location: str) -> None:
    with pytest.raises(ValueError, match=r"must be `task`, `my_file\.py:name` or"):
        load_function(location)


def test_faults_of_the_file_are_told_with_their_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"absent\.py must be a readable Python file"):
        load_function(f"{tmp_path}/absent.py:reward")
    file = write(tmp_path, "x = 1\ndef reward(completion:\n    return 1\n")
    with pytest.raises(ValueError, match=r"mine\.py cannot be loaded: line 2: SyntaxError"):
        load_function(f"{file}:reward")
    write(tmp_path, "x = 1\n\nimport no_such_module_here\n")
    with pytest.raises(ValueError, match="line 3: ModuleNotFoundError: No module named 'no_such_module_here'"):
        load_function(f"{file}:reward")


def test_a_missing_function_lists_those_found(tmp_path: Path) -> None:
    file = write(tmp_path, "def rewards(completion): return 1\ndef other(completion): return 1\nreward_scale = 1\n")
    with pytest.raises(ValueError, match=r"'reward' \(did you mean 'rewards'\?\); functions found: other, rewards"):
        load_function(f"{file}:reward")
    with pytest.raises(ValueError, match=r"'reward_scale' in .* must be a function, got int"):
        load_function(f"{file}:reward_scale")


def test_a_missing_module_is_named() -> None:
    with pytest.raises(ValueError, match=r"'no_such_package_here.rewards' cannot be imported: ModuleNotFoundError"):
        load_function("no_such_package_here.rewards:reward")
