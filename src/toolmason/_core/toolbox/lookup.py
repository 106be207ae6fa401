"""Find the tools of a toolbox by name, and the routes of their calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from toolmason._core.call.call_policy import get_chain, merge_context, merge_settings, run_in_time
from toolmason._core.call.gates import is_enabled
from toolmason._core.call.long_results import make_result_reader
from toolmason._core.call.pipeline import compose_runners
from toolmason._core.call.route import Route, make_route
from toolmason._core.catalog.catalog import READ_RESULT, Catalog, check_resolved, rename_tool
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool, load_tool
from toolmason._core.remote.servers import collect_prompts
from toolmason._core.run.execute import call_user_function
from toolmason._core.toolbox.state import ToolboxState
from toolmason._core.values.content import Content, ResourceLink
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import Inherit, check_kinds
from toolmason._core.values.provider_tools import Strict
from toolmason._core.values.results import Arguments
from toolmason.errors import ExecutionError, ToolCallError, UnknownName, UnknownTool

_log = logging.getLogger("toolmason")
_REGISTRY_MODULE: Final = "toolmason.providers.registry"
"""Exports tools in a provider's format. Imported on first use, so that programs that only run calls never load it."""


class ToolboxResolver:
    """A toolbox as a resolver of another one. Its tools carry its policy."""

    def __init__(self, box: Any, get_state: Callable[[Any], ToolboxState]) -> None:
        self._box, self._get_state = box, get_state

    async def resolve(self, name: str) -> Tool | None:
        """Return the tool of this name with the policy of its toolbox, or None."""
        found: Tool | None = await self._box.resolve(name)
        return None if found is None else self._get_state(self._box).carry(found)


def carry_policies(resolvers: Iterable[Any], kind: type, get_state: Callable[[Any], ToolboxState]) -> tuple[Any, ...]:
    """Return resolvers, with those of the kind of a toolbox changed so that their tools carry their policy."""
    return tuple(ToolboxResolver(item, get_state) if isinstance(item, kind) else item for item in resolvers)


