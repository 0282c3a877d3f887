"""Every metric sink keeps what it was given: checked by reading it back with the library's own reader."""

import importlib.util
import math
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strop.config.metrics import MetricsConfig
from strop.metrics import Metrics, maximum, mean
from strop.metrics.sinks import CombinedSink, build_sinks, read_metrics
from strop.protocols import MetricSink

Points = dict[str, list[tuple[int, float]]]
"""(step, value) by metric, in the order of the steps; a step that was written twice appears twice."""

RUN_NAME, PROJECT = "trial", "house"


def step_metrics(reward: float) -> Metrics:
    return {
        "reward/mean": mean(reward * 8, 8),
        "update/gradient_norm": maximum(math.nan),
        "kl/reference": mean(0.0, 0.0),
    }


def gather(entries: Iterable[tuple[str, int, float]]) -> Points:
    points: Points = {}
    for name, step, value in sorted(entries, key=lambda entry: entry[:2]):
        points.setdefault(name, []).append((step, value))
    return points


def read_jsonl(run_folder: Path, run_name: str) -> Points:
    lines = read_metrics(run_folder / "metrics.jsonl")
    return gather((name, line["step"], value) for line in lines for name, value in line.items() if name != "step")


def read_tensorboard(run_folder: Path, run_name: str) -> Points:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    events = EventAccumulator(str(run_folder / "tensorboard"))
    events.Reload()
    return gather(
        (name, event.step, event.value) for name in events.Tags()["scalars"] for event in events.Scalars(name)
    )


def read_trackio(run_folder: Path, run_name: str) -> Points:
    from trackio.sqlite_storage import SQLiteStorage

    entries = SQLiteStorage.get_logs(PROJECT, run_name)
    return gather(
        (name, entry["step"], float(value)) for entry in entries for name, value in entry.items() if "/" in name
    )


def read_mlflow(run_folder: Path, run_name: str) -> Points:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=(run_folder / "mlflow").as_uri())
    experiment = client.get_experiment_by_name(PROJECT)
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], filter_string=f"attributes.run_name = '{run_name}'")
    histories = [client.get_metric_history(run.info.run_id, name) for name in run.data.metrics]
    return gather((metric.key, metric.step, metric.value) for history in histories for metric in history)


def wandb_records(path: Path) -> Iterator[bytes]:
    """Walks a W&B run file: a 7-byte head, then a LevelDB log of 32 KiB blocks (checksum, length, type, data)."""
    data, position, pending = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        left_in_block = 32768 - position % 32768
        if left_in_block < 7:
            position += left_in_block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        pending += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):
            yield pending
            pending = b""


def finished_wandb_run(path: Path) -> list[Any]:
    """Waits until the service that writes W&B's file has written its end; `finish` may return just before."""
    from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]

    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        records = [Record.FromString(data) for data in wandb_records(path)]
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            return records
        time.sleep(0.05)
    raise TimeoutError(f"{path} must end with the exit of its run within 20 s, got {len(records)} records")


def read_wandb(run_folder: Path, run_name: str) -> Points:
    entries = []
    for path in run_folder.glob("wandb/offline-run-*/*.wandb"):
        records = finished_wandb_run(path)
        if not any(record.run.display_name == run_name for record in records):
            continue
        for record in records:
            items = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
            step = int(items.get("_step", 0))
            entries += [(name, step, float(value.strip('"'))) for name, value in items.items() if "/" in name]
    return gather(entries)


READERS: dict[str, Callable[[Path, str], Points]] = {
    "jsonl": read_jsonl,
    "tensorboard": read_tensorboard,
    "trackio": read_trackio,
    "mlflow": read_mlflow,
    "wandb": read_wandb,
}


@pytest.fixture(params=sorted(READERS))
def sink_name(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    if name != "jsonl" and importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    if name == "trackio":
        trackio_utils = pytest.importorskip("trackio.utils")
        storage = pytest.importorskip("trackio.sqlite_storage")
        for module in (trackio_utils, storage):
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "trackio")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return name


def open_sink(name: str, run_folder: Path, resume_step: int | None = None) -> CombinedSink:
    further = [] if name == "jsonl" else [name]
    config = MetricsConfig.model_validate({"sinks": further, "project": PROJECT})
    return build_sinks(config, run_folder, RUN_NAME, resume_step)


def write_steps(sink: MetricSink, rewards: dict[int, float]) -> None:
    for step, reward in rewards.items():
        sink.log(step, step_metrics(reward))
    sink.close()


def test_every_step_is_read_back_as_it_was_written(sink_name: str, tmp_path: Path) -> None:
    write_steps(open_sink(sink_name, tmp_path), {0: 0.125, 1: 0.25, 2: 0.5})
    points = READERS[sink_name](tmp_path, RUN_NAME)
    assert points["reward/mean"] == [(0, 0.125), (1, 0.25), (2, 0.5)]


def test_nan_stays_visible_and_what_was_not_measured_is_left_out(sink_name: str, tmp_path: Path) -> None:
    write_steps(open_sink(sink_name, tmp_path), {1: 0.25})
    points = READERS[sink_name](tmp_path, RUN_NAME)
    assert [math.isnan(value) for _, value in points["update/gradient_norm"]] == [True]
    assert "kl/reference" not in points


def test_no_step_appears_twice_after_a_resume(sink_name: str, tmp_path: Path) -> None:
    write_steps(open_sink(sink_name, tmp_path), {1: 0.25, 2: 0.5, 3: 0.75})
    write_steps(open_sink(sink_name, tmp_path, resume_step=2), {3: 0.125, 4: 0.0})
    points = READERS[sink_name](tmp_path, RUN_NAME)["reward/mean"]
    if sink_name in ("jsonl", "tensorboard"):
        assert points == [(1, 0.25), (2, 0.5), (3, 0.125), (4, 0.0)]
    else:
        continued = READERS[sink_name](tmp_path, f"{RUN_NAME}-after-2")["reward/mean"]
        assert points == [(1, 0.25), (2, 0.5), (3, 0.75)]
        assert continued == [(3, 0.125), (4, 0.0)]
