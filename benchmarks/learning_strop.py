"""strop's side of `learning.py`; runs in the checkout's environment and prints one JSON line."""

import json
import tempfile
from pathlib import Path
from typing import Any

import learning_task
import numpy as np
from learning_task import GROUP_SIZE, NEW_TOKENS, PROMPTS_PER_STEP, WORDS, Work, rows

ALGORITHMS: dict[str, list[str]] = {
    "grpo": ['algorithm.name="grpo"'],
    "dr_grpo": ['algorithm.name="dr_grpo"'],
    "dapo": ['algorithm.name="dapo"', "algorithm.drop_zero_signal=false"],
}
"""TRL has no dynamic sampling, so it is off here."""


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


def replay(work: Work, folder: Path) -> dict[str, float]:
    """Trains on TRL's samples and returns how far prompts, rewards, gradient and weights are from TRL's."""
    from safetensors.torch import load_file

    from strop import api

    different_prompts, reward_difference, num_cut, gradient = 0, 0.0, 0, {}
    with api.open_session(make_config(work, folder)) as session:
        parameters = dict(session.run.policy.causal_lm.named_parameters())
        before = {name: weight.detach().clone() for name, weight in parameters.items()}
        for drawn in work.samples:
            groups = session.reward(trl_groups(session, drawn["completion_ids"]))
            samples = [sample for group in groups for sample in group.samples]
            prompts = [group.prompt.token_ids.tolist() for group in groups]
            different_prompts += sum(
                ours != ids for ours, ids in zip(prompts, drawn["prompt_ids"][::GROUP_SIZE], strict=True)
            )
            pairs = zip(samples, drawn["rewards"], strict=True)
            reward_difference = max(
                reward_difference, *(abs(sample.reward - work.reward_weight * reward) for sample, reward in pairs)
            )
            num_cut += sum(sample.is_truncated for sample in samples)
            session.forward_backward(session.advantages(groups))
            gradient = gradient or {name: weight.grad.clone() for name, weight in parameters.items()}
            session.optimizer_step()
            session.publish()
        moved = {name: weight.detach() - before[name] for name, weight in parameters.items()}
    weights = load_file(Path(work.out) / "weights.safetensors")
    their_move = {name: weight - before[name] for name, weight in weights.items()}
    return {
        "samples": len(work.samples) * PROMPTS_PER_STEP * GROUP_SIZE,
        "samples_cut": num_cut,
        "different_prompts": different_prompts,
        "reward_difference": reward_difference,
        "gradient_difference": difference(gradient, load_file(Path(work.out) / "gradient.safetensors")),
        "move_difference": difference(moved, their_move),
    }


def difference(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Returns the relative norm of the difference of the parameter where it is largest."""
    return max(float((ours[name] - other).norm() / other.norm()) for name, other in theirs.items())


def trl_groups(session: Any, completion_ids: list[list[int]]) -> list[Any]:
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
        ids = completion_ids[place * GROUP_SIZE : (place + 1) * GROUP_SIZE]
        groups.append(Group(prompt, tuple(sample(index, prompt, one) for index, one in enumerate(ids))))
    return groups


if __name__ == "__main__":
    work = Work(**json.loads(input()))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps((train if work.mode == "train" else replay)(work, Path(folder))))