class ToolLookup:
    """Tools of a toolbox by name, as one of its views exposes them."""

    def __init__(self, state: ToolboxState, routes: dict[str, Route]) -> None:
        self.state, self.routes = state, routes
        self._resolved: dict[str, Route] = {}
        """Routes of tools that only a resolver knows. A run does not share them."""
        self._sorted: tuple[int, Sequence[Tool]] | None = None
        self._names: tuple[Sequence[Tool], tuple[str, ...]] | None = None
        self._definitions: dict[tuple[str, Strict, bool, bool], list[dict[str, Any]]] = {}

    @property
    def remote_tools(self) -> Mapping[str, Tool]:
        """Known tools of the servers, as the view exposes them."""
        state = self.state
        if not state.remotes:
            return {}
        visible = (state.transform(tool) for tool in state.remotes.tools.values())
        return {tool.name: tool for tool in visible if tool is not None}

    @property
    def listed_remote_tools(self) -> Mapping[str, Tool]:
        """Known tools of the servers that are listed: without those that a tool of this view shadows."""
        state, tools = self.state, self.remote_tools
        hidden: set[str] = set()
        for name, bare_name in state.remotes.shadowed.items():
            tool = state.remotes.tools[name]
            visible, shadow = state.transform(tool), state.transform(rename_tool(tool, bare_name))
            # A view that gives it a name of its own offers it.
            is_renamed = visible is not None and not visible.name.endswith(name)
            if visible is not None and not is_renamed and shadow is not None and shadow.name in state.catalog.tools:
                hidden.add(visible.name)
        return {name: tool for name, tool in tools.items() if name not in hidden} if hidden else tools

    @property
    def _exactly_named_tools(self) -> Mapping[str, Tool]:
        """Tools that are listed by their full names, by the names that their servers gave to them."""
        remotes = self.state.remotes
        found = ((name, self.state.transform(remotes.tools[full])) for name, full in remotes.exact_names.items())
        return {name: tool for name, tool in found if tool is not None}

    def find(self, name: str) -> Tool | None:
        """Return the tool of this name, or else the only one that matches it ignoring case, or None."""
        catalog = self.state.catalog
        if self.state.remotes and name not in catalog.tools:
            catalog = Catalog({**self._exactly_named_tools, **self.remote_tools, **catalog.tools})
        found = catalog.find(name)
        return self.get_reader(name) if found is None else found

    def get_reader(self, name: str = READ_RESULT) -> Tool | None:
        """Return `read_result` if `name` asks for it and results are stored, or None."""
        store = self.state.result_store
        return make_result_reader(store) if name == READ_RESULT and len(store) else None

    def list_names(self) -> tuple[str, ...]:
        """Return the names of the tools that exist for every context, sorted."""
        tools = self.list_tools()
        if self._names is None or self._names[0] is not tools:
            names = (tool.name for tool in tools if tool.options.enabled is True)
            self._names = (tools, tuple(dict.fromkeys(names)))
        return self._names[1]

    def list_tools(self) -> Sequence[Tool]:
        """Return the tools, sorted by name, without `read_result`."""
        # Cached, so that listing a thousand tools before each turn does not sort them each time.
        version = self.state.remotes.version
        if self._sorted is None or self._sorted[0] != version:
            remote_tools = self.listed_remote_tools if self.state.remotes else {}
            tools = [*remote_tools.values(), *self.state.catalog.tools.values()]
            for tool in tools:
                if tool.options.enabled is False:
                    tools = [item for item in tools if item.options.enabled is not False]
                    break
            self._sorted = (version, tuple(sorted(tools, key=lambda tool: tool.name)))
        return self._sorted[1]

    def make_unknown(self, name: str) -> UnknownTool:
        """Return the error about a name that no tool has."""
        remotes = self.state.remotes
        return UnknownTool(name, self.list_names(), down=remotes.unlisted, held_back=remotes.held_back.get(name, ""))

    def get_route(self, name: str, *, resolvers_had_none: bool = False) -> Route | ToolCallError:
        """Return the route of a call, or the error if it has none. `find_route` also asks resolvers and servers."""
        known = self.routes.get(name)
        if known is None and self.may_use_resolvers:
            known = self._resolved.get(name)
        if known is not None:
            return known
        tool = self.state.catalog.tools.get(name)
        try:
            if tool is None and name == READ_RESULT:
                # Not kept: a run has a store of its own.
                return self._make_route(make_result_reader(self.state.result_store))
            if tool is None and (resolvers_had_none or not self.may_use_resolvers):
                tool = self.find(name)
            if tool is None:
                return self.make_unknown(name)
            route = self.routes[name] = self._make_route(tool)
        except Exception as error:  # noqa: BLE001 - making a route may import a module; its failure must cost one call, not a batch
            return ExecutionError(name, error)
        return route

    async def find_route(self, name: str, context: ToolContext[Any] | None) -> Route | ToolCallError:
        """Return the route of a call, from a resolver or else from the servers if the toolbox has no such tool."""
        check_kinds("", {"name": name}, {"name": (str,)})
        route = await self.resolve_route(name)
        if isinstance(route, UnknownTool) and self.state.remotes:
            return (await self.refresh(context)).get_route(name, resolvers_had_none=True)
        return route

    async def resolve(self, name: str) -> Tool | None:
        """Return the tool that a call runs, or None if there is none. Raise the error of a resolver that failed."""
        route = await self.find_route(name, None)
        if isinstance(route, UnknownTool):
            return None
        if isinstance(route, ToolCallError):
            raise route
        return route.tool

    async def resolve_route(self, name: str) -> Route | ToolCallError:
        """Return the route of a call. Asks the resolvers, without blocking the loop."""
        route = self.get_route(name)
        if not isinstance(route, UnknownTool) or not self.may_use_resolvers:
            return route
        try:
            listed = self.find(name)
            for resolver in self.state.policy.resolvers:
                found = await call_user_function(resolver.resolve, name, settings=self.state.policy.settings)
                resolved = check_resolved(resolver, name, found)
                tool = None if resolved is None else self.state.transform(resolved)
                _log.debug("%s %s %r", type(resolver).__name__, "has no" if tool is None else "resolved", name)
                # With case ignored, listed tools come first: one of them wins, and several are ambiguous.
                if tool is not None and (
                    tool.name == name
                    or (listed is None and name.casefold() not in map(str.casefold, self.list_names()))
                ):
                    return self._resolved.setdefault(name, self._make_route(tool))
            return route if listed is None else self.routes.setdefault(name, self._make_route(listed))
        except Exception as error:  # noqa: BLE001 - a resolver is user code; its failure must cost one call, not a batch
            return ExecutionError(name, error)

    def clear(self) -> None:
        """Discard cached routes and definitions."""
        self.routes.clear()
        self._resolved.clear()
        self._definitions.clear()

    def make_definitions(self, provider: str, strict: Strict, *, lossy: bool) -> list[dict[str, Any]]:
        """Return the tools in the format of a provider's `tools` field."""
        provider = str(provider)  # anything else is an unknown provider
        reader = None if READ_RESULT in self.state.catalog.tools else self.get_reader()
        key = (provider, strict, lossy, reader is None)
        found = self._definitions.get(key)
        if found is None:
            export = import_module(_REGISTRY_MODULE).definitions
            found = export(self.list_with_reader(), self.state.catalog.native, provider, strict, lossy)
            self._definitions[key] = found
        return list(map(dict.copy, found))

    def list_with_reader(self) -> list[Tool]:
        """Return the tools, sorted by name, with `read_result` once a result has been truncated."""
        reader = None if READ_RESULT in self.state.catalog.tools else self.get_reader()
        tools = self.list_tools()
        return [*tools] if reader is None else sorted([*tools, reader], key=lambda tool: tool.name)

    async def prepare(self) -> None:
        """Fetch missing or stale lists from the servers. Log the overrides whose tool is in none of them.

        Raises:
            RemoteError: a required server is unavailable.
            DuplicateTool: two tools share a name, and `on_conflict="error"`.
        """
        state = self.state
        await state.remotes.prepare()
        state.remotes.raise_on_conflict()
        if state.overrides and state.remotes.is_known:
            names = [tool.name for tool in self.list_tools()]
            for change in state.overrides:
                change.report_unused(names)

    async def list_enabled(self) -> list[Tool]:
        """Return the tools that are enabled for the toolbox's context, with current lists of the servers."""
        await self.prepare()
        disabled = await self.find_disabled(None) if self.state.is_conditional else ()
        return [tool for tool in self.list_with_reader() if tool.name not in disabled]

    async def find_disabled(self, context: ToolContext[Any] | None) -> frozenset[str]:
        """Return the names of the tools that are not enabled for a context."""
        tools = [tool for tool in self.list_tools() if not isinstance(tool.options.enabled, bool)]
        chains = [get_chain(tool.policies, self.state.calls) for tool in tools]
        answers = await asyncio.gather(
            *(is_enabled(tool, chain, context) for tool, chain in zip(tools, chains, strict=True))
        )
        return frozenset(tool.name for tool, enabled in zip(tools, answers, strict=True) if not enabled)

    async def refresh(self, context: ToolContext[Any] | None) -> ToolLookup:
        """Return a lookup with current lists for the context's identity, for a name that these do not contain."""
        lookup = ToolLookup(self.state.for_identity(context), {})
        await lookup.state.remotes.prepare(revalidate=True)
        return lookup

    def list_prompts(self) -> list[Prompt]:
        """Return the prompts, sorted by name."""
        remote_prompts = {
            name: replace(prompt, name=name) for name, (_, prompt) in collect_prompts(self.state.remotes).items()
        }
        return sorted({**remote_prompts, **self.state.catalog.prompts}.values(), key=lambda prompt: prompt.name)

    async def find_prompt(self, name: str, context: ToolContext[Any] | None) -> Prompt:
        """Return a prompt. Fetches the lists of the servers if the toolbox has none of this name.

        Raises:
            KeyError: the prompt is unknown; the message lists the known ones.
        """
        found = self.state.catalog.prompts.get(name)
        if found is not None:
            return found
        lookup = await self.refresh(context) if self.state.remotes else self
        prompts = {prompt.name: prompt for prompt in lookup.list_prompts()}
        if name not in prompts:
            raise UnknownName(f"No prompt named {name!r}. Available: {', '.join(prompts) or 'none'}.")
        return prompts[name]

    async def render_prompt(self, name: str, arguments: Arguments, context: ToolContext[Any] | None) -> list[Message]:
        """Return the messages of a prompt. Raises as `Toolbox.prompt` does."""
        check_kinds("", {"name": name}, {"name": (str,)})
        found = await self.find_prompt(name, context)
        chain = get_chain(found.policies, self.state.calls)
        merged = merge_context(chain).merge(context)
        return await run_in_time(name, chain, found.render(arguments, merged, merge_settings(chain)))

    def list_resources(self) -> list[ResourceLink]:
        """Return the resources of the toolbox and the known ones of its servers, without templates."""
        own = self.state.catalog.resources
        own_links = [item.link for item in own.values() if not item.parameters]
        remote_links = [link for source in self.state.remotes.sources for link in source.lists.resources]
        return [*own_links, *(link for link in remote_links if link.uri not in own)]

    async def read(self, uri: str, context: ToolContext[Any] | None) -> tuple[Content, ...]:
        """Return the contents of a resource of the toolbox, or else of a server.

        Raises:
            KeyError: no resource has this URI, and the toolbox has no servers.
            RemoteError: no server has it.
            ToolTimeout: the resource was not read in time.
        """
        state = self.state
        for item in state.catalog.resources.values():
            values = item.match_uri(uri)
            if values is not None:
                chain = get_chain(item.policies, state.calls)
                merged = merge_context(chain).merge(context)
                return await run_in_time(uri, chain, item.read(uri, values, merged, merge_settings(chain)))
        if not state.remotes:
            raise UnknownName(f"No resource has the URI {uri!r}. Print `toolbox.resources` to list them.")
        merged = state.calls.context.merge(context)
        return await run_in_time(uri, (state.calls,), state.remotes.for_identity(merged).read(uri, merged))

    def _make_route(self, tool: Tool) -> Route:
        loaded = load_tool(tool)
        return compose_runners(make_route(loaded, get_chain(loaded.policies, self.state.calls), self.state.store))

    @property
    def may_use_resolvers(self) -> bool:
        """True if a resolver may provide a tool that the toolbox does not list."""
        fallback = self.state.policy.resolution_fallback
        if not self.state.uses_resolvers or not self.state.policy.resolvers:
            return False
        # The application may call any tool; a model may call only the tools it was offered.
        return self.state.run is None if isinstance(fallback, Inherit) else fallback
