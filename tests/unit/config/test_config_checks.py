"""Keys that do nothing or cannot work together are refused, each with a reason and a remedy."""

import re

import pytest

from strop.config.base import Section
from strop.config.checks import check, refusals
from strop.config.load import dump_config, load_config
from strop.errors import ConfigError

BASE = ["model.path=m", "data.task=math", "data.source={type='jsonl', path='x'}"]
EVALUATION = ["evaluation.source={type='jsonl', path='y'}"]
GYM = ["data.task=reasoning_gym:chain_sum", "data.source={type='reasoning_gym', name='chain_sum'}"]
MIXED = [
    "data.source={type='mixture', parts=[{source={type='jsonl', path='a'}, name='sums'}, "
    "{source={type='jsonl', path='b'}, name='essays', task='columns'}]}",
]

# What is refused, the key that is named, and what takes the refusal away.
CASES = [
    (["rollout.group_size=1"], "rollout.group_size", ["rollout.group_size=2"]),
    (["algorithm.kl_estimator=k2"], "algorithm.kl_estimator", ["algorithm.kl_coefficient=0.1"]),
    (
        ["algorithm.kl_estimator=k1", "algorithm.kl_coefficient=0.1"],
        "algorithm.kl_estimator",
        ["algorithm.kl_estimator=k3"],
    ),
    (["algorithm.constant_length=9"], "algorithm.constant_length", ["algorithm.aggregation=constant"]),
    (["algorithm.constant_length=9"], "algorithm.constant_length", ["algorithm.name=dr_grpo"]),
    (["algorithm.max_sampling_rounds=3"], "algorithm.max_sampling_rounds", ["algorithm.drop_zero_signal=true"]),
    (["algorithm.max_sampling_rounds=3"], "algorithm.max_sampling_rounds", ["algorithm.name=dapo"]),
    (["algorithm.clip_low=0.1"], "algorithm.clip_low", ["training.updates_per_batch=2"]),
    (["algorithm.clip_high=0.3"], "algorithm.clip_high", ["training.epochs_per_batch=2"]),
    (["training.schedule_updates=10"], "training.schedule_updates", ["training.schedule=linear"]),
    (
        ["training.minimum_learning_rate=1e-8"],
        "training.minimum_learning_rate",
        ["training.schedule=cosine", "training.schedule_updates=10"],
    ),
    (["training.schedule=linear"], "training.schedule_updates", ["training.schedule_updates=10"]),
    (
        ["training.schedule=linear", "training.schedule_updates=10", "training.warmup_updates=10"],
        "training.warmup_updates",
        ["training.warmup_updates=9"],
    ),
    (
        ["training.schedule=linear", "training.schedule_updates=10", "training.minimum_learning_rate=1"],
        "training.minimum_learning_rate",
        ["training.minimum_learning_rate=0"],
    ),
    (["training.updates_per_batch=9"], "training.updates_per_batch", ["rollout.prompts_per_step=9"]),
    (["rollout.top_p=0.9"], "rollout.top_p", ["rollout.top_p=1"]),
    (["rollout.top_k=20"], "rollout.top_k", ["rollout.top_k=0"]),
    (["rollout.stop_strings=['']"], "rollout.stop_strings", ["rollout.stop_strings=['x']"]),
    (["rollout.stop_token_ids=[-1]"], "rollout.stop_token_ids", ["rollout.stop_token_ids=[0]"]),
    (["rollout.max_cache_tokens=256"], "rollout.max_cache_tokens", ["rollout.max_new_tokens=64"]),
    (["rollout.packed_linears=false", "run.device=cuda"], "rollout.packed_linears", ["run.device=cpu"]),
    (
        ["rollout.packed_linears=false", "model.dtype=bfloat16"],
        "rollout.packed_linears",
        ["model.rollout_dtype=float32"],
    ),
    ([*EVALUATION, "evaluation.before=false", "evaluation.after=false"], "evaluation", ["evaluation.every=1"]),
    (
        [*EVALUATION, "evaluation.temperature=0", "evaluation.samples=2"],
        "evaluation.samples",
        ["evaluation.temperature=1"],
    ),
    ([*EVALUATION, "evaluation.temperature=0", "evaluation.top_p=0.9"], "evaluation.top_p", ["evaluation.top_p=1"]),
    ([*EVALUATION, "evaluation.temperature=0", "evaluation.top_k=3"], "evaluation.top_k", ["evaluation.temperature=1"]),
    (
        [*EVALUATION, "evaluation.temperature=0", "evaluation.greedy=true"],
        "evaluation.greedy",
        ["evaluation.greedy=false"],
    ),
    ([*EVALUATION, "evaluation.pass_at=[1,4]"], "evaluation.pass_at", ["evaluation.samples=4"]),
    ([*EVALUATION, "evaluation.pass_at=[0]"], "evaluation.pass_at", ["evaluation.pass_at=[1]"]),
    ([*EVALUATION, "evaluation.pass_at=[1,1]"], "evaluation.pass_at", ["evaluation.pass_at=[1]"]),
    (
        [*GYM, "evaluation.source={type='reasoning_gym', name='chain_sum'}"],
        "evaluation.source.seed",
        ["evaluation.source.seed=1000"],
    ),
    (
        [*GYM, "evaluation.source={type='reasoning_gym', name='chain_sum', seed=999}"],
        "evaluation.source.seed",
        ["data.limit=999"],
    ),
    (
        [*GYM, "data.source.seed=100", "evaluation.source={type='reasoning_gym', name='chain_sum', size=101}"],
        "evaluation.source.seed",
        ["evaluation.limit=100"],
    ),
    (
        [*GYM, "evaluation.source={type='reasoning_gym', name='chain_sum', seed=1}"],
        "evaluation.source.seed",
        ["evaluation.source.options.min_terms=3"],
    ),
    (["checkpoint.every=0", "checkpoint.keep=3"], "checkpoint.keep", ["checkpoint.every=1"]),
    (["checkpoint.best_is=lowest"], "checkpoint.best_is", ["checkpoint.best_is=highest"]),
    (["checkpoint.keep_best=eval/sampled/accuracy"], "checkpoint.keep_best", [*EVALUATION, "evaluation.every=10"]),
    (
        [*EVALUATION, "evaluation.every=5", "checkpoint.keep_best=eval/sampled/accuracy"],
        "checkpoint.keep_best",
        ["checkpoint.every=5"],
    ),
    (
        [*EVALUATION, "evaluation.every=20", "checkpoint.keep_best=eval/reward"],
        "checkpoint.keep_best",
        ["checkpoint.keep_best=eval/sampled/mean"],
    ),
    (
        [*EVALUATION, "checkpoint.keep_best=eval/sampled/accuracy"],
        "checkpoint.keep_best",
        ["evaluation.every=10"],
    ),
    (["model.path=package:x", "model.revision=f"], "model.revision", ["model.path=x"]),
    (["model.path=package:x", "model.trust_remote_code=true"], "model.trust_remote_code", ["model.path=x"]),
    (["model.path=/tmp", "model.revision=f"], "model.revision", ["model.path=/no/such/folder"]),
    (["model.chat_template=/no/such/file"], "model.chat_template", ["model.chat_template=none"]),
    (["model.lora.target_modules=[]"], "model.lora.target_modules", ["model.lora.target_modules=['q_proj']"]),
    (["model.max_length=256"], "rollout.max_new_tokens", ["model.max_length=257"]),
    (
        [*EVALUATION, "model.max_length=300", "evaluation.max_new_tokens=300"],
        "evaluation.max_new_tokens",
        ["evaluation.max_new_tokens=299"],
    ),
    (["model.max_length=300", "data.max_prompt_tokens=45"], "data.max_prompt_tokens", ["data.max_prompt_tokens=44"]),
    (
        ["model.max_length=50", "rollout.max_new_tokens=9", "weight_sync.probe_tokens=51"],
        "weight_sync.probe_tokens",
        ["weight_sync.probe_tokens=50"],
    ),
    (["data.task=gsm"], "data.task", ["data.task=gsm8k"]),
    (["data.task=reasoning_gym:chain_sum"], "data.source.type", GYM),
    ([*GYM, "data.source.name=gcd"], "data.source.name", ["data.task=reasoning_gym:gcd"]),
    (["data.task=columns"], "rewards[0].function", ["rewards.0.function=f.py:g"]),
    (["rewards.0.function=f.py"], "rewards[0].function", ["rewards.0.function=f.py:g"]),
    (["rewards.1.function=a.py:task"], "rewards", ["rewards.1.name=other"]),
    (["rewards.0.weight=0"], "rewards", ["rewards.0.weight=1"]),
    ([*MIXED, "rewards.1.function=f.py:g"], "rewards[0].function", ["rewards.0.sources=['sums']"]),
    (
        [*MIXED, "rewards.0.sources=['sum']", "rewards.1.function=f.py:g"],
        "rewards[0].sources",
        ["rewards.0.sources=['sums']"],
    ),
    (
        [*MIXED, "rewards.0.sources=['sums']"],
        "rewards",
        ["rewards.1.function=f.py:g", "rewards.1.sources=['essays']"],
    ),
    (
        [*MIXED, "rewards.0.sources=['sums']", "rewards.1.function=f.py:g", "rewards.1.weight=0"],
        "rewards",
        ["rewards.1.weight=1"],
    ),
    (
        [*MIXED, *EVALUATION, "rewards.0.function=f.py:g", "rewards.0.sources=['sums', 'essays']"],
        "rewards",
        ["rewards.0.sources=['sums', 'essays', 'y']"],
    ),
    (["run.name=a/b"], "run.name", ["run.name=a"]),
    (["run.name=.."], "run.name", ["run.name=a.."]),
    (["metrics.project=p", "metrics.sinks=['tensorboard']"], "metrics.project", ["metrics.sinks=['wandb']"]),
    (["metrics.sinks=['wandb', 'wandb']"], "metrics.sinks", ["metrics.sinks=['wandb']"]),
    (
        ["weight_sync.max_logprob_difference=0.6"],
        "weight_sync.max_logprob_difference",
        ["weight_sync.max_logprob_difference=0.5"],
    ),
    (["weight_sync.bucket_mib=4"], "weight_sync.bucket_mib", ["cluster.type=ray"]),
    (["weight_sync.transfer=broadcast"], "weight_sync.transfer", ["cluster.type=ray"]),
    (["cluster.type=ray", "weight_sync.transfer=disk"], "weight_sync.folder", ["weight_sync.folder=x"]),
    (["cluster.type=ray", "weight_sync.folder=x"], "weight_sync.folder", ["weight_sync.transfer=disk"]),
]


