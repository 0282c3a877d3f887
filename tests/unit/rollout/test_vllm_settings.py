"""Settings of the vLLM engine that need no vLLM: arguments, environment, versions, seeds."""

import os

import pytest

from strop.config.rollout import RolloutConfig
from strop.config.rollout_vllm import VllmConfig
from strop.errors import ConfigError, ModelError
from strop.records import StreamKey
from strop.rollout.vllm import versions
from strop.rollout.vllm.samples import stream_seed
from strop.rollout.vllm.settings import check_engine_args, engine_args, environment, set_environment

KNOWN = ["model", "max_num_batched_tokens", "logprobs_mode", "enforce_eager"]


def test_an_unknown_argument_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"rollout\.vllm\.engine_args\.max_batched_tokens.*max_num_batched_tokens"):
        check_engine_args({"max_batched_tokens": 1}, KNOWN)
    check_engine_args({"enforce_eager": False}, KNOWN)


def test_arguments_that_another_key_says_or_that_must_stay_are_refused_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"model\.path"):
        check_engine_args({"model": "x"}, KNOWN)
    with pytest.raises(ConfigError, match="distribution that is sampled from"):
        check_engine_args({"logprobs_mode": "raw_logprobs"}, KNOWN)


def test_the_cache_of_a_cpu_has_a_gibibyte_unless_said_and_that_of_a_gpu_what_vllm_takes() -> None:
    def args(section: VllmConfig, on_cpu: bool) -> dict[str, object]:
        return engine_args("folder", RolloutConfig(), section, dtype="float32", max_length=8, on_cpu=on_cpu)

    assert args(VllmConfig(), True)["kv_cache_memory_bytes"] == 1 << 30
    assert args(VllmConfig(cache_gib=0.5), True)["kv_cache_memory_bytes"] == 1 << 29
    assert "kv_cache_memory_bytes" not in args(VllmConfig(), False)
    assert args(VllmConfig(gpu_memory_utilization=0.4), False)["gpu_memory_utilization"] == 0.4
    assert args(VllmConfig(engine_args={"block_size": 64}), True)["block_size"] == 64


def test_the_environment_is_put_back_whatever_was_changed_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    before = dict(os.environ)
    with set_environment(environment({"enforce_eager": True}, 2)):
        assert os.environ["OMP_NUM_THREADS"] == "2"
        assert os.environ["VLLM_LOGGING_LEVEL"] == "DEBUG"
        assert os.environ["TORCHDYNAMO_DISABLE"] == "1"
        os.environ["LD_PRELOAD"] = "something"
        del os.environ["PATH"]
    assert dict(os.environ) == before


def test_a_seed_depends_on_every_part_of_the_stream_and_on_its_first_token() -> None:
    streams = [
        StreamKey(0, "a", 0, 0),
        StreamKey(1, "a", 0, 0),
        StreamKey(0, "b", 0, 0),
        StreamKey(0, "a", 1, 0),
        StreamKey(0, "a", 0, 1),
        StreamKey(0, "a", 0, 0, "eval"),
    ]
    seeds = [stream_seed(stream, index) for stream in streams for index in (0, 1)]
    assert len(set(seeds)) == 12
    assert all(0 <= seed < 1 << 56 for seed in seeds)


@pytest.mark.parametrize(
    ("version", "accepted"), [("0.32.0+cpu", True), ("0.32.9", True), ("0.31.1", False), ("0.33.0", False)]
)
def test_only_the_tested_range_of_versions_is_accepted(version: str, accepted: bool) -> None:
    assert versions.is_accepted(version) is accepted


def test_a_missing_or_untested_vllm_is_refused_naming_the_tested_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed_vllm", lambda: None)
    with pytest.raises(ModelError, match=r">=0\.32\.0,<0\.33 .*not installed"):
        versions.require_vllm()
    monkeypatch.setattr(versions, "installed_vllm", lambda: ("vllm", "0.19.0"))
    with pytest.raises(ModelError, match=r"vllm must be >=0\.32\.0,<0\.33 .*got 0\.19\.0"):
        versions.require_vllm()
