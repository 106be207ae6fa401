"""Withhold tools whose definitions differ from the approved ones in the lock file."""

from __future__ import annotations

import difflib
import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from toolmason._core.define.tool import Tool
from toolmason._core.load.json_forms import get_effects, get_extra_wire_fields
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.build.compare.listing import Listings, listings_of
from toolmason.errors import ConfigError, RemoteError
from toolmason.mcp_client.server_options import ServerSpec

_log = logging.getLogger("toolmason.mcp")

LOCK_FILE: Final = "toolmason.lock"
_MAX_DIFF_LINES: Final = 40
_FIELDS: Final = ("title", "description", "input_schema", "output_schema")


def select_approved(tools: Sequence[Tool], server: ServerSpec) -> tuple[list[Tool], dict[str, str]]:
    """Return the tools whose definitions are approved, and the reasons against the others, which are logged."""
    approved = read_approved(Path(server.lock or LOCK_FILE), server.name)
    fix = _format_fix(server)
    if tools and not approved:
        _log.warning(
            "server %r: no approved definitions yet, so none of its %d tools is used. %s",
            server.name,
            len(tools),
            fix.replace(" it,", " them,"),
        )
        return [], {tool.name: f"server {server.name!r} has no approved definitions yet. {fix}" for tool in tools}
    selected: list[Tool] = []
    held_back: dict[str, str] = {}
    for tool in tools:
        entry = approved.get(tool.name)
        if entry is not None and is_approved(tool, entry):
            selected.append(tool)
            continue
        change = "is not approved" if entry is None else "has changed since it was approved"
        held_back[tool.name] = f"it {change}. {fix}"
        diff = "" if entry is None else format_diff(entry, tool)
        _log.warning("server %r: tool %r %s, so it is not used. %s%s", server.name, tool.name, change, fix, diff)
    for name in sorted(approved.keys() - {tool.name for tool in tools}):
        _log.warning("server %r: approved tool %r is no longer offered", server.name, name)
    return selected, held_back


async def fetch_listings(server: ServerSpec) -> Listings:
    """Return the definitions of a server under its own names, regardless of renames, prefixes and pins.

    Raises:
        RemoteError: the server does not answer.
    """
    async with Toolbox(replace(server, pin=None, prefix=None, rename={})) as box:
        if not (await box.health())[server.name]:
            raise RemoteError(server.name, "list", "it does not answer, so its tools cannot be compared")
        return listings_of(box.tools)


def is_approved(tool: Tool, entry: Mapping[str, Any]) -> bool:
    """Return True if a tool is as its entry in the lock file says."""
    return (
        entry.get("digest") == tool.definition.digest
        and entry.get("effects", {}) == get_effects(tool.options)
        and entry.get("wire") == get_extra_wire_fields(tool)
    )


def _format_fix(server: ServerSpec) -> str:
    return (
        f"Review it, then run {format_approve_command(server)}, where TARGET is the file that configures the server: "
        "mcp.json, or app.py:box."
    )


def format_approve_command(server: ServerSpec) -> str:
    """Return the command that approves the tools of a server."""
    file = "" if server.lock is None else f" --file {shlex.quote(str(server.lock))}"
    return f"`toolmason lock TARGET --approve {server.name}{file}`"


def read_approved(path: Path, server: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the approved definitions of a server by name, or none if the lock file does not exist.

    Raises:
        ConfigError: the lock file cannot be read.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"Cannot read the lock file {str(path)!r}: {error}. Check its permissions and encoding."
        ) from error
    try:
        data = json.loads(text)
        tools = data.get("servers", {}).get(server, {}).get("tools", {})
        return {str(name): dict(entry) for name, entry in tools.items()}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is not a lock file. Recreate it with `toolmason lock`.") from error


def describe_tool(tool: Tool) -> dict[str, Any]:
    """Return what a lock file says about a tool, without the digest and the fields that a model does not see."""
    return {**{name: getattr(tool.definition, name) for name in _FIELDS}, "effects": get_effects(tool.options)}


def format_diff(approved: Mapping[str, Any], tool: Tool) -> str:
    """Return a unified diff, truncated to a screenful."""
    now = describe_tool(tool)
    if "wire" in approved:  # not in the first definition of a program, as `SeenTools` keeps it
        now["wire"] = get_extra_wire_fields(tool)
    before = {name: approved.get(name) for name in now}
    lines = list(difflib.unified_diff(_format_lines(before), _format_lines(now), "approved", "now", lineterm="", n=1))
    more = [f"… and {len(lines) - _MAX_DIFF_LINES} more lines"] if len(lines) > _MAX_DIFF_LINES else []
    return "".join(f"\n    {line}" for line in (*lines[:_MAX_DIFF_LINES], *more))


def _format_lines(definition: Mapping[str, Any]) -> list[str]:
    fields = {name: value for name, value in definition.items() if value is not None}
    return json.dumps(fields, indent=1, sort_keys=True, ensure_ascii=True).split("\n") if fields else []