def test_the_plain_config_is_not_refused() -> None:
    assert refusals(load_config(None, BASE)) == []
    assert refusals(load_config(None, BASE + EVALUATION)) == []


@pytest.mark.parametrize(("overrides", "key", "cure"), CASES)
def test_a_refusal_names_its_key_and_goes_with_its_remedy(overrides: list[str], key: str, cure: list[str]) -> None:
    found = refusals(load_config(None, BASE + overrides))
    assert [refusal.key for refusal in found] == [key]
    assert found[0].reason
    assert found[0].remedy
    assert refusals(load_config(None, BASE + overrides + cure)) == []


def test_all_refusals_are_raised_together() -> None:
    config = load_config(None, [*BASE, "rollout.group_size=1", "rollout.top_p=0.5", "checkpoint.best_is=lowest"])
    with pytest.raises(ConfigError) as caught:
        check(config)
    for key in ("rollout.group_size", "rollout.top_p", "checkpoint.best_is"):
        assert key in str(caught.value)


def test_checkpoints_switched_off_refuse_keep_best_too() -> None:
    config = load_config(
        None,
        [*BASE, *EVALUATION, "evaluation.every=1", "checkpoint.every=0", "checkpoint.keep_best=eval/sampled/accuracy"],
    )
    assert [refusal.key for refusal in refusals(config)] == ["checkpoint.keep_best"]


