"""`toolmason list [TARGET] [NAME]`: list tools, prompts and resources."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from toolmason._core.define.schema_nodes import get_json_types
from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason.build.check.provider_limits import estimate_tokens
from toolmason.cli.complete import complete_list
from toolmason.cli.main import examples
from toolmason.cli.output import can_draw, echo, print_json, print_table, print_text
from toolmason.cli.targets import fail_if_down, get_tool, load_toolbox


@click.command("list", epilog=examples("list app.py", "list app.py:box get_weather", "list mcp.json --json"))
@click.argument("target", required=False, shell_complete=complete_list)
@click.argument("name", required=False, shell_complete=complete_list)
@click.option("--tool", metavar="NAME", help="Show this one in full, like NAME; also works without TARGET.")
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as JSON.")
def command(target: str | None, name: str | None, tool: str | None, *, as_json: bool) -> None:
    """List the tools, prompts and resources of TARGET, or of installed plugins; with NAME, show one in full."""
    box = load_toolbox(target, reports_servers=True)
    wanted = name or tool
    if wanted is not None:
        entry = _find_entry(box, wanted)
        if as_json:
            print_json(entry)
        else:
            print_text(json.dumps(entry, indent=2, ensure_ascii=False))
        return
    if not as_json and target is None and not box.tools:
        echo("No target is given, and no plugin is installed. Write: toolmason list FILE.py", err=True)
    else:
        print_box(box, as_json=as_json)
    if box.servers:
        fail_if_down(box)


def print_box(box: Toolbox, *, as_json: bool) -> None:
    """Print tools, prompts and resources as JSON, as tables on a terminal, or one per line."""
    if as_json:
        print_json(_make_entries(box))
        return
    tools = [
        (
            tool.name,
            format_parameters(tool.definition.input_schema),
            format_effects(tool),
            str(estimate_tokens(tool.definition)),
            get_first_line(tool.description),
        )
        for tool in box.tools
    ]
    prompts = [
        (prompt.name, format_parameters(prompt.input_schema), get_first_line(prompt.description))
        for prompt in box.prompts
    ]
    resources = [(entry["uri"], entry["name"], get_first_line(entry["description"])) for entry in _list_resources(box)]
    # A server that does not answer is reported on its own.
    if not (tools or prompts or resources) and (not box.servers or all(box.health_sync().values())):
        echo("There are no tools, prompts or resources.", err=True)
    if can_draw(sys.stdout):
        if tools:
            print_table(("Tool", "Parameters", "Effects", "~Tokens", "Description"), tools, one_line=True)
        if prompts:
            print_table(("Prompt", "Parameters", "Description"), prompts, one_line=True)
        if resources:
            print_table(("Resource", "Name", "Description"), resources, one_line=True)
        return
    for name, parameters, effects, tokens, summary in tools:
        echo(f"{name}({parameters})  {effects}  ~{tokens} tokens  {summary}")
    for name, parameters, summary in prompts:
        echo(f"{name}({parameters})  prompt  {summary}")
    for uri, _, summary in resources:
        echo(f"{uri}  resource  {summary}")


def _find_entry(box: Toolbox, name: str) -> dict[str, Any]:
    """Return the tool, prompt or resource of a name or URI; exit with "not found" if there is none."""
    if name not in box:
        for entry in _make_entries(box):
            if name in (entry["name"], entry.get("uri")):
                return entry
    return make_tool_entry(get_tool(box, name))


def _make_entries(box: Toolbox) -> list[dict[str, Any]]:
    prompts = [
        {
            "kind": "prompt",
            "name": prompt.name,
            "description": prompt.description,
            "input_schema": prompt.input_schema,
        }
        for prompt in box.prompts
    ]
    return [*map(make_tool_entry, box.tools), *prompts, *_list_resources(box)]


def make_tool_entry(tool: Tool) -> dict[str, Any]:
    """Return a tool as JSON data."""
    definition = tool.definition
    return {
        "kind": "tool",
        "name": definition.name,
        "description": definition.description,
        "input_schema": definition.input_schema,
        "output_schema": definition.output_schema,
        "effects": format_effects(tool),
        "tokens": estimate_tokens(tool.definition),
    }


def _list_resources(box: Toolbox) -> list[dict[str, Any]]:
    """Return the resources and the templates of resources, also those of servers."""
    links = [(link.uri, link.name, link.description) for link in box.resources]
    state = get_state(box)
    own = [item for item in state.catalog.resources.values() if item.parameters]
    links += [(item.uri, item.name, item.description) for item in own]
    templates = [entry for source in state.remotes.sources for entry in source.lists.raw_resources.templates]
    links += [(str(entry["uriTemplate"]), entry.get("name", ""), entry.get("description")) for entry in templates]
    return [
        {"kind": "resource", "name": name, "uri": uri, "description": description or ""}
        for uri, name, description in links
    ]


def format_parameters(schema: Mapping[str, Any]) -> str:
    """Return the parameters of a schema on one line; optional ones end in `?`."""
    required = schema.get("required", ())
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {'|'.join(sorted(get_json_types(property_schema, schema))) or 'any'}"
        for name, property_schema in schema.get("properties", {}).items()
    )


def format_effects(tool: Tool) -> str:
    """Return the declared effects of a tool."""
    names = ("read_only", "destructive", "idempotent", "open_world")
    return ", ".join(name.replace("_", "-") for name in names if getattr(tool.options, name)) or "-"


def get_first_line(text: str) -> str:
    """Return the first line of a description."""
    return text.strip().split("\n", 1)[0]
