"""What offline training needs before any weight is loaded: rendered rows, and limits."""

from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from strop.config.checks.offline import check_offline
from strop.config.offline import OfflineConfig, OfflineSource, SamplesSource, SftConfig
from strop.data import ChatRenderer, read_source
from strop.data.offline.columns import ColumnReader
from strop.data.offline.examples import Example, ExampleReport, ExampleRules, ExampleTable, build_examples
from strop.data.offline.render import ConversationRenderer
from strop.data.offline.stored import read_stored
from strop.errors import ConfigError
from strop.models.load import load_generation_config, load_model_config, load_tokenizer, max_length
from strop.models.lora import check_adapters
from strop.models.stops import StopSet, find_stops


@dataclass(frozen=True)
class OfflineInputs:
    """The prepared rows of a run."""

    stops: StopSet
    training: ExampleTable
    training_report: ExampleReport
    evaluation: ExampleTable | None
    evaluation_report: ExampleReport | None
    notices: tuple[str, ...]
    """What should be told beside the counts."""

    def total_steps(self, config: OfflineConfig) -> int:
        """How many updates the run has: passes over the data, bounded by `run.steps`."""
        if config.data.epochs is None:
            return config.run.steps
        batch_size = config.training.batch_size
        steps = -(-len(self.training) * config.data.epochs // batch_size)
        return min(steps, config.run.steps) if config.run.steps else steps


def prepare_offline(config: OfflineConfig) -> OfflineInputs:
    """Loads and renders the data. Raises ConfigError, DataError and ModelError where something cannot be used."""
    check_offline(config)
    tokenizer = load_tokenizer(config.model)
    stops = find_stops(tokenizer, load_generation_config(config.model))
    model_config = load_model_config(config.model)
    check_adapters(config.model, model_config)
    length = max_length(config.model, model_config)
    reader = _Reader(config, tokenizer, stops, length)
    training, training_report = reader.read(config.data.source, config.data.limit, "data")
    if config.offline.type == "kto" and len(training) < 2:
        raise ConfigError("kto must have at least 2 rows, whose answers it compares, got 1", "Add rows.")
    evaluation, evaluation_report = None, None
    if config.evaluation is not None:
        evaluation, evaluation_report = reader.read(config.evaluation.source, config.evaluation.limit, "evaluation")
    notices = [*reader.chat.notices, _overlap(training, evaluation)]
    told = tuple(notice for notice in notices if notice is not None)
    return OfflineInputs(stops, training, training_report, evaluation, evaluation_report, told)


def _overlap(training: ExampleTable, evaluation: ExampleTable | None) -> str | None:
    """Says how many held-out rows are training rows too; None where there is none."""
    if evaluation is None:
        return None
    trained = {_tokens(example) for example in training.examples}
    num_shared = sum(_tokens(example) in trained for example in evaluation.examples)
    return f"{num_shared} of the {len(evaluation)} held-out rows are training rows too" if num_shared else None


def _tokens(example: Example) -> tuple[bytes, ...]:
    return tuple(row.token_ids.tobytes() for row in example.rows)


class _Reader:
    """Reads sources of any kind for the method of the run."""

    def __init__(
        self, config: OfflineConfig, tokenizer: PreTrainedTokenizerBase, stops: StopSet, max_tokens: int
    ) -> None:
        self.chat = ChatRenderer(
            tokenizer,
            system_prompt=config.data.system_prompt,
            template_arguments=config.data.chat_template_kwargs,
        )
        self._config = config
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        eos = tokenizer.eos_token_id
        self._renderer = ConversationRenderer(self.chat, stops, eos[0] if isinstance(eos, list) else eos)

    def read(self, source: OfflineSource, limit: int | None, key: str) -> tuple[ExampleTable, ExampleReport]:
        """Reads one source; `key` is where the run file sets it."""
        data, method = self._config.data, self._config.offline
        rules = ExampleRules(self._max_tokens, data.on_overlong, data.on_bad_row, key)
        if isinstance(source, SamplesSource):
            return read_stored(source, self._tokenizer, limit, rules)
        train_on = method.train_on if isinstance(method, SftConfig) else "assistant"
        columns = ColumnReader(method.type, data.columns, train_on)
        return build_examples(read_source(source, limit=limit), columns, self._renderer, rules)


def run_path(config: OfflineConfig) -> Path:
    """The folder of the run."""
    return config.run.output_dir / config.run.name