def test_a_default_written_out_is_not_refused() -> None:
    assert (
        refusals(load_config(None, [*BASE, "training.minimum_learning_rate=0.0", "checkpoint.best_is=highest"])) == []
    )


def test_greedy_results_are_reported_only_where_they_are_asked_for() -> None:
    wanted = [*BASE, *EVALUATION, "evaluation.every=10", "checkpoint.keep_best=eval/greedy/accuracy"]
    assert [refusal.key for refusal in refusals(load_config(None, wanted))] == ["checkpoint.keep_best"]
    assert refusals(load_config(None, [*wanted, "evaluation.greedy=true"])) == []


def test_looking_for_refusals_and_storing_a_config_use_no_key() -> None:
    seen: list[tuple[str, str]] = []
    config = load_config(None, [*BASE, *EVALUATION])
    Section.observer = lambda section, key: seen.append((section, key))
    try:
        check(config)
        dump_config(config)
        assert seen == []
        assert config.run.seed == 0
        assert seen == [("Config", "run"), ("RunConfig", "seed")]
    finally:
        Section.observer = None


def test_a_reward_for_a_part_that_does_not_exist_is_told_the_nearest_name() -> None:
    found = refusals(load_config(None, [*BASE, *MIXED, "rewards.0.sources=['sum']", "rewards.1.function=f.py:g"]))
    assert "must be names of data sets (sums, essays), got 'sum' (did you mean 'sums'?)" in str(found[0])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["rollout.vllm.cache_gib=2"], "rollout.vllm.cache_gib does nothing: rollout.type is native"),
        (["rollout.type=vllm"], "weight_sync.probe_tokens must be at least 66 with vLLM"),
        (
            ["rollout.type=vllm", "weight_sync.probe_tokens=66", "rollout.packed_linears=false"],
            "rollout.packed_linears does nothing: rollout.type is vllm",
        ),
    ],
)
def test_each_engine_refuses_the_keys_of_the_other(overrides: list[str], message: str) -> None:
    config = load_config(None, ["model.path=m", "data.task=math", "data.source={type='jsonl', path='x'}", *overrides])
    with pytest.raises(ConfigError, match=re.escape(message)):
        check(config)
