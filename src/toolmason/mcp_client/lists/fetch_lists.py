"""Fetch all pages of a server's lists, and convert them to tools, prompts and resources."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND
from typing_extensions import override

from toolmason._core.catalog.catalog import rename_tool
from toolmason._core.define.tool import Tool
from toolmason._core.remote.protocol import RawResources, RemoteLists
from toolmason._core.values.content import ResourceLink
from toolmason.errors import RemoteError
from toolmason.mcp_client.calls.remote_tools import CallTool, FetchPrompt, RemoteTool, make_remote_prompt
from toolmason.mcp_client.lists.pins import select_approved
from toolmason.mcp_client.lists.trust import SeenTools
from toolmason.mcp_client.server_options import ServerSpec

_log = logging.getLogger("toolmason.mcp")

MAX_PAGES: Final = 100
MAX_ENTRIES: Final = 2000


@dataclass(slots=True, eq=False)
class ServerLists(RemoteLists):
    """Tools, prompts and resources of a server, and when they expire."""

    expires_at: float = 0.0
    has_ttl: bool = True
    """False if the server sent a TTL of 0, the SDK's placeholder for no TTL."""
    raw_tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Definitions of all tools by name, as the server sent them."""

    @property
    @override
    def is_known(self) -> bool:
        return self.expires_at > 0

    @property
    def is_fresh(self) -> bool:
        """True if the lists need not be fetched again."""
        return time.monotonic() < self.expires_at


async def fetch_lists(
    client: Any,
    server: ServerSpec,
    definitions: Mapping[str, Mapping[str, Any]],
    call_tool: CallTool,
    fetch_prompt: FetchPrompt,
    seen: SeenTools,
) -> ServerLists:
    """Fetch everything that a server offers. `seen` has its earlier definitions.

    Raises:
        RemoteError: a list has too many pages or entries.
    """
    capabilities = client.server_capabilities
    has_prompts = capabilities is not None and capabilities.prompts is not None
    has_resources = capabilities is not None and capabilities.resources is not None
    # At once: a gateway may wait for one of its servers before each answer.
    others = asyncio.gather(
        _fetch_optional(client.list_prompts, "prompts", server, offered=has_prompts),
        _fetch_optional(client.list_resources, "resources", server, offered=has_resources),
        # A server with resources need not know the method for templates.
        _fetch_optional(
            client.list_resource_templates, "resource_templates", server, offered=has_resources, warn=False
        ),
    )
    others.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    try:
        entries, ttl = await _fetch_tools(client, server, definitions)
        listed_prompts, listed_resources, templates = await others
    finally:
        others.cancel()
    logs_failures = hasattr(server.target, "__mcp_server__")
    tools = [
        RemoteTool(server.name, entry, call_tool, logs_failures=logs_failures)
        for entry in _drop_duplicates(entries, server)
    ]
    seen.judge(tools, server)
    selected, held_back = _select_tools(tools, server)
    return ServerLists(
        selected,
        [make_remote_prompt(server.name, entry, fetch_prompt) for entry in listed_prompts],
        [ResourceLink(str(e.uri), e.name or "", e.mime_type, e.description) for e in listed_resources],
        RawResources(
            {str(entry.uri): _dump_entry(entry) for entry in listed_resources}, tuple(map(_dump_entry, templates))
        ),
        held_back,
        time.monotonic() + _choose_ttl(server, ttl),
        ttl != 0,
        {entry["name"]: entry for entry in entries},
    )


async def has_other_tools(
    client: Any, server: ServerSpec, definitions: Mapping[str, Mapping[str, Any]], lists: ServerLists
) -> bool:
    """Return True if a server has other tools than in these lists. Sends no request but `tools/list`."""
    entries, _ = await _fetch_tools(client, server, definitions)
    return {entry["name"]: entry for entry in entries} != lists.raw_tools


def _choose_ttl(server: ServerSpec, server_ttl: float | None) -> float:
    """Return the TTL of a list in seconds.

    A server TTL of 0 means no TTL: the protocol requires a number, and the SDK fills in 0.
    """
    return server_ttl if server_ttl and server.cache_ttl else server.cache_ttl


async def _fetch_pages(
    fetch: Callable[..., Awaitable[Any]], kind: str, server: ServerSpec
) -> tuple[list[Any], float | None]:
    entries: list[Any] = []
    cursor: str | None = None
    seen_cursors: set[str] = set()
    ttl: float | None = None
    for _ in range(MAX_PAGES):
        page = await fetch(cursor=cursor)
        entries.extend(getattr(page, kind))
        if len(entries) > MAX_ENTRIES:
            raise RemoteError(server.name, "list", f"the server lists more than {MAX_ENTRIES} {kind}")
        if "ttl_ms" in page.model_fields_set:
            page_ttl = page.ttl_ms / 1000
            ttl = page_ttl if ttl is None else min(ttl, page_ttl)
        cursor = page.next_cursor
        if not cursor:
            return entries, ttl
        if cursor in seen_cursors:
            raise RemoteError(server.name, "list", f"the {kind} list repeats a page cursor")
        seen_cursors.add(cursor)
    raise RemoteError(server.name, "list", f"the {kind} list has more than {MAX_PAGES} pages")


async def _fetch_tools(
    client: Any, server: ServerSpec, definitions: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], float | None]:
    """Fetch the tools as the server sent them. A server that only has other lists may not know the method.

    `definitions` are those of which the SDK got stubs.
    """
    try:
        entries, ttl = await _fetch_pages(client.list_tools, "tools", server)
        return [definitions.get(entry.name) or _dump_entry(entry) for entry in entries], ttl
    except MCPError as error:
        capabilities = client.server_capabilities
        if error.code != METHOD_NOT_FOUND or capabilities is None or capabilities.tools is not None:
            raise
        return [], None


async def _fetch_optional(
    fetch: Callable[..., Awaitable[Any]], kind: str, server: ServerSpec, *, offered: bool, warn: bool = True
) -> list[Any]:
    """Fetch a list that a server may offer but not implement."""
    if not offered:
        return []
    try:
        entries, _ = await _fetch_pages(fetch, kind, server)
    except (MCPError, ValueError) as error:
        if warn:
            _log.warning("server %r: failed to list %s: %s", server.name, kind, type(error).__name__)
        return []
    return entries


def _dump_entry(entry: Any) -> dict[str, Any]:
    """Return an entry as the server sent it."""
    raw: dict[str, Any] = entry.model_dump(by_alias=True, mode="json", exclude_unset=True)
    return raw


def _drop_duplicates(entries: Sequence[Mapping[str, Any]], server: ServerSpec) -> list[Mapping[str, Any]]:
    """Drop all tools that share a name: it is unknown which one a call would reach."""
    counts = Counter(entry["name"] for entry in entries)
    duplicates = {name for name, count in counts.items() if count > 1}
    for name in sorted(duplicates):
        _log.warning("server %r: %d tools are named %r; ignoring all of them", server.name, counts[name], name)
    return [entry for entry in entries if entry["name"] not in duplicates]


def _select_tools(tools: Sequence[Tool], server: ServerSpec) -> tuple[list[Tool], dict[str, str]]:
    """Return the tools that the options include, and reasons against others, under their configured names."""
    selected = [
        tool
        for tool in tools
        if any(fnmatchcase(tool.name, pattern) for pattern in server.include)
        and not any(fnmatchcase(tool.name, pattern) for pattern in server.exclude)
    ]
    held_back: dict[str, str] = {}
    if server.pin == "lock":
        selected, held_back = select_approved(selected, server)

    def rename(name: str) -> str:
        return server.rename.get(name, f"{server.prefix or ''}{name}")

    renamed = [rename_tool(tool, rename(tool.name)) for tool in selected]
    reasons = {rename(name): reason for name, reason in held_back.items()}
    return sorted(renamed, key=lambda tool: tool.name), reasons
