"""The command `strop`: its sub-commands, and the boundary where errors become messages.

Exit codes: 0 done; 1 something was found wrong (doctor, grade --check) or the program failed, with its
traceback; 2 a mistake that a person can put right, in the arguments, the config, the data or the model; 130 Ctrl-C.
"""

import os
import sys

import typer

from strop.cli.bench import app as bench
from strop.cli.config import config
from strop.cli.doctor import doctor
from strop.cli.evaluate import evaluate
from strop.cli.export import export
from strop.cli.generate import generate
from strop.cli.grade import grade
from strop.cli.offline import dpo, ipo, kto, sft
from strop.cli.samples import samples
from strop.cli.train import train
from strop.devices.environment import prepare_environment
from strop.errors import StropError

app = typer.Typer(
    name="strop",
    help="Reinforcement-learning post-training of language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(train)
app.command()(sft)
app.command()(dpo)
app.command()(ipo)
app.command()(kto)
app.command("eval")(evaluate)
app.command()(generate)
app.command()(grade)
app.command()(samples)
app.command()(export)
app.command()(doctor)
app.command()(config)
app.add_typer(bench, name="bench")


def main() -> None:
    """Runs the command line; strop's own errors end as a message on stderr and their exit code."""
    prepare_environment()
    try:
        app(prog_name="strop")
    except StropError as error:
        if os.environ.get("STROP_TRACEBACK") == "1":
            raise
        typer.echo(_message(error), err=True)
        sys.exit(error.exit_code)


def _message(error: StropError) -> str:
    remedy = f"\n{error.remedy}" if error.remedy else ""
    notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
    return f"error: {error.message}{remedy}{notes}"


if __name__ == "__main__":
    main()
