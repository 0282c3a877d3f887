"""The same task, model and hyperparameters on TRL and on strop: do both learn equally fast?

A self-written oracle can share a wrong sign, mask or denominator with the code it tests; another library cannot.
A small random Llama is rewarded for the share of the letter e in what it says. Usage, from the checkout:

    python3 -m venv .venv-trl && .venv-trl/bin/pip install torch==2.13.0 trl==1.16.0
    .venv/bin/python benchmarks/learning.py compare --seeds 5 --steps 40

`compare` runs both sides for each seed and prints mean rewards with standard errors, as JSON and as a table.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROMPTS_PER_STEP, GROUP_SIZE, NEW_TOKENS, LEARNING_RATE = 8, 8, 16, 1e-3
WORDS = "red green blue cat dog bird runs sleeps eats sings over under near far the a one two".split()
LAST_STEPS = 5
"""The final reward is the mean over so many last steps."""


def share_of_e(text: str) -> float:
    return text.count("e") / max(1, len(text))


def questions(count: int) -> list[str]:
    rng = random.Random(0)
    return [" ".join(rng.choice(WORDS) for _ in range(8)) for _ in range(count)]


def make_model(folder: Path, tokenizer_from: str, seed: int) -> None:
    """Saves a small random Llama that both sides start from."""
    import torch
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_from)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def run_strop(folder: Path, seed: int, steps: int) -> list[float]:
    from strop import api

    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps({"question": text}) + "\n" for text in questions(steps * PROMPTS_PER_STEP)))
    reward = folder / "reward.py"
    reward.write_text("def reward(completion):\n    return completion.count('e') / max(1, len(completion))\n")
    overrides = [
        f'model.path="{folder}"',
        'data.task="columns"',
        'data.source.type="jsonl"',
        f'data.source.path="{data}"',
        f'rewards=[{{function="{reward}:reward"}}]',
        f"run.seed={seed}",
        f"run.steps={steps}",
        f'run.output_dir="{folder / "runs"}"',
        f"rollout.prompts_per_step={PROMPTS_PER_STEP}",
        f"rollout.group_size={GROUP_SIZE}",
        f"rollout.max_new_tokens={NEW_TOKENS}",
        f"training.learning_rate={LEARNING_RATE}",
        "checkpoint.every=0",
        "checkpoint.keep=2",
    ]
    result = api.train(api.load_config(None, overrides))
    lines = [json.loads(line) for line in (result.folder / "metrics.jsonl").read_text().splitlines()]
    return [line["reward/mean"] for line in lines if line["step"] > 0]


def run_trl(folder: Path, seed: int, steps: int) -> list[float]:
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rewards: list[float] = []

    def reward(completions: list[Any], **kwargs: Any) -> list[float]:
        values = [share_of_e(one if isinstance(one, str) else one[0]["content"]) for one in completions]
        rewards.append(sum(values) / len(values))
        return values

    rows = [[{"role": "user", "content": text}] for text in questions(steps * PROMPTS_PER_STEP)]
    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=PROMPTS_PER_STEP * GROUP_SIZE,
        num_generations=GROUP_SIZE,
        max_completion_length=NEW_TOKENS,
        max_steps=steps,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        weight_decay=0.0,
        max_grad_norm=1.0,
        beta=0.0,
        loss_type="grpo",
        temperature=1.0,
        top_k=0,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        model_init_kwargs={"dtype": torch.float32},
        dataloader_pin_memory=False,
        seed=seed,
    )
    trainer = GRPOTrainer(
        model=str(folder), args=config, reward_funcs=reward, train_dataset=Dataset.from_dict({"prompt": rows})
    )
    trainer.train()
    return rewards[:steps]


def compare(options: argparse.Namespace) -> None:
    curves: dict[str, list[list[float]]] = {"strop": [], "trl": []}
    for seed in range(options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            make_model(Path(folder), options.tokenizer, seed)
            for side, python in (("strop", sys.executable), ("trl", options.trl_python)):
                command = [
                    python,
                    __file__,
                    side,
                    "--folder",
                    folder,
                    "--seed",
                    str(seed),
                    "--steps",
                    str(options.steps),
                ]
                environment = {**os.environ, "TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
                output = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
                curves[side].append(json.loads(output.splitlines()[-1]))
    report = {side: summary(runs) for side, runs in curves.items()}
    print(json.dumps({"report": report, "curves": curves}))
    for side, values in report.items():
        print(f"{side:6} first {values['first']:.3f}, last {values['last']:.3f} ± {values['standard_error']:.3f}")


def summary(runs: list[list[float]]) -> dict[str, float]:
    finals = [sum(run[-LAST_STEPS:]) / LAST_STEPS for run in runs]
    mean = sum(finals) / len(finals)
    variance = sum((value - mean) ** 2 for value in finals) / max(1, len(finals) - 1)
    first = sum(run[0] for run in runs) / len(runs)
    return {"first": first, "last": mean, "standard_error": math.sqrt(variance / len(finals))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=["compare", "strop", "trl"])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tokenizer", default="", help="a folder with a tokenizer that has a chat template")
    parser.add_argument("--trl-python", default=".venv-trl/bin/python")
    options = parser.parse_args()
    if options.side == "compare":
        compare(options)
    else:
        run = run_strop if options.side == "strop" else run_trl
        print(json.dumps(run(options.folder, options.seed, options.steps)))


if __name__ == "__main__":
    main()
