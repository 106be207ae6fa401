"""What a server offers: all pages of its lists, as tools, prompts and resources of ours.

Lives here: following pages within bounds, filters and names, how long a list is fresh.
Not here: which definitions are sound (`screen`).
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from toolmason._core.catalog.catalog import as_named
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.tool import Tool
from toolmason._core.remote.protocol import Wired
from toolmason._core.values.content import ResourceLink
from toolmason.errors import RemoteError
from toolmason.mcp_client.calls.remote_tools import Call, Fetch, RemotePrompt, RemoteTool
from toolmason.mcp_client.lists.pins import held_back
from toolmason.mcp_client.server_options import Server

_log = logging.getLogger("toolmason.mcp")

PAGES: Final = 100
TOOLS: Final = 2000


@dataclass(slots=True, eq=False)
class Lists:
    """What a server offers, and until when that is fresh."""

    tools: Sequence[Tool] = ()
    prompts: Sequence[Prompt] = ()
    resources: Sequence[ResourceLink] = ()
    expires: float = 0.0
    wired: Wired = field(default_factory=Wired)
    vouched: bool = True
    """Whether the server itself says how long they are good; one that says 0 does not."""

    @property
    def fresh(self) -> bool:
        """Whether the lists need not be fetched again."""
        return time.monotonic() < self.expires


class Listed(ABC):
    """A server of which lists are known."""

    @property
    @abstractmethod
    def lists(self) -> Lists:
        """What it is known to offer, and until when that is fresh."""

    @property
    def tools(self) -> Sequence[Tool]:
        """What it is known to offer."""
        return self.lists.tools

    @property
    def prompts(self) -> Sequence[Prompt]:
        """The prompts it is known to offer."""
        return self.lists.prompts

    @property
    def resources(self) -> Sequence[ResourceLink]:
        """The resources it is known to offer."""
        return self.lists.resources

    @property
    def wired(self) -> Wired:
        """The resources as the wire has them."""
        return self.lists.wired


async def fetch_lists(
    client: Any,
    server: Server,
    known: Mapping[str, Mapping[str, Any]],
    call: Call,
    prompt: Fetch,
) -> Lists:
    """Return everything that a server offers.

    Raises:
        RemoteError: its pages never end, or it offers more than we take.
    """
    can = client.server_capabilities
    entries, ttl = await _tools(client, server)
    tools = [
        RemoteTool(server.name, entry, call, known.get(entry.name) or _raw(entry), server.timeout)
        for entry in _once(entries, server)
    ]
    prompts: list[Prompt] = []
    links: list[ResourceLink] = []
    wired = Wired()
    if can is not None and can.prompts is not None:
        found, _ = await _tolerated(client.list_prompts, "prompts", server)
        prompts = [RemotePrompt(server.name, entry, prompt) for entry in found]
    if can is not None and can.resources is not None:
        found, _ = await _tolerated(client.list_resources, "resources", server)
        links = [ResourceLink(str(e.uri), e.name or "", e.mime_type, e.description) for e in found]
        templates = await _templates(client, server)
        wired = Wired({str(entry.uri): _raw(entry) for entry in found}, tuple(map(_raw, templates)))
    return Lists(_chosen(tools, server), prompts, links, time.monotonic() + _freshness(server, ttl), wired, ttl != 0)


def _freshness(server: Server, hint: float | None) -> float:
    """Return for how many seconds a list is good.

    A server that has nothing to say about it says 0, because the protocol wants a number: the SDK fills it in.
    """
    return hint if hint and server.cache_ttl else server.cache_ttl


async def _pages(fetch: Callable[..., Awaitable[Any]], what: str, server: Server) -> tuple[list[Any], float | None]:
    found: list[Any] = []
    cursor: str | None = None
    seen: set[str] = set()
    ttl: float | None = None
    for _ in range(PAGES):
        page = await fetch(cursor=cursor)
        found.extend(getattr(page, what))
        if len(found) > TOOLS:
            raise RemoteError(server.name, "list", f"it offers more than {TOOLS} {what}")
        if "ttl_ms" in page.model_fields_set:
            hint = page.ttl_ms / 1000
            ttl = hint if ttl is None else min(ttl, hint)
        cursor = page.next_cursor
        if not cursor:
            return found, ttl
        if cursor in seen:
            raise RemoteError(server.name, "list", f"the pages of its {what} go round in a circle")
        seen.add(cursor)
    raise RemoteError(server.name, "list", f"its {what} do not end after {PAGES} pages")


async def _tools(client: Any, server: Server) -> tuple[list[Any], float | None]:
    """Fetch the tools; a server that announces none may have prompts and resources, and not know the question."""
    try:
        return await _pages(client.list_tools, "tools", server)
    except MCPError as error:
        can = client.server_capabilities
        if error.code != METHOD_NOT_FOUND or can is None or can.tools is not None:
            raise
        return [], None


async def _tolerated(fetch: Callable[..., Awaitable[Any]], what: str, server: Server) -> tuple[list[Any], float | None]:
    """Fetch a list that a server may announce and not have."""
    try:
        return await _pages(fetch, what, server)
    except (MCPError, ValueError) as error:
        _log.warning("server %r: its %s cannot be listed: %s", server.name, what, type(error).__name__)
        return [], None


async def _templates(client: Any, server: Server) -> list[Any]:
    """Fetch the templates; a server may have resources and not know the question."""
    try:
        found, _ = await _pages(client.list_resource_templates, "resource_templates", server)
    except (MCPError, ValueError):
        return []
    return found


def _raw(entry: Any) -> dict[str, Any]:
    """Return an entry as the wire had it."""
    found: dict[str, Any] = entry.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return found


def _once(entries: Sequence[Any], server: Server) -> list[Any]:
    """Leave out names that a server gives to two tools: which one was meant cannot be known."""
    counts = Counter(entry.name for entry in entries)
    twice = {name for name, count in counts.items() if count > 1}
    for name in sorted(twice):
        _log.warning("server %r: it offers %d tools named %r; none of them is used", server.name, counts[name], name)
    return [entry for entry in entries if entry.name not in twice]


def _chosen(tools: Sequence[Tool], server: Server) -> list[Tool]:
    """Return the tools that the application wants, under the names it wants."""
    kept = [
        tool
        for tool in tools
        if any(fnmatchcase(tool.name, pattern) for pattern in server.include)
        and not any(fnmatchcase(tool.name, pattern) for pattern in server.exclude)
    ]
    if server.pin == "lock":
        kept = held_back(kept, server)
    prefix = server.prefix or ""
    named = [as_named(tool, server.rename.get(tool.name, f"{prefix}{tool.name}")) for tool in kept]
    return sorted(named, key=lambda tool: tool.name)
