"""Describe one MCP server in full: what it says about itself, what it offers, its token cost, and findings."""

from __future__ import annotations

from typing import Any

from toolmason._core.config.config import Config
from toolmason._core.remote.protocol import Remote
from toolmason._core.run.blocking import run_blocking
from toolmason._text import pluralize
from toolmason.build.check.dynamic import check_tools
from toolmason.build.check.rules import SourceLocation
from toolmason.build.check.settings import read_settings
from toolmason.cli.commands.use_tools.list import format_parameters, get_first_line, make_tool_entry
from toolmason.cli.output import echo
from toolmason.mcp_client.connection import Connection
from toolmason.mcp_client.specification import MODERN_VERSION


def describe_server(source: Remote) -> dict[str, Any]:
    """Return all that is known about a server, as JSON data."""
    assert isinstance(source, Connection)  # noqa: S101 - the servers of the command are MCP servers
    health, facts = run_blocking(source.health()), run_blocking(source.describe())
    lists = source.lists
    reports, findings = check_tools(lists.tools, read_settings(Config.find()), lambda tool: SourceLocation(tool.name))
    return {
        "name": source.name,
        **facts,
        "era": "stateless" if facts["protocol"] >= MODERN_VERSION else "session",
        "latency": health.latency,
        "tools": [make_tool_entry(tool) for tool in lists.tools],
        "prompts": [
            {"name": each.name, "description": each.description, "input_schema": each.input_schema}
            for each in lists.prompts
        ],
        "resources": [dict(entry) for entry in lists.raw_resources.resources.values()],
        "templates": [dict(entry) for entry in lists.raw_resources.templates],
        "held_back": dict(lists.held_back),
        "tokens": sum(report.tokens for report in reports),
        "findings": [
            {"tool": found.tool, "code": found.code, "severity": found.severity, "message": found.message}
            for found in findings
        ],
    }


def print_server(entry: dict[str, Any]) -> None:
    """Print the description of a server."""
    info = entry["server"]
    echo(f"{entry['name']}: {info.get('title') or info.get('name', '?')} {info.get('version', '')}".rstrip())
    latency = "" if entry["latency"] is None else f", {entry['latency'] * 1000:.0f} ms"
    echo(f"protocol {entry['protocol']}, {entry['era']} era{latency}")
    echo(f"capabilities: {', '.join(map(_format_capability, entry['capabilities'].items())) or 'none'}")
    if entry["instructions"]:
        echo(f"instructions: {entry['instructions'].strip()}")
    echo(f"{pluralize(len(entry['tools']), 'tool')}, about {pluralize(entry['tokens'], 'token')} in each request:")
    for tool in entry["tools"]:
        parameters = format_parameters(tool["input_schema"])
        echo(f"  {tool['name']}({parameters})  {tool['effects']}  {get_first_line(tool['description'])}")
    for name, reason in entry["held_back"].items():
        echo(f"  {name}: not used: {reason}")
    for kind, key in (("prompt", "name"), ("resource", "uri"), ("template", "uriTemplate")):
        if found := entry[f"{kind}s"]:
            echo(f"{pluralize(len(found), kind)}:")
        for each in found:
            echo(f"  {each[key]}  {get_first_line(each.get('description') or each.get('name') or '')}".rstrip())
    if entry["findings"]:
        echo(f"{pluralize(len(entry['findings']), 'finding')}:")
    for found in entry["findings"]:
        echo(f"  {found['code']} {found['severity']}: {found['message']}")


def _format_capability(item: tuple[str, Any]) -> str:
    """Return a capability with its settings, such as `tools (listChanged)`."""
    name, settings = item
    details = [key for key, value in settings.items() if value is not False] if isinstance(settings, dict) else []
    return f"{name} ({', '.join(details)})" if details else name
