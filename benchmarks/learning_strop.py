"""strop's side of `learning.py`; runs in the checkout's environment and prints one JSON line."""

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import learning_task
import numpy as np
from learning_task import GROUP_SIZE, NEW_TOKENS, PROMPTS_PER_STEP, WORDS, rows

ALGORITHMS: dict[str, list[str]] = {
    "grpo": ['algorithm.name="grpo"'],
    "dr_grpo": ['algorithm.name="dr_grpo"'],
    "dapo": ['algorithm.name="dapo"', "algorithm.drop_zero_signal=false"],
}
"""TRL has no dynamic sampling, so it is off here."""


@dataclass
class Work:
    """What the caller asks for."""

    mode: str
    model: str
    algorithm: str
    seed: int
    steps: int
    learning_rate: float
    out: str = ""
    """Folder with the gradient that TRL saved, in mode `gradient`."""
    reward_weight: float = 1.0
    samples: dict[str, list[Any]] = field(default_factory=dict)
    """What TRL drew, in mode `gradient`."""
    overrides: list[str] = field(default_factory=list)


def make_config(work: Work, folder: Path) -> Any:
    from strop import api

    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows(work.steps * PROMPTS_PER_STEP)))
    settings = [
        f'model.path="{work.model}"',
        'data.task="columns"',
        'data.source.type="jsonl"',
        f'data.source.path="{data}"',
        "data.shuffle=false",
        f'rewards=[{{function="{learning_task.__file__}:grade", weight={work.reward_weight}}}]',
        f"run.seed={work.seed}",
        f"run.steps={work.steps}",
        "run.threads=1",
        f'run.output_dir="{folder}"',
        f"rollout.prompts_per_step={PROMPTS_PER_STEP}",
        f"rollout.group_size={GROUP_SIZE}",
        f"rollout.max_new_tokens={NEW_TOKENS}",
        f"training.learning_rate={work.learning_rate}",
        "checkpoint.every=0",
    ]
    return api.load_config(None, settings + ALGORITHMS[work.algorithm] + work.overrides)


def train(work: Work, folder: Path) -> dict[str, list[float]]:
    """Returns the mean reward and the mean length of each step."""
    from strop import api

    result = api.train(make_config(work, folder))
    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    steps = [line for line in lines if "reward/mean" in line]
    return {"rewards": [line["reward/mean"] for line in steps], "lengths": [line["length/mean"] for line in steps]}


def gradient(work: Work, folder: Path) -> dict[str, float]:
    """Returns how far prompts, rewards and gradients are from TRL's on the samples that TRL drew."""
    from safetensors.torch import load_file

    from strop import api

    with api.open_session(make_config(work, folder)) as session:
        groups = trl_groups(session, work.samples)
        groups = session.reward(groups)
        rewards = [sample.reward for group in groups for sample in group.samples]
        session.forward_backward(session.advantages(groups))
        ours = {name: weight.grad for name, weight in session.run.policy.causal_lm.named_parameters()}
    theirs = load_file(Path(work.out) / "gradient.safetensors")
    samples = [sample for group in groups for sample in group.samples]
    return {
        "different_prompts": sum(
            group.prompt.token_ids.tolist() != ids
            for group, ids in zip(groups, work.samples["prompt_ids"][::GROUP_SIZE], strict=True)
        ),
        "reward_difference": max(
            abs(reward - work.reward_weight * other)
            for reward, other in zip(rewards, work.samples["rewards"], strict=True)
        ),
        "gradient_difference": max(
            float((ours[name] - gradient).norm() / gradient.norm()) for name, gradient in theirs.items()
        ),
        "samples_cut": sum(sample.is_truncated for sample in samples),
        "samples": len(samples),
    }


def trl_groups(session: Any, drawn: dict[str, list[Any]]) -> list[Any]:
    """Returns TRL's samples as groups of strop's own prompts."""
    from strop.records import Completion, FinishState, Group, Sample

    def sample(index: int, prompt: Any, ids: list[int]) -> Sample:
        completion = Completion(
            token_ids=np.array(ids),
            logprobs=np.zeros(len(ids), np.float32),
            policy_versions=np.full(len(ids), session.run.policy.version),
            finish=FinishState.STOPPED if ids[-1] == WORDS.index("<eos>") else FinishState.LENGTH,
        )
        return Sample(index, (completion.as_row(prompt.token_ids),), completion.finish)

    groups = []
    for place, prompt in enumerate(session.prompts(PROMPTS_PER_STEP)):
        ids = drawn["completion_ids"][place * GROUP_SIZE : (place + 1) * GROUP_SIZE]
        groups.append(Group(prompt, tuple(sample(index, prompt, one) for index, one in enumerate(ids))))
    return groups


if __name__ == "__main__":
    work = Work(**json.loads(input()))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps((train if work.mode == "train" else gradient)(work, Path(folder))))
