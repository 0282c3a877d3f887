"""What a run needs before any weight is loaded: prompts, task, rewards, stop tokens, limits.

Everything that can be wrong with data, columns, rewards or lengths is found here, in seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from transformers import PreTrainedTokenizerBase

from strop.config.bundles import resolve_algorithm
from strop.config.checks import check
from strop.config.data import MixtureSource
from strop.config.evaluation import EvaluationConfig
from strop.config.root import Config
from strop.data import ChatRenderer, DataReport, PromptTable, build_renderer, mixture_weights, prompt_budget
from strop.distillation.teachers import check_routes, check_teachers
from strop.errors import ConfigError
from strop.models.load import load_generation_config, load_model_config, load_tokenizer, max_length
from strop.models.lora import check_adapters
from strop.models.stops import StopSet, find_stops
from strop.records import Group, Sample, SamplingParams
from strop.rollout.vllm.versions import require_vllm
from strop.tasks import WeightedReward, completion_text, reward_group
from strop.tasks.graded import GradedReward
from strop.trainers.evaluate import EvaluationPlan, EvaluationSettings, with_greedy
from strop.trainers.judge_sampler import build_model_host
from strop.trainers.reader import DataReader, JudgedTask
from strop.trainers.scores import Scoring
from strop.trainers.user_parts import try_user_parts, user_parts


@dataclass(frozen=True)
class Inputs:
    """The prepared inputs of a run."""

    tokenizer: PreTrainedTokenizerBase
    renderer: ChatRenderer
    tasks: Mapping[str, JudgedTask]
    """Every task by the name that its prompts carry."""
    stops: StopSet
    max_length: int
    """Most tokens of prompt and completion together."""
    training: PromptTable
    training_report: DataReport
    evaluation: PromptTable | None
    evaluation_report: DataReport | None

    async def judge(self, group: Group) -> Group:
        """Returns the group with rewards on its samples."""
        rewards = self.tasks[group.prompt.task].rewards
        return await reward_group(group, rewards, self.renderer, self.stops.token_ids)

    def text_of_tokens(self, token_ids: Sequence[int]) -> str:
        """The text of token ids, special tokens left out."""
        return self.renderer.decode(np.asarray(token_ids, dtype=np.int64))

    def text_of(self, sample: Sample) -> str:
        """What a sample says, without the stop token."""
        return completion_text(sample, self.renderer, self.stops.token_ids) if sample.rows else ""


def prepare_inputs(config: Config) -> Inputs:
    """Loads and renders the data, builds task and rewards, and checks that they fit each other and the model.

    Raises ConfigError where keys do not go together, and what loading data, task, rewards and tokenizer raises.
    """
    check(config)
    if config.rollout.type == "vllm":
        require_vllm()
    user_parts(resolve_algorithm(config.algorithm, config.rollout.max_new_tokens))
    tokenizer = load_tokenizer(config.model)
    stops = find_stops(tokenizer, load_generation_config(config.model), config.rollout.stop_token_ids)
    model_config = load_model_config(config.model)
    check_adapters(config.model, model_config)
    if config.distillation is not None:
        check_teachers(config.distillation, tokenizer, model_config)
    length = max_length(config.model, model_config)
    renderer = build_renderer(tokenizer, config.data)
    reader = DataReader(config.data, config.rewards, renderer, build_model_host(config.run.device))
    budget = prompt_budget(config.data.max_prompt_tokens, length, config.rollout.max_new_tokens)
    training, training_report = reader.read(config.data.source, config.data.limit, budget)
    if isinstance(config.data.source, MixtureSource):
        shares = mixture_weights(training, config.data.source).lines()
        training_report = replace(training_report, shares=tuple(shares))
    if config.distillation is not None:
        check_routes(config.distillation, training.prompts())
    evaluation, evaluation_report = None, None
    if config.evaluation is not None:
        budget = _evaluation_budget(config, config.evaluation, length)
        evaluation, evaluation_report = reader.read(
            config.evaluation.source, config.evaluation.limit, budget, "evaluation.source"
        )
        evaluation_report = _with_overlap(evaluation_report, training, evaluation)
    _check_lengths(config, length, training_report, evaluation_report)
    try_user_parts(config, training, reader.tasks)
    return Inputs(
        tokenizer, renderer, reader.tasks, stops, length, training, training_report, evaluation, evaluation_report
    )


def _evaluation_budget(config: Config, section: EvaluationConfig, length: int) -> int | None:
    """The longest held-out prompt allowed."""
    if section.max_new_tokens is None:
        return prompt_budget(config.data.max_prompt_tokens, length, config.rollout.max_new_tokens)
    return prompt_budget(config.data.max_prompt_tokens, length, section.max_new_tokens, "evaluation")


def _with_overlap(report: DataReport, training: PromptTable, evaluation: PromptTable) -> DataReport:
    """The report of the held-out prompts, with a notice where they are trained on too."""
    trained = {row.token_ids.tobytes() for row in training.rows}
    num_shared = sum(row.token_ids.tobytes() in trained for row in evaluation.rows)
    if not num_shared:
        return report
    notice = f"{num_shared} of the {len(evaluation)} held-out prompts are training prompts too"
    return replace(report, notices=(*report.notices, notice))


def _check_lengths(config: Config, length: int, training: DataReport, evaluation: DataReport | None) -> None:
    """Refuses a probe longer than the model, and a cache that cannot hold one sample of the longest prompt."""
    probe_tokens, cache_tokens = config.weight_sync.probe_tokens, config.rollout.max_cache_tokens
    if probe_tokens > length:
        raise ConfigError(
            f"weight_sync.probe_tokens must be at most the model's maximum ({length}), got {probe_tokens}", "Lower it."
        )
    needs = {
        "the probe": probe_tokens,
        "the longest prompt and its sample": training.longest_tokens + config.rollout.max_new_tokens,
    }
    if evaluation is not None and config.evaluation is not None:
        new_tokens = config.evaluation.max_new_tokens or config.rollout.max_new_tokens
        needs["the longest prompt of evaluation.source and its sample"] = evaluation.longest_tokens + new_tokens
    what, needed = max(needs.items(), key=lambda item: item[1])
    if needed > cache_tokens:
        raise ConfigError(
            f"rollout.max_cache_tokens must hold {what}, {needed} tokens, got {cache_tokens}",
            "Raise it to the tokens of several samples and their prompts, or lower data.max_prompt_tokens.",
        )


def training_sampling(config: Config, stops: StopSet) -> SamplingParams:
    """How training samples are drawn."""
    rollout = config.rollout
    return SamplingParams(
        max_new_tokens=rollout.max_new_tokens,
        temperature=rollout.temperature,
        top_p=rollout.top_p,
        top_k=rollout.top_k,
        stop_token_ids=stops.token_ids,
        stop_strings=tuple(rollout.stop_strings),
    )


def evaluation_plan(config: Config, inputs: Inputs) -> EvaluationPlan | None:
    """The held-out prompts, sampled as `evaluation` says, and greedily too where it asks for that."""
    section = config.evaluation
    if section is None or inputs.evaluation is None:
        return None
    sampling = SamplingParams(
        max_new_tokens=section.max_new_tokens or config.rollout.max_new_tokens,
        temperature=section.temperature,
        top_p=section.top_p,
        top_k=section.top_k,
        stop_token_ids=inputs.stops.token_ids,
        stop_strings=tuple(config.rollout.stop_strings),
    )
    scoring = Scoring("sampled", section.solved_at, tuple(section.pass_at))
    sampled = EvaluationSettings(section.samples, sampling, config.run.seed, scoring)
    both = [sampled, with_greedy(sampled)] if section.greedy else [sampled]
    return EvaluationPlan(inputs.evaluation.prompts(), both)


def reward_names(rewards: Sequence[WeightedReward]) -> str:
    """The rewards with their weights, and of graders with two modes the mode, for a person to read."""
    return ", ".join(f"{reward.name}{_mode_of(reward)} x {reward.weight:g}" for reward in rewards)


def _mode_of(reward: WeightedReward) -> str:
    grader = reward.function
    return f" ({grader.mode})" if isinstance(grader, GradedReward) and len(grader.modes) > 1 else ""
