"""What another run sampled, as examples: the tokens that were sampled, never decoded and encoded again."""

from collections.abc import Iterator

import numpy as np
from transformers import PreTrainedTokenizerBase

from strop.config.load import load_config
from strop.config.offline import SamplesSource
from strop.data.errors import DataError
from strop.data.offline.examples import Example, ExampleReport, ExampleRules, ExampleTable, keep_usable
from strop.data.offline.render import TokenRow
from strop.metrics.samples import FoundSample, SampleQuery, find_samples, open_samples
from strop.models.load import load_tokenizer


def read_stored(
    source: SamplesSource, tokenizer: PreTrainedTokenizerBase, limit: int | None, rules: ExampleRules
) -> tuple[ExampleTable, ExampleReport]:
    """Returns the samples of a run that are good enough.

    Raises DataError where there is no run or none of its samples is, and where its tokenizer has other tokens.
    """
    store = open_samples(source.path)
    _check_tokenizer(source, tokenizer, rules.key)
    query = SampleQuery(minimum_reward=source.minimum_reward, limit=limit)
    found = list(_examples(source, find_samples(store, query)))
    if not found:
        raise DataError(
            f"{source.path} must hold samples with a reward of at least {source.minimum_reward:g}, got none",
            f"Lower {rules.key}.source.minimum_reward; `strop samples {source.path} --step all` shows the rewards.",
        )
    return keep_usable(str(source.path), found, rules)


def _examples(source: SamplesSource, found: Iterator[FoundSample]) -> Iterator[Example]:
    for one in found:
        name = f"{source.path.name}:{one.step}:{one.group.prompt_id}:{one.group.visit}:{one.sample.index}"
        where = f"{source.path}, step {one.step}, prompt {one.group.prompt_id}, sample {one.sample.index}"
        rows = tuple(
            TokenRow(row.token_ids.astype(np.int32), row.loss_mask) for row in one.sample.rows if row.loss_mask.any()
        )
        if rows:
            yield Example(name, where, source.path.name, (rows,))


def _check_tokenizer(source: SamplesSource, tokenizer: PreTrainedTokenizerBase, key: str) -> None:
    theirs = load_tokenizer(load_config(source.path / "config.toml").model)
    if theirs.get_vocab() != tokenizer.get_vocab():
        raise DataError(
            f"the run in {key}.source ({source.path}) must have the tokenizer of model.path, got another vocabulary",
            "Its samples are token ids; train a model of the same family on them.",
        )
