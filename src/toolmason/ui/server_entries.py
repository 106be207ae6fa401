"""Describe the MCP servers of a toolbox for the page, and approve changed definitions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_json

from toolmason._core.remote.protocol import Health, Remote
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.definition import canonicalize
from toolmason.build.compare.listing import Listing, Listings
from toolmason.build.compare.lock_file import FILE, Lock, approve, compare, load, write
from toolmason.errors import ConfigError, UnknownName
from toolmason.mcp_client.lists.pins import fetch_listings
from toolmason.mcp_client.source import McpServer

HEALTH_SECONDS: Final = 5.0
"""Wait for the answer of a server; the page shows the others meanwhile."""


async def describe_servers(box: Toolbox) -> dict[str, Any]:
    """Return the servers of a toolbox: health, lists, and the tools that are held back."""
    sources = get_state(box).remotes.sources
    states = await asyncio.gather(*(_check_health(source) for source in sources))
    return {"servers": [_describe(source, state) for source, state in zip(sources, states, strict=True)]}


async def _check_health(source: Remote) -> Health:
    try:
        return await asyncio.wait_for(source.health(), HEALTH_SECONDS)
    except TimeoutError:
        return Health(ok=False, error=f"no answer within {HEALTH_SECONDS:g} s")


def _describe(source: Remote, state: Health) -> dict[str, Any]:
    lists, server = source.lists, source.server
    return {
        "name": source.name,
        **asdict(state),
        "kind": getattr(server, "kind", ""),
        "pinned": getattr(server, "pin", None) is not None,
        "trusted": getattr(server, "trust", True),
        "is_locked": isinstance(server, McpServer) and bool(_read_lock(server).get_tools(server.name)),
        "tools": [tool.name for tool in lists.tools],
        "prompts": [prompt.name for prompt in lists.prompts],
        "resources": [link.uri for link in lists.resources],
        "held_back": dict(lists.held_back),
    }


async def describe_drift(box: Toolbox, name: str) -> dict[str, Any]:
    """Return how the current definitions of a server differ from the approved ones, with both forms.

    Raises:
        KeyError: the toolbox has no such server.
        RemoteError: the server does not answer.
    """
    server = find_server(box, name)
    found = await fetch_listings(server)
    locked = _read_lock(server)
    approved = locked.get_tools(name)
    changes = compare(locked, found, server=name)
    return {
        "file": str(_get_path(server)),
        "digests": _get_digests(found),
        "changes": [
            {
                "name": change.name,
                "status": change.status,
                "before": _format(approved.get(change.name)),
                "after": _format(found.get(change.name)),
            }
            for change in changes
        ],
    }


async def approve_definitions(box: Toolbox, name: str, digests: Mapping[str, Any]) -> None:
    """Write the definitions of a server to its lock file, if they are those that the page has shown.

    Raises:
        KeyError: the toolbox has no such server.
        ConfigError: the definitions have changed since they were shown, or the file cannot be written.
        RemoteError: the server does not answer.
    """
    server = find_server(box, name)
    found = await fetch_listings(server)
    if _get_digests(found) != digests:
        raise ConfigError(f"The definitions of server {name!r} have changed since the page showed them. Review again.")
    write(approve(_read_lock(server), found, server=name), _get_path(server))
    await box.servers.reconnect()


def find_server(box: Toolbox, name: str) -> McpServer:
    """Return a server of a toolbox. Raise `UnknownName` if it has none of this name."""
    for source in get_state(box).remotes.sources:
        if source.name == name and isinstance(source.server, McpServer):
            return source.server
    raise UnknownName(f"Unknown server {name!r}. Available: {', '.join(box.servers) or 'none'}.")


def _get_path(server: McpServer) -> Path:
    return Path(server.lock or FILE)


def _read_lock(server: McpServer) -> Lock:
    path = _get_path(server)
    return load(path) if path.exists() else Lock()


def _get_digests(found: Listings) -> dict[str, str]:
    return {name: sha256(to_json(canonicalize(listing.to_dict()))).hexdigest() for name, listing in found.items()}


def _format(listing: Listing | None) -> str:
    data = {} if listing is None else {key: value for key, value in listing.to_dict().items() if key != "digest"}
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True) if data else ""
