"""Sinks are built from the configuration, load nothing that is not asked for, and say what to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from strop.config.metrics import MetricsConfig
from strop.errors import ConfigError
from strop.metrics import Metrics
from strop.metrics.sinks import CombinedSink, build_sinks, check_requirements


class FailingSink:
    """Counts what it gets and fails to close."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.close_calls = 0

    def log(self, step: int, metrics: Metrics) -> None:
        self.steps.append(step)

    def close(self) -> None:
        self.close_calls += 1
        raise OSError("disk full")


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio", "mlflow"])
def test_a_sink_whose_library_is_missing_names_the_extra_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [module for module in sys.modules if module.split(".")[0] == name]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    config = MetricsConfig.model_validate({"sinks": [name]})
    with pytest.raises(ConfigError, match=rf'(?s)pip install "strop\[{name}\]"'):
        build_sinks(config, tmp_path, "trial")
    assert list(tmp_path.iterdir()) == []


def test_missing_libraries_are_all_told_before_anything_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("trackio", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
    check_requirements([])
    with pytest.raises(ConfigError, match="got trackio, mlflow") as caught:
        check_requirements(["trackio", "mlflow"])
    assert 'pip install "strop[trackio,mlflow]"' in str(caught.value.remedy)


def test_a_folder_that_a_library_left_behind_is_not_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for module in [module for module in sys.modules if module.split(".")[0] == "wandb"]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ConfigError, match="got wandb, not installed"):
        check_requirements(["wandb"])


def test_without_further_sinks_only_the_metrics_file_is_written(tmp_path: Path) -> None:
    sink = build_sinks(MetricsConfig(), tmp_path, "trial")
    sink.log(1, {})
    sink.close()
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.jsonl"]


def test_all_sinks_are_closed_even_where_one_fails_and_the_failure_is_raised() -> None:
    first, second = FailingSink(), FailingSink()
    sink = CombinedSink([first, second])
    sink.log(7, {})
    with pytest.raises(OSError, match="disk full"):
        sink.close()
    assert (first.steps, second.steps) == ([7], [7])
    assert (first.close_calls, second.close_calls) == (1, 1)


def test_the_package_and_its_sinks_never_import_torch_nor_an_unused_library() -> None:
    code = (
        "import sys, strop.metrics, strop.metrics.sinks, strop.metrics.console, strop.metrics.samples,"
        " strop.metrics.environment, strop.metrics.watch, strop.metrics.table\n"
        "loaded = {'torch', 'wandb', 'mlflow', 'trackio', 'tensorboard', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {loaded}' if loaded else 0)"
    )
    env = {"PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert result.returncode == 0, result.stderr
