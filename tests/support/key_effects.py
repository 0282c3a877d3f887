"""For every key of a run file: another value, and where one sees it."""

from collections.abc import Callable, Sequence
from typing import Any

from support.algorithm_effects import ALGORITHM, CRITIC, DISTILLATION
from support.effect import (
    BEST,
    EVALUATION,
    EVERY_STEP,
    LINEAR,
    LORA,
    Effect,
    answers,
    called,
    console,
    error,
    evaluated,
    evaluated_steps,
    gradient_norm,
    learning_rate,
    metric,
    projects,
    refused,
    token_ids,
    weights,
)
from support.evidence import Evidence, dry_run, operations, skipped_updates
from support.judgements import SERVER, Judgement, judgement

SOURCES = {
    "jsonl": "{type='jsonl', path='WORLD/rows.jsonl'}",
    "parquet": "{type='parquet', path='WORLD/rows.parquet'}",
    "hub": "{type='hub', path='WORLD/hub'}",
    "configured": "{type='hub', path='WORLD/configured', subset='first'}",
    "reasoning_gym": "{type='reasoning_gym', name='chain_sum', size=5}",
    "mixture": "{type='mixture', ramp_prompts=9, parts=["
    "{source={type='jsonl', path='WORLD/rows.jsonl'}, weight=1, final_weight=2}, "
    "{source={type='jsonl', path='WORLD/other.jsonl'}, weight=1}]}",
    "held-out mixture": "{type='mixture', parts=[{source={type='jsonl', path='WORLD/held-out.jsonl'}}]}",
}


def source_effects(section: str) -> dict[str, Effect]:
    """The keys of a source, which stand in `data` and in `evaluation`."""
    key = f"{section}.source"

    def seen(change: str, source: str) -> Effect:
        question = ("data.prompt_column=question",) if source == "reasoning_gym" else ()
        gym = (f"data.source={SOURCES[source]}",) if question else ()
        overlap = (f"{key}.seed=100",) if question and section == "evaluation" else ()
        base = (*question, *gym, f"{key}={SOURCES[source]}", *overlap)
        return Effect((f"{key}.{change}",), lambda evidence: (console(evidence), evidence.error), base, dry_run)

    return {
        f"{key}.type": Effect(
            (f"{key}.type=parquet",), lambda evidence: evidence.error, (f"{key}={SOURCES['jsonl']}",), dry_run
        ),
        f"{key}.path (jsonl)": seen("path=WORLD/other.jsonl", "jsonl"),
        f"{key}.path (parquet)": seen("path=WORLD/other.parquet", "parquet"),
        f"{key}.path (hub)": seen("path=WORLD/other-hub", "hub"),
        f"{key}.split (hub)": seen("split=test", "hub"),
        f"{key}.subset (hub)": seen("subset=second", "configured"),
        f"{key}.revision (hub)": seen("revision=v1", "configured"),
        f"{key}.name (reasoning_gym)": seen("name=gcd", "reasoning_gym"),
        f"{key}.size (reasoning_gym)": seen("size=4", "reasoning_gym"),
        f"{key}.seed (reasoning_gym)": seen("seed=200", "reasoning_gym"),
        f"{key}.options (reasoning_gym)": seen("options.min_terms=5", "reasoning_gym"),
    }


