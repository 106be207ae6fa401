"""`toolmason list [TARGET] [NAME]`: list tools with their parameters, effects and token cost."""

from __future__ import annotations

import json
import sys

import click

from toolmason._core.define.schema_nodes import get_json_types
from toolmason._core.define.tool import Tool
from toolmason.build.check.provider_limits import estimate_tokens
from toolmason.cli.complete import complete_list
from toolmason.cli.main import examples
from toolmason.cli.output import can_draw, echo, print_json, print_table, print_text
from toolmason.cli.targets import fail_if_down, get_tool, load_toolbox


@click.command("list", epilog=examples("list app.py", "list app.py:box get_weather", "list mcp.json --json"))
@click.argument("target", required=False, shell_complete=complete_list)
@click.argument("name", required=False, shell_complete=complete_list)
@click.option("--tool", metavar="NAME", help="Show this tool in full, like NAME; also works without TARGET.")
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as JSON.")
def command(target: str | None, name: str | None, tool: str | None, *, as_json: bool) -> None:
    """List the tools of TARGET, or of installed plugins; with NAME, show one tool in full."""
    box = load_toolbox(target, reports_servers=True)
    wanted = name or tool
    if wanted is not None:
        entry = _make_entry(get_tool(box, wanted))
        if as_json:
            print_json(entry)
        else:
            print_text(json.dumps(entry, indent=2, ensure_ascii=False))
        return
    if not as_json and target is None and not box.tools:
        echo("No tools are installed. Give a TARGET, or install a plugin.", err=True)
    else:
        print_tools(box.tools, as_json=as_json)
    if box.servers:
        fail_if_down(box)


def print_tools(tools: list[Tool], *, as_json: bool) -> None:
    """Print tools as JSON, as a table on a terminal, or one per line."""
    if as_json:
        print_json([_make_entry(tool) for tool in tools])
        return
    rows = [
        (
            tool.name,
            format_parameters(tool),
            format_effects(tool),
            str(estimate_tokens(tool.definition)),
            get_summary(tool),
        )
        for tool in tools
    ]
    if can_draw(sys.stdout):
        print_table(("Tool", "Parameters", "Effects", "~Tokens", "Description"), rows, one_line=True)
        return
    for name, parameters, effects, tokens, summary in rows:
        echo(f"{name}({parameters})  {effects}  ~{tokens} tokens  {summary}")


def _make_entry(tool: Tool) -> dict[str, object]:
    definition = tool.definition
    return {
        "name": definition.name,
        "description": definition.description,
        "input_schema": definition.input_schema,
        "output_schema": definition.output_schema,
        "effects": format_effects(tool),
        "tokens": estimate_tokens(tool.definition),
    }


def format_parameters(tool: Tool) -> str:
    """Return the parameters on one line; optional ones end in `?`."""
    schema = tool.definition.input_schema
    required = schema.get("required", ())
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {'|'.join(sorted(get_json_types(property_schema, schema))) or 'any'}"
        for name, property_schema in schema.get("properties", {}).items()
    )


def format_effects(tool: Tool) -> str:
    """Return the declared effects of a tool."""
    names = ("read_only", "destructive", "idempotent", "open_world")
    return ", ".join(name.replace("_", "-") for name in names if getattr(tool.options, name)) or "-"


def get_summary(tool: Tool) -> str:
    """Return the first line of the description."""
    return tool.description.strip().split("\n", 1)[0]
