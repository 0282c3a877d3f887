"""Run files of offline training are read, refused and described as those of online runs are."""

from pathlib import Path

import pytest

from strop.config.base import Section
from strop.config.describe import as_markdown, describe, describe_only
from strop.config.dump import dump_config
from strop.config.load import load_offline_config, load_stored_config
from strop.config.offline import OfflineConfig
from strop.config.root import Config
from strop.errors import ConfigError
from support.runs import tiny_run

MINIMAL = """
[model]
path = "some/model"

[data]
source = { type = "jsonl", path = "rows.jsonl" }

[training]
learning_rate = 2e-5
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "run.toml"
    path.write_text(text)
    return path


def test_a_minimal_file_is_one_pass_of_the_method_that_the_command_names(tmp_path: Path) -> None:
    config = load_offline_config(write(tmp_path, MINIMAL), method="kto")
    assert config.offline.type == "kto"
    assert config.offline.beta == 0.1
    assert (config.data.epochs, config.run.steps, config.training.batch_size) == (1, 0, 16)


def test_a_file_may_name_the_method_itself_and_the_command_must_agree(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL + '[offline]\ntype = "ipo"')
    assert load_offline_config(path).offline.type == "ipo"
    with pytest.raises(ConfigError, match=r"offline\.type must be dpo, as the command says, got ipo"):
        load_offline_config(path, method="dpo")
    with pytest.raises(ConfigError, match=r"offline\.type must be one of sft, dpo, ipo, kto, got nothing"):
        load_offline_config(write(tmp_path, MINIMAL))


WRONG = {
    "training.learning_rat=1": "training.learning_rat is not a key; did you mean training.learning_rate?",
    "training.per_device_train_batch_size=1": "did you mean training.batch_size?",
    "run.num_train_epochs=1": "did you mean data.epochs?",
    "data.max_length=1": "did you mean model.max_length?",
    "offline.loss_type=ipo": "did you mean offline.type?",
    "data.completion_only_loss=true": "did you mean offline.train_on?",
    "offline.beta=1": "offline.beta is not a key with this `type`; the keys here are type, train_on",
    "offline.train_on=user": "offline.train_on must be one of assistant, last, all, got 'user'",
    "training.batch_size=0": "training.batch_size must be a whole number, at least 1, got 0",
    "rollout.group_size=2": "rollout is not a key",
    "data.source.type=reasoning_gym": "data.source.type must be one of jsonl, parquet, hub, samples",
}


@pytest.mark.parametrize("override", WRONG)
def test_a_wrong_key_or_value_is_refused_with_the_nearest_name(tmp_path: Path, override: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_offline_config(write(tmp_path, MINIMAL), [override], "sft")
    assert WRONG[override] in caught.value.message
    assert "strop config --offline" in str(caught.value)


def test_the_learning_rate_must_be_given(tmp_path: Path) -> None:
    text = MINIMAL.replace("[training]\nlearning_rate = 2e-5\n", "")
    with pytest.raises(
        ConfigError, match=r"training\.learning_rate is required: Peak learning rate of AdamW. Usual are"
    ):
        load_offline_config(write(tmp_path, text), method="sft")


def test_a_stored_config_is_read_back_as_what_it_was(tmp_path: Path) -> None:
    offline = load_offline_config(write(tmp_path, MINIMAL), ["offline.label_smoothing=0.1"], "dpo")
    online = tiny_run(tmp_path)
    kinds: list[tuple[Section, type[Section]]] = [(offline, OfflineConfig), (online, Config)]
    for config, kind in kinds:
        loaded = load_stored_config(write(tmp_path, dump_config(config)))
        assert type(loaded) is kind
        assert loaded == config


def test_every_key_is_described(tmp_path: Path) -> None:
    keys = [description.key for description in describe(offline=True)]
    assert {"offline.beta", "offline.train_on", "data.columns", "training.batch_size", "run.steps"} < set(keys)
    assert [item.key for item in describe_only("evaluation.every", offline=True)] == ["evaluation.every"]
    assert all(description.documentation for description in describe(offline=True))
    assert "## offline\n\nThe method." in as_markdown(describe(offline=True), offline=True)
