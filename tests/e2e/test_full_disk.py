"""A checkpoint for which there is no space ends the run with a message, and the one before it still loads."""

from pathlib import Path

from strop.api import train
from support.children import Child
from support.runs import assert_same_tensors, checkpoint_tensors, newest_checkpoint, tiny_run, write_run_file


def test_the_message_says_so_and_the_run_goes_on_from_the_checkpoint_before(tmp_path: Path) -> None:
    config = tiny_run(tmp_path, run={"steps": 2})
    folder = train(config).folder
    before = checkpoint_tensors(folder)
    largest = max(path.stat().st_size for path in newest_checkpoint(folder).rglob("*"))

    longer = config.model_copy(update={"run": config.run.model_copy(update={"steps": 4})})
    arguments = ["train", str(write_run_file(longer, tmp_path / "run.toml")), "--resume"]
    starved = Child(arguments, tmp_path / "starved.txt", largest_file_bytes=largest // 2)
    assert starved.wait() == 2, starved.output
    assert "error: no space for a checkpoint" in starved.output
    assert "Earlier checkpoints are untouched" in starved.output
    assert "Traceback" not in starved.output
    assert_same_tensors(checkpoint_tensors(folder), before)

    fed = Child(arguments, tmp_path / "fed.txt")
    assert fed.wait() == 0, fed.output
    assert newest_checkpoint(folder).name == "step-00000004"
