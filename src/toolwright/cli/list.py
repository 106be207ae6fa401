"""`toolwright list TARGET`: names, parameters, effects and what each tool costs in tokens."""

from __future__ import annotations

import json
import sys

import click
from rich.console import Console
from rich.table import Table

from toolwright._core.tool import Tool
from toolwright.cli.target import kinds_of, toolbox_at

BYTES_PER_TOKEN = 4
"""What English and JSON come to with the usual tokenizers; an estimate, and named as one."""


@click.command("list")
@click.argument("target")
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as JSON.")
def command(target: str, *, as_json: bool) -> None:
    """List the tools of TARGET."""
    tools = toolbox_at(target).tools
    if as_json:
        click.echo(json.dumps([_entry(tool) for tool in tools], indent=2))
    elif sys.stdout.isatty():
        _print_table(tools)
    else:
        for tool in tools:
            click.echo(
                f"{tool.name}({parameters_of(tool)})  {effects_of(tool)}  ~{tokens_of(tool)} tokens  {summary_of(tool)}"
            )


def _print_table(tools: list[Tool]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Tool", "Parameters", "Effects", "~Tokens", "Description"):
        table.add_column(heading, justify="right" if heading == "~Tokens" else "left", overflow="fold")
    for tool in tools:
        table.add_row(tool.name, parameters_of(tool), effects_of(tool), str(tokens_of(tool)), summary_of(tool))
    Console().print(table)


def _entry(tool: Tool) -> dict[str, object]:
    definition = tool.definition
    return {
        "name": definition.name,
        "description": definition.description,
        "input_schema": definition.input_schema,
        "output_schema": definition.output_schema,
        "effects": effects_of(tool),
        "tokens": tokens_of(tool),
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


def tokens_of(tool: Tool) -> int:
    """Return about how many tokens the definition takes in a prompt."""
    definition = tool.definition
    text = json.dumps([definition.name, definition.description, definition.input_schema])
    return -(-len(text.encode()) // BYTES_PER_TOKEN)


def summary_of(tool: Tool) -> str:
    """Return the first line of the description."""
    return tool.description.strip().split("\n", 1)[0]