def mixture_effects() -> dict[str, Effect]:
    """The keys of a mixture; what an evaluation has no use for is refused there."""
    data, held_out = "data.source", "evaluation.source"

    def seen(key: str, value: str, look: Callable[[Evidence], Any], *base: str) -> Effect:
        section, kind = (held_out, "held-out mixture") if key.startswith(held_out) else (data, "mixture")
        base = (f"{section}={SOURCES[kind]}", *base)
        return Effect((f"{key.replace('[]', '.0')}={value}",), look, base, dry_run)

    effects = {}
    for section in (data, held_out):
        effects |= {
            f"{section}.parts[].source (mixture)": seen(f"{section}.parts[].source.path", "WORLD/absent", error),
            f"{section}.parts[].name (mixture)": seen(f"{section}.parts[].name", "mine", console),
            f"{section}.parts[].task (mixture)": seen(
                f"{section}.parts[].task", "gsm8k", console, "data.answer_column=answer"
            ),
            f"{section}.parts[].prompt_column (mixture)": seen(f"{section}.parts[].prompt_column", "question", console),
            f"{section}.parts[].answer_column (mixture)": seen(f"{section}.parts[].answer_column", "answer", console),
            f"{section}.parts[].gold_response_column (mixture)": seen(
                f"{section}.parts[].gold_response_column", "answer", console
            ),
            f"{section}.parts[].instruction (mixture)": seen(f"{section}.parts[].instruction", "Think.", console),
        }
    for key, value in (("parts[].weight", "3"), ("parts[].final_weight", "3"), ("ramp_prompts", "5")):
        effects[f"{data}.{key} (mixture)"] = seen(f"{data}.{key}", value, console)
        effects[f"{held_out}.{key} (mixture)"] = seen(f"{held_out}.{key}", value, error)
    return effects


