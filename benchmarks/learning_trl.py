"""TRL's side of `learning.py`; runs in TRL's environment and prints one JSON line."""

import json
import tempfile
from pathlib import Path
from typing import Any

from learning_task import GROUP_SIZE, NEW_TOKENS, PROMPTS_PER_STEP, Work, grade, rows

ALGORITHMS: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "scale_rewards": "group"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "dapo": {"loss_type": "dapo", "scale_rewards": "group", "mask_truncated_completions": True},
}
SETTINGS: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "per_device_train_batch_size": PROMPTS_PER_STEP * GROUP_SIZE,
    "num_generations": GROUP_SIZE,
    "max_completion_length": NEW_TOKENS,
    "shuffle_dataset": False,
    "optim": "adamw_torch",
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "lr_scheduler_type": "constant",
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "beta": 0.0,
    "num_iterations": 1,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "gradient_checkpointing": False,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
}


def make_trainer(work: Work, kind: Any, reward: Any, folder: str) -> Any:
    import torch
    from datasets import Dataset
    from trl import GRPOConfig

    torch.set_num_threads(1)
    data = rows(work.steps * PROMPTS_PER_STEP)
    config = GRPOConfig(
        output_dir=folder,
        max_steps=work.steps,
        learning_rate=work.learning_rate,
        seed=work.seed,
        reward_weights=[work.reward_weight],
        model_init_kwargs={"dtype": torch.float32},
        **{**SETTINGS, **ALGORITHMS[work.algorithm]},
    )
    prompts = [[{"role": "user", "content": row["question"]}] for row in data]
    dataset = Dataset.from_dict({"prompt": prompts, "number": [row["number"] for row in data]})
    return kind(model=work.model, args=config, reward_funcs=reward, train_dataset=dataset)


def grades(completions: list[Any], number: list[str]) -> list[float]:
    return [grade(turns[0]["content"], one) for turns, one in zip(completions, number, strict=True)]


def train(work: Work, folder: str) -> dict[str, list[float]]:
    """Returns the mean reward and the mean length of each step."""
    from trl import GRPOTrainer

    curves: dict[str, list[float]] = {"rewards": [], "lengths": []}

    def reward(completions: list[Any], completion_ids: list[list[int]], number: list[str], **_: Any) -> list[float]:
        values = grades(completions, number)
        curves["rewards"].append(sum(values) / len(values))
        curves["lengths"].append(sum(map(len, completion_ids)) / len(completion_ids))
        return values

    make_trainer(work, GRPOTrainer, reward, folder).train()
    return curves


def draw(work: Work, folder: str) -> list[dict[str, list[Any]]]:
    """Returns the samples of each step; saves the first gradient, before clipping, and the last weights."""
    from safetensors.torch import save_file
    from trl import GRPOTrainer

    drawn: list[dict[str, list[Any]]] = []

    class Recorder(GRPOTrainer):
        def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
            result = super()._generate_single_turn(prompt_ids, *args, **kwargs)
            drawn.append({"prompt_ids": [list(ids) for ids in prompt_ids], "completion_ids": result[0]})
            return result

        def training_step(self, model: Any, *args: Any, **kwargs: Any) -> Any:
            result = super().training_step(model, *args, **kwargs)
            if len(drawn) == 1:
                gradients = {name: weight.grad.contiguous() for name, weight in model.named_parameters()}
                save_file(gradients, Path(work.out) / "gradient.safetensors")
            return result

    def reward(completions: list[Any], number: list[str], **_: Any) -> list[float]:
        drawn[-1]["rewards"] = grades(completions, number)
        return drawn[-1]["rewards"]

    trainer = make_trainer(work, Recorder, reward, folder)
    trainer.train()
    weights = {name: weight.detach().contiguous() for name, weight in trainer.model.named_parameters()}
    save_file(weights, Path(work.out) / "weights.safetensors")
    return drawn


if __name__ == "__main__":
    work = Work(**json.loads(input()))
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps((train if work.mode == "train" else draw)(work, folder)))
