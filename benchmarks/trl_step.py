"""Times TRL's GRPOTrainer on fixed work on a CPU and prints one JSON line.

Runs in an environment of its own: `python3 -m venv .venv-trl && .venv-trl/bin/pip install torch==2.13.0 trl==1.16.0`.
The work of a step: P prompts x G completions of exactly `--new-tokens` tokens (EOS suppressed), one optimizer
step, float32, generation by transformers. Phases are timed by wrapping TRL's own methods.
"""

import argparse
import json
import os
import random
import resource
import time
import warnings
from typing import Any

for name, value in {
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "2",
    "OMP_WAIT_POLICY": "PASSIVE",
    "GOMP_SPINCOUNT": "0",
}.items():
    os.environ.setdefault(name, value)
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import trl  # noqa: E402
from datasets import Dataset  # noqa: E402
from transformers import AutoTokenizer, TrainerCallback  # noqa: E402
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

WORDS = "the cat sat on a mat and then it ran to find more food in the big house near an old tree by the river".split()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--micro-batch", type=int, default=8, help="sequences at once")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def prompt_of_length(tokenizer: Any, rng: random.Random, length: int) -> str:
    """A text that encodes to exactly `length` tokens, also after a round trip."""
    while True:
        text = " ".join(rng.choice(WORDS) for _ in range(length * 2))
        ids = tokenizer(text, add_special_tokens=False).input_ids[:length]
        text = tokenizer.decode(ids)
        if len(tokenizer(text, add_special_tokens=False).input_ids) == length:
            return text


class TimedTrainer(GRPOTrainer):
    """Adds up the seconds of each phase."""

    seconds = {"generate": 0.0, "prepare": 0.0, "train": 0.0}
    lengths: set[int] = set()

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = super()._generate_single_turn(*args, **kwargs)
        self.seconds["generate"] += time.perf_counter() - start
        self.lengths.update(len(ids) for ids in result[0])
        return result

    def _prepare_inputs(self, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        result = super()._prepare_inputs(*args, **kwargs)
        self.seconds["prepare"] += time.perf_counter() - start
        return result

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        before, start = self.seconds["prepare"], time.perf_counter()
        result = super().training_step(*args, **kwargs)
        self.seconds["train"] += time.perf_counter() - start - (self.seconds["prepare"] - before)
        return result


class StepClock(TrainerCallback):
    """Wall seconds of each optimizer step, with its phases."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self.start = 0.0

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        self.start = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        now = time.perf_counter()
        self.steps.append({"step": now - self.start, **TimedTrainer.seconds})
        TimedTrainer.seconds = dict.fromkeys(TimedTrainer.seconds, 0.0)
        self.start = now


def main() -> None:
    options = parse_arguments()
    torch.set_num_threads(options.threads)
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    tokenizer.padding_side = "left"
    rng = random.Random(0)
    texts = [
        prompt_of_length(tokenizer, rng, options.prompt_tokens) for _ in range(options.prompts * (options.steps + 1))
    ]

    def reward(completions: list[str], **kwargs: Any) -> list[float]:
        return [sum(c in "aeiou" for c in text) / max(1, len(text)) + rng.random() * 1e-3 for text in completions]

    num_samples = options.prompts * options.group_size
    config = GRPOConfig(
        output_dir="runs/trl",
        use_cpu=True,
        bf16=False,
        per_device_train_batch_size=options.micro_batch,
        gradient_accumulation_steps=num_samples // options.micro_batch,
        num_generations=options.group_size,
        max_completion_length=options.new_tokens,
        max_steps=options.steps,
        learning_rate=1e-5,
        beta=0.0,
        temperature=1.0,
        gradient_checkpointing=False,
        generation_kwargs={"min_new_tokens": options.new_tokens},
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        model_init_kwargs={"dtype": torch.float32},
        dataloader_pin_memory=False,
        seed=1,
    )
    clock = StepClock()
    trainer = TimedTrainer(
        model=options.model,
        args=config,
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": texts}),
        processing_class=tokenizer,
        callbacks=[clock],
    )
    trainer.train()
    steady = clock.steps[1:] or clock.steps
    report = {
        "tool": f"trl {trl.__version__}",
        "work": vars(options),
        "step_seconds": [round(step["step"], 3) for step in steady],
        "rollout_seconds": [round(step["generate"], 3) for step in steady],
        "update_seconds": [round(step["train"], 3) for step in steady],
        "completion_lengths": sorted(TimedTrainer.lengths),
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