RUN = {
    "run.name": Effect(["run.name=other"], lambda evidence: evidence.folder.name),
    "run.output_dir": Effect(
        ["run.output_dir=WORLD/elsewhere"], lambda evidence: evidence.folder.parent.name == "elsewhere"
    ),
    "run.seed": Effect(["run.seed=1"], token_ids),
    "run.steps": Effect(["run.steps=1"], lambda evidence: len(evidence.metrics)),
    "run.threads": Effect(["run.threads=2"], lambda evidence: evidence.num_threads),
    "run.device": Effect(["run.device=npu"], error),
}
MODEL = {
    "model.path": Effect(["model.path=WORLD/other-model"], token_ids),
    "model.revision": Effect(["model.revision=v2"], error, ["model.path=some-owner/absent"], dry_run),
    "model.gguf_file": Effect(["model.gguf_file=tiny.gguf"], error, ["model.path=WORLD/gguf"], dry_run),
    "model.dtype": Effect(["model.dtype=bfloat16"], lambda evidence: {w.dtype for w in evidence.weights.values()}),
    "model.rollout_dtype": Effect(["model.rollout_dtype=bfloat16"], metric("mismatch/logprob_difference")),
    "model.trust_remote_code": Effect(["model.trust_remote_code=true"], error, ["model.path=WORLD/coded"], dry_run),
    "model.chat_template": Effect(["model.chat_template=WORLD/template.jinja"], console, run=dry_run),
    "model.max_length": Effect(["model.max_length=100"], console, run=dry_run),
    "model.lora.rank": Effect(
        ["model.lora.rank=2"], lambda evidence: [w.shape for w in evidence.weights.values()], LORA
    ),
    "model.lora.alpha": Effect(["model.lora.alpha=1"], gradient_norm, LORA),
    "model.lora.target_modules": Effect(
        ["model.lora.target_modules=['q_proj']"], lambda evidence: set(evidence.weights), LORA
    ),
}
WRONG_GOLD = (
    "data.source={type='reasoning_gym', name='countdown', size=3}",
    "data.task=reasoning_gym:countdown",
    "data.answer_column=question",
    "rewards.0.function=task",
)
GRADED = ("data.task=gsm8k", "data.prompt_column=prompt", "data.answer_column=answer", "rewards.0.function=task")
DATA = {
    "data.task": Effect(["data.task=gsm8k"], console, run=dry_run),
    "data.prompt_column": Effect(["data.prompt_column=question"], console, run=dry_run),
    "data.answer_column": Effect(["data.answer_column=answer"], console, run=dry_run),
    "data.gold_response_column": Effect(["data.gold_response_column=prompt"], error, GRADED, dry_run),
    "data.instruction": Effect(["data.instruction=Think."], console, run=dry_run),
    "data.system_prompt": Effect(["data.system_prompt=Be brief."], console, run=dry_run),
    "data.chat_template_kwargs": Effect(
        ["data.chat_template_kwargs.shout=true"], console, ["model.chat_template=WORLD/template.jinja"], dry_run
    ),
    "data.max_prompt_tokens": Effect(["data.max_prompt_tokens=100"], console, run=dry_run),
    "data.on_overlong": Effect(["data.on_overlong=error"], error, ["data.max_prompt_tokens=29"], dry_run),
    "data.on_bad_row": Effect(["data.on_bad_row=skip"], console, ["data.prompt_column=sometimes"], dry_run),
    "data.self_test_rows": Effect(["data.self_test_rows=2"], console, GRADED, dry_run),
    "data.self_test_share": Effect(["data.self_test_share=0"], error, WRONG_GOLD, dry_run),
    "data.shuffle": Effect(["data.shuffle=false"], lambda evidence: evidence.prompt_ids),
    "data.epochs": Effect(["data.epochs=1"], lambda evidence: len(evidence.metrics), ["data.limit=2"]),
    "data.limit": Effect(["data.limit=2"], console, run=dry_run),
}
REWARDS = {
    "rewards[].function": Effect(["rewards.0.function=WORLD/rewards.py:length"], metric("reward/mean")),
    "rewards[].weight": Effect(["rewards.0.weight=2"], metric("reward/mean")),
    "rewards[].name": Effect(["rewards.0.name=mine"], console, run=dry_run),
    "rewards[].sources": Effect(
        ["rewards.1.sources=['rows.jsonl']"],
        console,
        [f"data.source={SOURCES['mixture']}", "rewards.1.function=WORLD/rewards.py:length"],
        dry_run,
    ),
    "rewards[].arguments": Effect(["rewards.0.arguments.shift=1"], metric("reward/mean")),
    "rewards[].timeout_seconds": Effect(
        ["rewards.0.timeout_seconds=0.02"], metric("samples/error_share"), ["rewards.0.function=WORLD/rewards.py:slow"]
    ),
    "rewards[].memory_gib": Effect(
        ["rewards.0.memory_gib=0.1"], metric("samples/error_share"), ["rewards.0.function=WORLD/rewards.py:hungry"]
    ),
    "rewards[].processes": Effect(
        ["rewards.0.processes=2"], metric("reward/mean"), ["rewards.0.function=WORLD/rewards.py:counting"]
    ),
}
LIKED = ("rewards.0.function=none", "rewards.0.model.path=WORLD/reward-llama")
LABELLED = ("rewards.0.function=none", "rewards.0.model={path='WORLD/reward-gpt2', label='bad'}")
VERDICTS = {
    "number": "{type='number', pattern='(\\d+)', lowest=1, highest=10}",
    "label": "{type='label', labels={good=1, bad=0}}",
    "json": "{type='json', field='score', lowest=1, highest=10}",
}
JUDGES = {"server": f"{{type='server', url='{SERVER}', model='m'}}", "native": "{type='native', path='WORLD/model'}"}


def judge(engine: str = "server", verdict: str = "number") -> tuple[str, ...]:
    """A reward by a judge of that kind."""
    base = "rewards.0.judge"
    rubric = f"{base}.rubric=How good is {{completion}}?"
    return ("rewards.0.function=none", f"{base}.engine={JUDGES[engine]}", rubric, f"{base}.verdict={VERDICTS[verdict]}")


def judged(key: str, value: str, look: Callable[[Judgement], Any], base: Sequence[str]) -> Effect:
    """A key of a reward model or a judge."""
    return Effect([f"rewards.0.{key}={value}"], look, base, judgement)


def values(found: Judgement) -> Any:
    return found.values


def bodies(found: Judgement) -> Any:
    return found.bodies


