"""Where a run folder lies, whatever happens to the working folder."""

from pathlib import Path

import pytest

from strop.trainers.run_folder import check_run_folder


def test_a_run_folder_stays_where_it_was_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    monkeypatch.chdir(first)
    folder = check_run_folder(Path("runs/mine"), resume=False, overwrite=False)
    monkeypatch.chdir(second)
    folder.open(overwrite=False)
    folder.write_config("")
    assert folder.path == first / "runs" / "mine"
    assert (first / "runs" / "mine" / "config.toml").is_file()
    assert list(second.iterdir()) == []
