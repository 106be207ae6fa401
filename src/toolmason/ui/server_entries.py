"""Describe the MCP servers of a toolbox for the page, approve changed definitions, and sign in."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from pydantic_core import to_json

from toolmason._core.remote.protocol import Health, Remote
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.definition import canonicalize
from toolmason.build.compare.listing import Listings, format_listing
from toolmason.build.compare.lock_file import FILE, approve, compare, load_if_exists, write
from toolmason.errors import ConfigError, UnknownName
from toolmason.mcp_client.auth.oauth import OAuth
from toolmason.mcp_client.auth.token_files import MemoryTokens
from toolmason.mcp_client.lists.pins import fetch_listings, read_approved
from toolmason.mcp_client.source import McpServer
from toolmason.ui.page import Page

HEALTH_SECONDS: Final = 5.0
"""Wait for the answer of a server; the page shows the others meanwhile."""
START_SECONDS: Final = 30.0
"""Wait for the address of a sign-in."""
MAX_SIGN_INS: Final = 16
"""Sign-ins in progress."""


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
        "is_locked": isinstance(server, McpServer) and bool(read_approved(server)),
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
    locked = load_if_exists(_get_path(server))
    approved = locked.get_tools(name)
    changes = compare(locked, found, server=name)
    return {
        "file": str(_get_path(server)),
        "digests": _get_digests(found),
        "changes": [
            {
                "name": change.name,
                "status": change.status,
                "before": format_listing(approved.get(change.name)),
                "after": format_listing(found.get(change.name)),
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
    path = _get_path(server)
    write(approve(load_if_exists(path), found, server=name), path)
    await box.servers.reconnect()


async def start_sign_in(page: Page, name: str) -> str:
    """Connect a server with OAuth. Return the address for the user to visit, or an empty string if none is needed.

    Tokens stay in the memory of the process.

    Raises:
        KeyError: the toolbox has no such server.
        ConfigError: the server is not reached over HTTP, or offers no sign-in.
        RemoteError: the server does not answer.
    """
    server, address = find_server(page.box, name), asyncio.get_running_loop().create_future()
    if server.kind != "http" or len(page.sign_ins) >= MAX_SIGN_INS:
        raise ConfigError(f"Server {name!r} has no sign-in to start: it is not reached over HTTP, or many are open.")

    async def show(found: str, _: str) -> None:
        if not address.done():
            address.set_result(found)

    remotes = get_state(page.box).remotes
    auth = OAuth(sign_in=show, tokens=MemoryTokens())
    source = replace(server, auth=auth).__remote__(remotes.handlers)
    task = asyncio.ensure_future(source.prepare())
    page.sign_ins.add(task)
    task.add_done_callback(page.sign_ins.discard)
    await asyncio.wait((task, address), timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if not address.done():
        if not task.done():
            task.cancel()
            raise ConfigError(f"Server {name!r} did not name a place to sign in within {START_SECONDS:g} s.")
        task.result()
    await remotes.replace(source)
    task.add_done_callback(lambda ended: _report(page, ended))
    return address.result() if address.done() else ""


def _report(page: Page, ended: asyncio.Future[None]) -> None:
    """Show the tools after a sign-in. The health of a server that failed has its error."""
    if not ended.cancelled():
        ended.exception()  # retrieved, so that asyncio does not log it
        page.notify("tools")


def find_server(box: Toolbox, name: str) -> McpServer:
    """Return a server of a toolbox. Raise `UnknownName` if it has none of this name."""
    for source in get_state(box).remotes.sources:
        if source.name == name and isinstance(source.server, McpServer):
            return source.server
    raise UnknownName(f"Unknown server {name!r}. Available: {', '.join(box.servers) or 'none'}.")


def _get_path(server: McpServer) -> Path:
    return Path(server.lock or FILE)


def _get_digests(found: Listings) -> dict[str, str]:
    return {name: sha256(to_json(canonicalize(listing.to_dict()))).hexdigest() for name, listing in found.items()}