JUDGING = {
    "rewards[].model.path": judged("model.path", "WORLD/reward-gpt2", lambda found: found.error, LIKED),
    "rewards[].model.revision": judged(
        "model.revision", "v2", error, ["rewards.0.function=none", "rewards.0.model.path=some-owner/absent"]
    ),
    "rewards[].model.dtype": judged("model.dtype", "bfloat16", values, LIKED),
    "rewards[].model.label": judged("model.label", "good", values, LABELLED),
    "rewards[].model.reads": judged("model.reads", "completion", values, LIKED),
    "rewards[].model.mean": judged("model.mean", "1", values, LIKED),
    "rewards[].model.scale": judged("model.scale", "2", values, LIKED),
    "rewards[].model.batch_tokens": judged("model.batch_tokens", "1", lambda found: found.num_batches, LIKED),
    "rewards[].judge.engine.type": judged("judge.engine.type", "native", error, judge()),
    "rewards[].judge.engine.url (server)": judged("judge.engine.url", "http://127.0.0.1:9/v1", bodies, judge()),
    "rewards[].judge.engine.model (server)": judged("judge.engine.model", "other", bodies, judge()),
    "rewards[].judge.engine.api_key_variable (server)": judged(
        "judge.engine.api_key_variable", "HOME", lambda found: "authorization" in found.headers[0], judge()
    ),
    "rewards[].judge.engine.concurrency (server)": judged(
        "judge.engine.concurrency", "1", lambda found: found.was_asked_at_once, judge()
    ),
    "rewards[].judge.engine.retries (server)": judged(
        "judge.engine.retries", "0", values, [*judge(), "rewards.0.judge.engine.model=busy"]
    ),
    "rewards[].judge.engine.options (server)": judged("judge.engine.options.top_p", "0.5", bodies, judge()),
    "rewards[].judge.engine.path (native)": judged("judge.engine.path", "WORLD/absent", error, judge("native")),
    "rewards[].judge.engine.dtype (native)": judged(
        "judge.engine.dtype", "bfloat16", lambda found: found.dtype, [*judge("native"), "rewards.0.timeout_seconds=9"]
    ),
    "rewards[].judge.rubric": judged("judge.rubric", "Is {completion} good?", bodies, judge()),
    "rewards[].judge.verdict.type": judged("judge.verdict.type", "label", error, judge()),
    "rewards[].judge.verdict.pattern (number)": judged("judge.verdict.pattern", "'of (9+)'", values, judge()),
    "rewards[].judge.verdict.lowest (number)": judged("judge.verdict.lowest", "0", values, judge()),
    "rewards[].judge.verdict.highest (number)": judged("judge.verdict.highest", "20", values, judge()),
    "rewards[].judge.verdict.labels (label)": judged(
        "judge.verdict.labels.good", "0.5", values, judge(verdict="label")
    ),
    "rewards[].judge.verdict.field (json)": judged("judge.verdict.field", "mark", values, judge(verdict="json")),
    "rewards[].judge.verdict.lowest (json)": judged("judge.verdict.lowest", "0", values, judge(verdict="json")),
    "rewards[].judge.verdict.highest (json)": judged("judge.verdict.highest", "20", values, judge(verdict="json")),
    "rewards[].judge.temperature": judged("judge.temperature", "0.5", bodies, judge()),
    "rewards[].judge.max_new_tokens": judged("judge.max_new_tokens", "9", bodies, judge()),
}
ROLLOUT = {
    "rollout.type": refused("rollout.type must be one of native, vllm", "rollout.type=other"),
    **{
        f"rollout.vllm.{key}": refused(
            f"rollout.vllm.{key} does nothing: rollout.type is native", f"rollout.vllm.{key}={value}"
        )
        for key, value in (("cache_gib", "2"), ("gpu_memory_utilization", "0.5"), ("engine_args", "{seed=1}"))
    },
    "rollout.replicas": Effect(
        ["rollout.replicas=2"], lambda evidence: "rollout/replica_imbalance" in evidence.metrics[1]
    ),
    "rollout.prompts_per_step": Effect(["rollout.prompts_per_step=3"], metric("groups/generated")),
    "rollout.group_size": Effect(["rollout.group_size=3"], lambda evidence: len(evidence.samples)),
    "rollout.max_new_tokens": Effect(["rollout.max_new_tokens=4"], metric("length/max")),
    "rollout.temperature": Effect(["rollout.temperature=0.5"], token_ids),
    "rollout.top_p": refused("rollout.top_p must be 1 in training", "rollout.top_p=0.9"),
    "rollout.top_k": refused("rollout.top_k must be 0 (off) in training", "rollout.top_k=5"),
    "rollout.stop_strings": Effect(
        [f"rollout.stop_strings={[chr(c) for c in range(97, 123)]}"], metric("samples/truncated_share")
    ),
    "rollout.stop_token_ids": Effect([f"rollout.stop_token_ids={list(range(100))}"], metric("samples/truncated_share")),
    "rollout.max_running": Effect(["rollout.max_running=1"], called("decode steps"), run=operations),
    "rollout.max_cache_tokens": Effect(["rollout.max_cache_tokens=60"], called("decode steps"), run=operations),
    "rollout.sleep_during_update": Effect(["rollout.sleep_during_update=false"], metric("memory/released_bytes")),
    "rollout.packed_linears": Effect(
        ["rollout.packed_linears=false"], called("mkldnn._linear_pointwise.default"), run=operations
    ),
}
TRAINING = {
    "training.type": refused("training.type must be fsdp2", "training.type=other"),
    "training.learning_rate": Effect(["training.learning_rate=1e-4"], learning_rate),
    "training.beta1": Effect(["training.beta1=0.5"], weights),
    "training.beta2": Effect(["training.beta2=0.5"], weights),
    "training.epsilon": Effect(["training.epsilon=1e-2"], weights),
    "training.weight_decay": Effect(["training.weight_decay=0.1"], weights),
    "training.warmup_updates": Effect(["training.warmup_updates=4"], learning_rate),
    "training.schedule": Effect(["training.schedule=cosine"], learning_rate, LINEAR),
    "training.schedule_updates": Effect(["training.schedule_updates=8"], learning_rate, LINEAR),
    "training.minimum_learning_rate": Effect(["training.minimum_learning_rate=1e-4"], learning_rate, LINEAR),
    "training.max_gradient_norm": Effect(["training.max_gradient_norm=1e-3"], weights),
    "training.micro_batch_tokens": Effect(["training.micro_batch_tokens=36"], metric("update/micro_batches")),
    "training.updates_per_batch": Effect(["training.updates_per_batch=2"], metric("update/applied")),
    "training.epochs_per_batch": Effect(["training.epochs_per_batch=2"], metric("update/applied")),
    "training.gradient_checkpointing": Effect(
        ["training.gradient_checkpointing=true"], called("aten.silu.default"), run=operations
    ),
    "training.shard_size": refused(
        "training.shard_size must divide the number of training processes (1), got 2", "training.shard_size=2"
    ),
    "training.logprob_chunk_tokens": Effect(
        ["training.logprob_chunk_tokens=4"], called("aten.mm.default"), run=operations
    ),
    "training.max_skipped_updates": Effect(
        ["training.max_skipped_updates=2"], lambda number: number, run=skipped_updates
    ),
}
TRAINER = {
    "trainer.schedule": refused("trainer.schedule must be sync", "trainer.schedule=other"),
    "cluster.type": refused("cluster.type must be one of local, ray", "cluster.type=other"),
    **{
        f"cluster.{key}": refused(f"cluster.{key} does nothing: cluster.type is local", f"cluster.{key}={value}")
        for key, value in (
            ("address", "'127.0.0.1:1'"),
            ("trainers", "2"),
            ("placement", "split"),
            ("trainer_cores", "1"),
            ("sampler_cores", "1"),
            ("environment", "{trainer={A='b'}}"),
            ("start_timeout_seconds", "9"),
        )
    },
}
WEIGHT_SYNC = {
    "weight_sync.probe_tokens": Effect(["weight_sync.probe_tokens=12"], lambda evidence: evidence.num_probe_tokens),
    "weight_sync.max_logprob_difference": Effect(
        ["weight_sync.max_logprob_difference=1e-9"], error, ["model.rollout_dtype=bfloat16"]
    ),
    "weight_sync.canary": Effect(["weight_sync.canary=true"], called("aten.silu.default"), run=operations),
    **{
        f"weight_sync.{key}": refused(
            f"weight_sync.{key} does nothing: cluster.type is local", f"weight_sync.{key}={value}"
        )
        for key, value in (("transfer", "broadcast"), ("bucket_mib", "4"), ("folder", "WORLD/weights"))
    },
}
EVALUATING = {
    "evaluation.limit": Effect(["evaluation.limit=1"], lambda evidence: evidence.evaluation(0)["scores"], EVALUATION),
    "evaluation.every": Effect(["evaluation.every=1"], evaluated_steps, EVALUATION),
    "evaluation.before": Effect(["evaluation.before=false"], evaluated_steps, EVALUATION),
    "evaluation.after": Effect(["evaluation.after=false"], evaluated_steps, EVALUATION),
    "evaluation.samples": Effect(["evaluation.samples=3"], evaluated("mean"), EVALUATION),
    "evaluation.temperature": Effect(["evaluation.temperature=0.5"], answers, EVALUATION),
    "evaluation.top_p": Effect(["evaluation.top_p=0.1"], answers, EVALUATION),
    "evaluation.top_k": Effect(["evaluation.top_k=1"], answers, EVALUATION),
    "evaluation.max_new_tokens": Effect(["evaluation.max_new_tokens=2"], evaluated("length"), EVALUATION),
    "evaluation.pass_at": Effect(["evaluation.pass_at=[2]"], evaluated("pass_at_2"), EVALUATION),
    "evaluation.solved_at": Effect(["evaluation.solved_at=0"], evaluated("accuracy"), EVALUATION),
    "evaluation.greedy": Effect(
        ["evaluation.greedy=true"], lambda evidence: set(evidence.evaluations["0"]), EVALUATION
    ),
}
KEPT = {
    "checkpoint.every": Effect(["checkpoint.every=2"], lambda evidence: evidence.checkpoints),
    "checkpoint.keep": Effect(["checkpoint.keep=1"], lambda evidence: evidence.checkpoints),
    "checkpoint.keep_best": Effect(
        [BEST, "checkpoint.best_is=lowest"], lambda evidence: evidence.checkpoints, EVERY_STEP
    ),
    "checkpoint.best_is": Effect(
        ["checkpoint.best_is=lowest"], lambda evidence: evidence.checkpoints, [*EVERY_STEP, BEST]
    ),
    "metrics.sinks": Effect(["metrics.sinks=['tensorboard']"], lambda evidence: evidence.files),
    "metrics.project": Effect(["metrics.project=mine"], projects, ["metrics.sinks=['mlflow']"]),
    "metrics.save_samples": Effect(["metrics.save_samples=false"], lambda evidence: evidence.files),
    "metrics.heartbeat_seconds": Effect(
        ["metrics.heartbeat_seconds=0.05"],
        lambda evidence: "\n... " in evidence.console,
        ["rewards.0.function=WORLD/rewards.py:slow"],
    ),
}
EFFECTS = (
    RUN
    | MODEL
    | DATA
    | source_effects("data")
    | mixture_effects()
    | REWARDS
    | JUDGING
    | ROLLOUT
    | ALGORITHM
    | CRITIC
    | DISTILLATION
    | TRAINING
    | TRAINER
    | WEIGHT_SYNC
    | source_effects("evaluation")
    | EVALUATING
    | KEPT
)
