"""`toolmason list [TARGET] [NAME]`: names, parameters, effects and what each tool costs in tokens."""

from __future__ import annotations

import json

import click

from toolmason._core.define.tool import Tool
from toolmason.build.check.provider_limits import tokens_of
from toolmason.cli.complete import complete_list
from toolmason.cli.output import console, harmless, is_terminal, print_json, print_text
from toolmason.cli.targets import kinds_of, tool_in, toolbox_at


@click.command("list")
@click.argument("target", required=False, shell_complete=complete_list)
@click.argument("name", required=False, shell_complete=complete_list)
@click.option("--tool", metavar="NAME", help="Show this tool in full, as NAME does; works without a TARGET.")
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as JSON.")
def command(target: str | None, name: str | None, tool: str | None, *, as_json: bool) -> None:
    """List the tools of TARGET, or of installed plugins; with NAME, show one tool in full."""
    box = toolbox_at(target)
    wanted = name or tool
    if wanted is not None:
        entry = _entry(tool_in(box, wanted))
        print_json(entry) if as_json else print_text(json.dumps(entry, indent=2, ensure_ascii=False))
        return
    if not as_json and target is None and not box.tools:
        click.echo("No tools are installed. Give a TARGET, or install a plugin.", err=True)
    else:
        show(box.tools, as_json=as_json)


def show(tools: list[Tool], *, as_json: bool) -> None:
    """Print tools: as JSON, as a table on a terminal, or a line each."""
    if as_json:
        print_json([_entry(each) for each in tools])
    elif is_terminal():
        _print_table(tools)
    else:
        for each in tools:
            cost = f"~{tokens_of(each.definition)} tokens"
            click.echo(f"{each.name}({parameters_of(each)})  {effects_of(each)}  {cost}  {summary_of(each)}")


def _print_table(tools: list[Tool]) -> None:
    from rich.table import Table  # noqa: PLC0415 - 60 ms at start-up, for a terminal alone

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Tool", "Parameters", "Effects", "~Tokens", "Description"):
        table.add_column(heading, justify="right" if heading == "~Tokens" else "left", overflow="fold")
    table.columns[0].style = "cyan"
    for tool in tools:
        row = (tool.name, parameters_of(tool), effects_of(tool), str(tokens_of(tool.definition)), summary_of(tool))
        table.add_row(*map(harmless, row))
    console().print(table)


def _entry(tool: Tool) -> dict[str, object]:
    definition = tool.definition
    return {
        "name": definition.name,
        "description": definition.description,
        "input_schema": definition.input_schema,
        "output_schema": definition.output_schema,
        "effects": effects_of(tool),
        "tokens": tokens_of(tool.definition),
    }


def parameters_of(tool: Tool) -> str:
    """Return the parameters as one line; those that may be left out end in `?`."""
    schema = tool.definition.input_schema
    required = schema.get("required", ())
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {'|'.join(sorted(kinds_of(part, schema))) or 'any'}"
        for name, part in schema.get("properties", {}).items()
    )


def effects_of(tool: Tool) -> str:
    """Return the effects that a tool says it has."""
    words = ("read_only", "destructive", "idempotent", "open_world")
    return ", ".join(word.replace("_", "-") for word in words if getattr(tool.options, word)) or "-"


def summary_of(tool: Tool) -> str:
    """Return the first line of the description."""
    return tool.description.strip().split("\n", 1)[0]
