"""`strop config`: every key of a run file with its default, bounds and documentation."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from strop.config.describe import KeyDescription


def config(
    name: Annotated[
        str | None, typer.Argument(metavar="[SECTION or KEY]", help="Only this, such as training or run.steps.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON list of objects.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a page of Markdown tables.")] = False,
    offline: Annotated[bool, typer.Option("--offline", help="The keys of `strop sft`, dpo, ipo and kto.")] = False,
) -> None:
    """List every key of a run file.

    Each with its documentation, default, type and bounds, as a TOML file.
    """
    from strop import api
    from strop.config import describe

    if as_json and as_markdown:
        raise typer.BadParameter("--json and --markdown must not be given together")
    descriptions = api.describe_config(name, offline=offline)
    if as_json:
        typer.echo(describe.as_json(descriptions))
    elif as_markdown:
        typer.echo(describe.as_markdown(descriptions, offline=offline))
    else:
        typer.echo(_listing(descriptions))


def _listing(descriptions: "list[KeyDescription]") -> str:
    """The keys as a commented TOML file."""
    lines: list[str] = []
    heading = None
    for description in descriptions:
        table, _, name = description.key.rpartition(".")
        if (table, description.when) != heading:
            heading = (table, description.when)
            lines += ["", _heading(table, description.when)]
        lines += [f"# {description.documentation}", _assignment(name, description)]
    return "\n".join(lines).strip()


def _heading(table: str, when: str) -> str:
    header = f"[[{table.removesuffix('[]')}]]" if table.endswith("[]") else f"[{table}]"
    return f"{header}  # with {when}" if when else header


def _assignment(name: str, description: "KeyDescription") -> str:
    """A line of TOML, or a comment where the key is required or absent by default."""
    wanted = f"{description.kind}, {description.constraints}" if description.constraints else description.kind
    if description.required:
        return f"# {name} =  # required: {wanted}"
    if description.default == "none":
        return f"# {name} =  # left out by default: {wanted}"
    return f"{name} = {description.default}  # {wanted}"
