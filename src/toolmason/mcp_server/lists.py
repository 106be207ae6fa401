"""Build the paged lists of a toolbox, once per change."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolmason._core.call.call_policy import get_chain
from toolmason._core.call.route import find_distrust
from toolmason._core.define.context import make_context
from toolmason._core.define.schema_nodes import resolve
from toolmason._core.define.tool import Tool, compile_tool, get_root
from toolmason._core.remote.gateway import Gateway
from toolmason._core.toolbox.lookup import ToolLookup
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.policy import Inherit
from toolmason.mcp_client.specification import INVALID_PARAMS, RpcError
from toolmason.mcp_server.encode import (
    get_mcp_options,
    get_remote_name,
    make_prompt_entry,
    make_resource_entry,
    make_template_entry,
    make_tool_entry,
)

PAGE_SIZE: Final = 1000
MAX_COMPLETIONS: Final = 100


@dataclass(slots=True)
class ToolTraits:
    """Properties of a tool that a call depends on."""

    structured: bool
    """True if the tool declares structured content."""
    task: str | None
    """Task mode of the tool: `optional`, `required`, `after_input`, or None."""
    mirrors_headers: bool
    """True if a parameter is mirrored in a header."""
    schema: Mapping[str, Any]
    scopes: frozenset[str] = frozenset()
    """Scopes that the caller needs, if all callers may know of the tool."""
    sets_on_error: bool = False
    """True if the tool sets its own `on_error`."""
    plain: bool | None = None
    """True if the tool needs only its arguments; None until the first call, because it has to be loaded."""


@dataclass(slots=True, eq=False, repr=False)
class ToolboxLists:
    """Lists of a toolbox, as of the last rebuild."""

    box: Toolbox
    page_size: int = PAGE_SIZE
    stale: bool = True
    tools: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[dict[str, Any]] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    templates: list[dict[str, Any]] = field(default_factory=list)
    traits: dict[str, ToolTraits] = field(default_factory=dict)
    box_size: int = -1
    """Number of tools of the toolbox, including those that are not listed."""
    pages: dict[tuple[str, str | None], dict[str, Any]] = field(default_factory=dict)
    """Results of list requests, by kind and cursor; a rebuild clears them."""

    def _rebuild(self, tools: Sequence[Tool]) -> None:
        self.stale = False
        self.box_size = len(tools)
        # Those that the application runs need its own loop.
        tools = [tool for tool in tools if not tool.options.external]
        self.tools = list(map(self._make_entry, tools))
        self.traits = {tool.name: _make_traits(tool, entry) for tool, entry in zip(tools, self.tools, strict=True)}
        self.prompts = list(map(make_prompt_entry, self.box.prompts))
        gateway = Gateway(get_state(self.box).remotes)
        own_resources = {item.uri: item for item in get_state(self.box).catalog.resources.values()}
        listed = {uri: dict(entry) for uri, entry in gateway.resources.items() if uri not in own_resources}
        self.resources = [listed.get(link.uri) or make_resource_entry(link) for link in self.box.resources]
        self.templates = [make_template_entry(item) for item in own_resources.values() if item.parameters]
        self.templates += [dict(entry) for entry in gateway.templates if entry.get("uriTemplate") not in own_resources]
        self.pages.clear()

    def _make_entry(self, tool: Tool) -> dict[str, Any]:
        if get_remote_name(tool) is None or not getattr(get_root(tool), "distrust", ""):
            return make_tool_entry(tool)
        get_distrust = find_distrust(tool, get_chain(tool.policies, get_state(self.box).calls))
        return make_tool_entry(tool, is_untrusted=get_distrust is not None)

    def take_snapshot(self) -> dict[str, Any]:
        """Rebuild the lists and return their contents, to detect which one a change affected."""
        self._rebuild(self.box.tools)
        return {"tools": self.tools, "prompts": self.prompts, "resources": [self.resources, self.templates]}

    def get_traits(self, name: str) -> ToolTraits | None:
        """Return the traits of a tool, or None if the toolbox has no tool of that name."""
        if self.stale:
            self._rebuild(self.box.tools)
        traits = self.traits.get(name)
        if traits is None and name in self.box:
            tool = self.box[name]
            traits = self.traits[name] = _make_traits(tool, make_tool_entry(tool))
        if traits is not None and traits.plain is None:
            traits.plain = self._is_plain(name)
        return traits

    def _is_plain(self, name: str) -> bool:
        try:
            return compile_tool(self.box[name]).plain_function is not None
        except Exception:  # noqa: BLE001 - the call reports why the tool cannot be loaded
            return False

    async def fetch_page(self, kind: str, cursor: str | None) -> dict[str, Any]:
        """Return the result of a list request: a page, and the cursor of the next one.

        Raises:
            RpcError: this server did not issue the cursor.
        """
        await ToolLookup(get_state(self.box), {}).prepare()
        tools = self.box.tools
        if self.stale or len(tools) != self.box_size:
            self._rebuild(tools)
        return self.pages.get((kind, cursor)) or self._make_page(kind, cursor)

    async def fetch_tools(self, cursor: str | None, context: Mapping[str, Any]) -> dict[str, Any]:
        """Return a page of the tools that are enabled for a context. Raises as `fetch_page` does."""
        page = await self.fetch_page("tools", cursor)
        disabled = await ToolLookup(get_state(self.box), {}).find_disabled(make_context(context))
        return {**page, "tools": [entry for entry in page["tools"] if entry["name"] not in disabled]}

    def _make_page(self, kind: str, cursor: str | None) -> dict[str, Any]:
        entries = {
            "tools": self.tools,
            "prompts": self.prompts,
            "resources": self.resources,
            "resourceTemplates": self.templates,
        }[kind]
        starts = {_encode_cursor(start): start for start in range(self.page_size, len(entries), self.page_size)}
        if cursor is not None and cursor not in starts:
            raise RpcError(INVALID_PARAMS, "This server did not issue the cursor.")
        start = 0 if cursor is None else starts[cursor]
        end = start + self.page_size
        page: dict[str, Any] = {kind: entries[start:end]}
        if end < len(entries):
            page["nextCursor"] = _encode_cursor(end)
        self.pages[kind, cursor] = page
        return page


def _make_traits(tool: Tool, entry: Mapping[str, Any]) -> ToolTraits:
    schema = entry["inputSchema"]
    task = get_mcp_options(tool).get("task", "optional" if tool.options.background else None)
    return ToolTraits(
        structured="outputSchema" in entry,
        task=task if task in ("optional", "required", "after_input") else None,
        mirrors_headers="x-mcp-header" in str(schema),
        schema=schema,
        # A tool that is withheld from a caller must look like one that does not exist.
        scopes=tool.options.scopes if tool.options.enabled is True else frozenset(),
        sets_on_error=not isinstance(tool.options.on_error, Inherit),
    )


def _encode_cursor(offset: int) -> str:
    return urlsafe_b64encode(b"page:%d" % offset).decode("ascii").rstrip("=")


def find_completions(schema: Mapping[str, Any], name: str, prefix: str) -> list[str]:
    """Return the allowed values of a parameter that start with `prefix`, ignoring case."""
    parameter = resolve(schema.get("properties", {}).get(name, {}), schema)
    if parameter.get("enum"):
        values = parameter["enum"]
    elif "const" in parameter:
        values = [parameter["const"]]
    else:
        values = parameter.get("examples") or []
    candidates = [str(value) for value in values if value is not None]
    return [text for text in candidates if text.casefold().startswith(prefix.casefold())]
