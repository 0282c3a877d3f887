"""A hub model that was fetched once loads offline from the Hugging Face cache, as the commit that it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.tiny import tiny_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SCRIPT = """
import sys
from strop.config.model import ModelConfig
from strop.errors import ModelError
from strop.models.load import load_policy, load_tokenizer
revision = sys.argv[1] or None
try:
    print(len(load_tokenizer(ModelConfig(path="someone/tiny", revision=revision))))
    print(load_policy(ModelConfig(path="someone/tiny", revision=revision)).folder.name)
except ModelError as error:
    print(error)
"""


def _run(home: Path, working_folder: Path, revision: str = "") -> str:
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, revision],
        cwd=working_folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout


@pytest.mark.slow
def test_a_cached_hub_model_loads_offline_even_beside_a_folder_of_its_owners_name(tmp_path: Path) -> None:
    cached = tmp_path / "home" / "hub" / "models--someone--tiny"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(COMMIT)
    (cached / "snapshots").mkdir()
    tiny_folder(tmp_path, "llama").rename(cached / "snapshots" / COMMIT)
    (tmp_path / "work" / "someone").mkdir(parents=True)
    assert _run(tmp_path / "home", tmp_path / "work").split() == ["320", COMMIT]
    assert "at revision 'other'" in _run(tmp_path / "home", tmp_path / "work", revision="other")


@pytest.mark.slow
def test_a_hub_id_that_is_not_cached_beside_a_folder_of_its_owners_name_is_taken_as_local(tmp_path: Path) -> None:
    (tmp_path / "work" / "someone" / "tinny").mkdir(parents=True)
    assert "Did you mean someone/tinny?" in _run(tmp_path / "home", tmp_path / "work")
