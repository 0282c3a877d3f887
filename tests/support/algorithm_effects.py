"""For every key of an algorithm, its critic and its teachers: another value, and where one sees it."""

from collections.abc import Callable
from typing import Any

from support.effect import (
    KL,
    SOFT_OVERLONG,
    TWO_EPOCHS,
    Effect,
    console,
    error,
    gradient_norm,
    metric,
    weights,
)
from support.evidence import Evidence, dry_run

SECOND_GRADIENT = metric("update/gradient_norm", 2)
ROUGH = ("model.rollout_dtype=bfloat16",)
"""The sampler's log-probs are not quite the trainer's."""
WEIGHED = (*ROUGH, "algorithm.correction.weight=token", "algorithm.correction.weight_cap=0.5")
ADAPTIVE = (*KL, "algorithm.kl_target=0.001", "algorithm.kl_horizon=4")
PPO = ("algorithm.name=ppo",)
SAPO = (*TWO_EPOCHS, "algorithm.name=sapo")
COVARIANCE = (
    "algorithm.name=clip_cov",
    "algorithm.covariance_share=0.5",
    "algorithm.covariance_low=-9",
    "algorithm.covariance_high=9",
)


def advantages(evidence: Evidence) -> Any:
    return evidence.advantages


def reported(name: str) -> Callable[[Evidence], Any]:
    """A metric that need not be there."""
    return lambda evidence: evidence.metrics[1].get(name)


