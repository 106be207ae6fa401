"""Withhold tools whose definitions differ from the approved ones in the lock file."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.build.compare.comparison import compare
from toolmason.build.compare.listing import Listing, Listings, listings_of, make_listing
from toolmason.build.compare.lock_file import FILE, load_if_exists
from toolmason.errors import DefinitionError, RemoteError
from toolmason.mcp_client.server_options import ServerSpec

_log = logging.getLogger("toolmason.mcp")

_MAX_CHANGES: Final = 20


def select_approved(tools: Sequence[Tool], server: ServerSpec) -> tuple[list[Tool], dict[str, str]]:
    """Return the tools whose definitions are approved, and the reasons against the others, which are logged."""
    approved = read_approved(server)
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
        listing = approved.get(tool.name)
        if listing is not None and is_approved(tool, listing):
            selected.append(tool)
            continue
        change = "is not approved" if listing is None else "has changed since it was approved"
        held_back[tool.name] = f"it {change}. {fix}"
        if listing is not None:
            change += f": {format_changes(tool.name, listing, make_listing(tool))}"
        _log.warning("server %r: tool %r %s. It is not used. %s", server.name, tool.name, change, fix)
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


def is_approved(tool: Tool, listing: Listing) -> bool:
    """Return True if a tool is as the lock file says."""
    now = make_listing(tool)
    return (now.digest, now.effects, now.wire) == (listing.digest, listing.effects, listing.wire)


def _format_fix(server: ServerSpec) -> str:
    return (
        f"Review it, then run {format_approve_command(server)}, where TARGET is the file that configures the server: "
        "mcp.json, or app.py:box."
    )


def format_approve_command(server: ServerSpec) -> str:
    """Return the command that approves the tools of a server."""
    file = "" if server.lock is None else f" --file {shlex.quote(str(server.lock))}"
    return f"`toolmason lock TARGET --approve {server.name}{file}`"


def read_approved(server: ServerSpec) -> Mapping[str, Listing]:
    """Return the approved definitions of a server by name, or none if the lock file does not exist.

    Raises:
        ConfigError: the lock file cannot be read.
    """
    return load_if_exists(server.lock or FILE).get_tools(server.name)


def format_changes(name: str, before: Listing, now: Listing) -> str:
    """Return the changes in a tool, as `toolmason lock` prints them, in one line: a log escapes line breaks."""
    try:
        changes = [change for diff in compare({name: before}, {name: now}) for change in diff.changes]
    except DefinitionError:
        changes = []  # a schema that is too large to compare
    found = [" ".join(filter(None, (change.part, change.path, change.message))) for change in changes]
    more = f"; and {len(found) - _MAX_CHANGES} more" if len(found) > _MAX_CHANGES else ""
    return "; ".join(found[:_MAX_CHANGES]) + more or "parts that no model sees"