ALGORITHM = {
    "algorithm.name": Effect(["algorithm.name=dr_grpo"], gradient_norm),
    "algorithm.advantage_std": Effect(["algorithm.advantage_std=none"], lambda evidence: evidence.advantages),
    "algorithm.advantage": Effect(["algorithm.advantage=rloo"], advantages),
    "algorithm.discount": Effect(["algorithm.discount=0.5"], advantages, ["algorithm.name=reinforce_pp"]),
    "algorithm.gae_lambda": Effect(["algorithm.gae_lambda=0.1"], gradient_norm, PPO),
    "algorithm.pass_k": Effect(
        ["algorithm.pass_k=3"], advantages, ["algorithm.name=pass_at_k", "algorithm.pass_k=2", "rollout.group_size=4"]
    ),
    "algorithm.loss": Effect(["algorithm.loss=gspo"], weights, TWO_EPOCHS),
    "algorithm.dual_clip": Effect(
        ["algorithm.dual_clip=1.0001"], weights, ["training.epochs_per_batch=3", "training.learning_rate=0.1"]
    ),
    "algorithm.positive_temperature": Effect(["algorithm.positive_temperature=9"], weights, SAPO),
    "algorithm.negative_temperature": Effect(["algorithm.negative_temperature=9"], weights, SAPO),
    "algorithm.covariance_share": Effect(["algorithm.covariance_share=0.9"], gradient_norm, COVARIANCE),
    "algorithm.covariance_low": Effect(["algorithm.covariance_low=0"], gradient_norm, COVARIANCE),
    "algorithm.covariance_high": Effect(["algorithm.covariance_high=0"], gradient_norm, COVARIANCE),
    "algorithm.penalty": Effect(["algorithm.penalty=5"], weights, [*TWO_EPOCHS, "algorithm.name=dro"]),
    "algorithm.clip_low": Effect(["algorithm.clip_low=0.99"], metric("update/clipped_low_share"), TWO_EPOCHS),
    "algorithm.clip_high": Effect(["algorithm.clip_high=9"], metric("update/clipped_high_share"), TWO_EPOCHS),
    "algorithm.aggregation": Effect(["algorithm.aggregation=token_mean"], gradient_norm),
    "algorithm.constant_length": Effect(
        ["algorithm.constant_length=100"], gradient_norm, ["algorithm.aggregation=constant"]
    ),
    "algorithm.kl_coefficient": Effect(KL, SECOND_GRADIENT),
    "algorithm.kl_estimator": Effect(
        ["algorithm.kl_estimator=k2"], SECOND_GRADIENT, [*KL, "training.learning_rate=0.05"]
    ),
    "algorithm.kl_placement": Effect(["algorithm.kl_placement=reward"], SECOND_GRADIENT, KL),
    "algorithm.kl_top_k": Effect(
        ["algorithm.kl_top_k=2"],
        metric("kl/reference", 2),
        [*KL, "algorithm.kl_estimator=full", "training.learning_rate=0.05"],
    ),
    "algorithm.kl_target": Effect(["algorithm.kl_target=0.001", "algorithm.kl_horizon=4"], SECOND_GRADIENT, KL),
    "algorithm.kl_horizon": Effect(["algorithm.kl_horizon=400"], SECOND_GRADIENT, ADAPTIVE),
    "algorithm.correction.policies": Effect(["algorithm.correction.policies=2"], metric("update/ratio"), ROUGH),
    "algorithm.correction.weight": Effect(["algorithm.correction.weight=sequence"], reported("mismatch/weight"), ROUGH),
    "algorithm.correction.weight_cap": Effect(
        ["algorithm.correction.weight_cap=0.25"], metric("mismatch/weight"), WEIGHED
    ),
    "algorithm.correction.normalise": Effect(
        ["algorithm.correction.normalise=true"], metric("mismatch/weight"), WEIGHED
    ),
    **{
        f"algorithm.correction.{name}_band": Effect(
            [f"algorithm.correction.{name}_band=[0.99999, 1.00001]"], reported("mismatch/rejected_share"), ROUGH
        )
        for name in ("token", "geometric", "sequence")
    },
    "algorithm.keep_samples": Effect(["algorithm.keep_samples=2"], metric("tokens/trained"), ["rollout.group_size=4"]),
    "algorithm.length_penalty": Effect(["algorithm.length_penalty=0.5"], metric("reward/mean"), SOFT_OVERLONG[1:]),
    "algorithm.entropy_coefficient": Effect(["algorithm.entropy_coefficient=0.1"], gradient_norm),
    "algorithm.drop_zero_signal": Effect(
        ["algorithm.drop_zero_signal=true"],
        metric("groups/generated"),
        ["rewards.0.function=WORLD/rewards.py:sometimes"],
    ),
    "algorithm.max_sampling_rounds": Effect(
        ["algorithm.max_sampling_rounds=3"],
        error,
        ["algorithm.drop_zero_signal=true", "rewards.0.function=WORLD/rewards.py:constant"],
    ),
    "algorithm.truncated": Effect(["algorithm.truncated=mask"], gradient_norm),
    "algorithm.overlong_tokens": Effect(["algorithm.overlong_tokens=3"], metric("reward/mean"), SOFT_OVERLONG),
    "algorithm.overlong_buffer_tokens": Effect(
        ["algorithm.overlong_buffer_tokens=4"], metric("reward/mean"), SOFT_OVERLONG
    ),
}
CRITIC = {
    "critic.path": Effect(["critic.path=WORLD/other-model"], metric("value/gradient_norm"), PPO),
    "critic.learning_rate": Effect(["critic.learning_rate=1e-2"], metric("value/mean", 2), PPO),
    "critic.warmup_updates": Effect(["critic.warmup_updates=1"], metric("update/applied"), PPO),
    "critic.value_clip": Effect(
        ["critic.value_clip=1e-4"], metric("value/clipped_share"), [*PPO, *TWO_EPOCHS, "critic.learning_rate=0.1"]
    ),
}
TAUGHT = ("distillation.teachers=[{path='WORLD/other-model'}]",)
TWO_TEACHERS = ("distillation.teachers=[{path='WORLD/model', name='0'}, {path='WORLD/other-model', name='2'}]",)
SAMPLED = (*TAUGHT, "distillation.divergence=k3")
divergence = metric("distillation/divergence")
DISTILLATION = {
    "distillation.teachers[].path": Effect(["distillation.teachers.0.path=WORLD/model"], divergence, TAUGHT),
    "distillation.teachers[].name": Effect(["distillation.teachers.0.name=mine"], console, TAUGHT, dry_run),
    "distillation.teachers[].revision": Effect(
        ["distillation.teachers.0.revision=v2"], error, ["distillation.teachers=[{path='some-owner/absent'}]"], dry_run
    ),
    "distillation.teachers[].gguf_file": Effect(
        ["distillation.teachers.0.gguf_file=tiny.gguf"], error, ["distillation.teachers=[{path='WORLD/gguf'}]"], dry_run
    ),
    "distillation.teachers[].dtype": Effect(["distillation.teachers.0.dtype=bfloat16"], divergence, TAUGHT),
    "distillation.teachers[].trust_remote_code": Effect(
        ["distillation.teachers.0.trust_remote_code=true"],
        error,
        ["distillation.teachers=[{path='WORLD/coded'}]"],
        dry_run,
    ),
    "distillation.route_column": Effect(
        ["distillation.route_column=answer"], error, [*TWO_TEACHERS, "distillation.route_column=prompt"], dry_run
    ),
    "distillation.divergence": Effect(["distillation.divergence=k3"], divergence, TAUGHT),
    "distillation.placement": Effect(["distillation.placement=reward"], gradient_norm, SAMPLED),
    "distillation.coefficient": Effect(["distillation.coefficient=2"], gradient_norm, TAUGHT),
    "distillation.with_rewards": Effect(["distillation.with_rewards=true"], gradient_norm, TAUGHT),
    "distillation.top_k": Effect(["distillation.top_k=4"], divergence, TAUGHT),
    "distillation.tail": Effect(["distillation.tail=false"], divergence, TAUGHT),
    "distillation.min_logprob": Effect(["distillation.min_logprob=-1"], divergence, TAUGHT),
    "distillation.max_divergence": Effect(["distillation.max_divergence=0.0001"], divergence, TAUGHT),
}
