"""`Toolbox`: an ordered, checked set of tools, and the one place where calls run.

Lives here: the public face over `catalog` (which tools), `route` (how they are treated) and `dispatch` (running).
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import dataclasses
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from typing_extensions import Unpack

from toolmason._core.call.admission import governed, long_way
from toolmason._core.call.batch import IDS, Batch, as_call, is_barrier, width_of
from toolmason._core.call.failures import shown
from toolmason._core.call.limited import lane_of
from toolmason._core.call.limits import RunState
from toolmason._core.call.long_results import reader_of
from toolmason._core.call.pipeline import NO_TIMEOUT, NOTHING_ASKED, Ask, performer_of
from toolmason._core.call.route import Route, route_to
from toolmason._core.call.shared_state import Middleware, is_governed
from toolmason._core.catalog.catalog import (
    READ_RESULT,
    Catalog,
    Item,
    items_from,
    problems_of,
    refuse_builtin_name,
    resolved,
)
from toolmason._core.catalog.prompts import Prompt, prompt_as
from toolmason._core.define.context import context_from
from toolmason._core.define.tool import Tool
from toolmason._core.remote.nested import Nested, servers_seen
from toolmason._core.remote.protocol import Host, RemoteSource, View
from toolmason._core.remote.servers import Remotes, prompts_in
from toolmason._core.run.progress import OnProgress
from toolmason._core.toolbox.approvals import Approvals, office_of, store_of
from toolmason._core.toolbox.definitions import Exports
from toolmason._core.toolbox.options import BoxPolicy, BoxWords
from toolmason._core.toolbox.servers import Connections
from toolmason._core.toolbox.sync_twins import PARALLEL, Calls, ContextLike, Faces, Messages, Results, Tools
from toolmason._core.toolbox.views import Views
from toolmason._core.values.policy import INHERIT, Inherit, Retry, Strategy, Timeout, checked, checked_retry
from toolmason._core.values.provider_tools import Native
from toolmason._core.values.results import Arguments, ToolCall, ToolResult, call_of
from toolmason.errors import DefinitionError, ExecutionError, PluginError, ToolCallError, ToolTimeout, UnknownTool


class Toolbox(Faces, Connections, Views, Approvals, Exports):
    """An ordered, checked set of tools from any number of sources; the one place where calls run."""

    def __init__(self, *sources: Any, **options: Unpack[BoxWords]) -> None:
        self._policy = policy = BoxPolicy.of(options)
        self._catalog = Catalog()
        self._routes: dict[str, Route] = {}
        self._office = office_of(policy)
        self._store = store_of(policy)
        self._run: RunState | None = None
        self._owns_store = self._owns_remotes = True
        self._view: View = _unchanged
        host = Host(policy.settings, policy.on_elicit, policy.on_sample, policy.roots, policy.context)
        self._remotes = Remotes(host, policy.on_conflict)
        self._remotes.listen(self)
        self._problems: tuple[PluginError, ...] = ()
        self._exported = {}
        self._kept: tuple[int, Catalog, Sequence[Tool]] | None = None
        for source in (*sources, *policy.native):
            self.add(source)

    @classmethod
    def from_manifest(cls, source: str | Path, **options: Unpack[BoxWords]) -> Self:
        """Return a toolbox with the tools of a package that `toolmason build` wrote down; none of them is imported.

        `source` is the package's name, or the path of its manifest. A tool's module is imported at its first call,
        or before, with `resolve(name)`. The tools of a module whose source has changed since come from the module
        itself, with a `StaleManifest` warning.

        Raises:
            ConfigError: there is no manifest, or it is damaged.
            DuplicateTool: it lists two tools of one name.
        """
        from toolmason._core.load.manifest import find_manifest  # noqa: PLC0415 - 5 ms at start-up, for programs that have one

        return cls(find_manifest(source), **options)

    def _with(
        self,
        catalog: Catalog,
        *,
        closed: bool = False,
        run: RunState | None = None,
        view: View | None = None,
        remotes: Remotes | None = None,
    ) -> Self:
        twin = object.__new__(type(self))
        twin._view = self._view if view is None else _composed(self._view, view)
        twin._owns_store, twin._owns_remotes = run is not None, False
        twin._remotes = self._remotes if remotes is None else remotes
        twin._remotes.listen(twin)
        twin._problems = self._problems
        # A view that leaves tools out must not find them again through a resolver.
        twin._policy = dataclasses.replace(self._policy, resolvers=()) if closed else self._policy
        twin._catalog, twin._routes, twin._exported, twin._kept = catalog, {}, {}, None
        twin._office, twin._run = self._office, run or self._run
        twin._store = self._store if run is None else store_of(self._policy)
        return twin

    def add(self, source: Any, *, replace: bool = False) -> None:
        """Add the tools and prompts of a source.

        Raises:
            DuplicateTool: a name is taken and `replace` is not set; names both origins.
            DefinitionError: the source cannot give tools; says why.
        """
        # All or nothing: a source that clashes leaves the toolbox as it was.
        grown, servers = self._catalog.copy(), []
        for item in items_from(source, self._policy.naming, self._policy.resolvers):
            # Tools first, and asked once: to ask an object what it is takes as long as to list it.
            if isinstance(item, Tool):
                refuse_builtin_name(item)
                grown.add_tool(item, replace_same=replace)
            elif not isinstance(item, Item) and isinstance(item, RemoteSource):
                servers.append(item.__remote__(self._remotes.host))
            else:
                grown.add(item, replace_same=replace)
        for server in servers:
            self._remotes.add(server)
        self._catalog, self._problems = grown, (*self._problems, *problems_of(source))
        if self._owns_remotes:
            self._remotes.local = frozenset((*grown.tools, READ_RESULT))
            self._remotes.local_prompts = frozenset(grown.prompts)
        self._remotes.changed()
        self.forget_routes()

    def forget_routes(self) -> None:
        """Work out anew how calls are treated; what the tools are has changed."""
        self._routes.clear()
        self._exported.clear()

    def __tools__(self) -> Iterator[Item | Native | Nested]:
        yield from self._catalog.everything()
        yield from servers_seen(self._remotes, self._view)

    @property
    def name(self) -> str | None:
        """What this toolbox is called, where it has a name."""
        return self._policy.name

    @property
    def problems(self) -> tuple[PluginError, ...]:
        """What `discover` or `scan` had to leave out, and why."""
        return self._problems

    @property
    def tools(self) -> Tools:
        """The tools, sorted by name, so that the order is the same in every run.

        `read_result` is among them as soon as a result was cut.
        """
        more = None if READ_RESULT in self._catalog.tools else self._reader(READ_RESULT)
        return sorted([*self, more], key=lambda tool: tool.name) if more else [*self._sorted()]

    @property
    def native(self) -> tuple[Native, ...]:
        """The tools that a provider runs: web search, MCP servers that it calls, others of its own."""
        return self._catalog.native

    def _reads_results(self) -> bool:
        return len(self._store) > 0

    @property
    def _offered(self) -> Mapping[str, Tool]:
        """What the servers are known to offer, as this view shows it."""
        if not self._remotes:
            return {}
        seen = (self._view(tool) for tool in self._remotes.tools.values())
        return {tool.name: tool for tool in seen if tool is not None}

    @property
    def prompts(self) -> builtins.list[Prompt]:
        """The prompts, sorted by name; a server's whose name is taken is `server__prompt`."""
        remote = {name: prompt_as(prompt, name) for name, (_, prompt) in prompts_in(self._remotes).items()}
        return sorted({**remote, **self._catalog.prompts}.values(), key=lambda prompt: prompt.name)

    def __getitem__(self, name: str) -> Tool:
        found = self._find(name) or self._reader(name)
        if found is None:
            raise KeyError(str(UnknownTool(name, self._names())))
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self._find(name) or self._reader(name)) is not None

    def _reader(self, name: str) -> Tool | None:
        """Return what reads cut results, where it is asked for and there are any."""
        return reader_of(self._store) if name == READ_RESULT and len(self._store) else None

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._sorted())

    def _sorted(self) -> Sequence[Tool]:
        # Kept with what it was made of: whoever lists a thousand tools before each turn does not sort them each time.
        version, catalog = self._remotes.version, self._catalog
        if self._kept is None or self._kept[0] != version or self._kept[1] is not catalog:
            found = sorted([*self._offered.values(), *catalog.tools.values()], key=lambda tool: tool.name)
            self._kept = (version, catalog, tuple(found))
        return self._kept[2]

    def __len__(self) -> int:
        return len(self._catalog.tools) + len(self._offered)

    def _find(self, name: str) -> Tool | None:
        found = self._catalog.find(name)
        return Catalog(dict(self._offered)).find(name) if found is None and self._remotes else found

    def _names(self) -> builtins.list[str]:
        return sorted([*self._catalog.tools, *self._offered])

    def __repr__(self) -> str:
        return f"<Toolbox {self.name or ''}[{', '.join(tool.name for tool in self)}]>"

    async def list(self) -> Tools:
        """Return the tools, sorted by name; fetches what servers offer where that is missing or stale."""
        await self._remotes.prepare()
        self._remotes.refuse_clash()
        return self.tools

    async def resolve(self, name: str) -> Tool | None:
        """Return the tool that a call of this name would run, or `None`."""
        route = self._route(name)
        if route is None and self._remotes:
            box = await self._listed_for(None)
            route = box._route(name)  # noqa: SLF001 - one of ourselves
        return None if route is None else route.tool

    def _route(self, name: str) -> Route | None:
        if (known := self._routes.get(name)) is not None:
            return known
        tool = self._catalog.find(name) or (reader_of(self._store) if name == READ_RESULT else None)
        if tool is None and self._falls_back() and (found := resolved(name, self._policy.resolvers)) is not None:
            tool = self._view(found)
        tool = tool or self._find(name)
        if tool is None:
            return None
        route = route_to(tool.ready(), self._policy.for_calls(), self._store)
        if not is_governed(route, self._office, self._run):
            route = dataclasses.replace(route, perform=performer_of(route))
        elif self._run is None:
            route = dataclasses.replace(route, perform=lane_of(route, self._office, long_way(route, self._office)))
        self._routes[name] = route
        return route

    def _falls_back(self) -> bool:
        """Tell whether a resolver may be asked for a tool that was not offered."""
        wanted = self._policy.resolution_fallback
        # What the application calls is its own decision; a model gets what it was offered.
        return self._run is None if isinstance(wanted, Inherit) else wanted

    def _route_or_refusal(self, name: str) -> Route | ToolCallError:
        try:
            return self._route(name) or UnknownTool(name, self._names())
        except Exception as error:  # noqa: BLE001 - a resolver is foreign code; its failure costs one call, not a batch
            return ExecutionError(name, error)

    def call(
        self,
        call: str | ToolCall,
        arguments: Arguments = None,
        *,
        context: ContextLike = None,
        timeout: Timeout = INHERIT,
        retry: Retry | Inherit | None = INHERIT,
        on_progress: OnProgress | None = None,
    ) -> Coroutine[Any, Any, ToolResult]:
        """Run one call and return its result; what a tool or a model did wrong is in the result, not raised.

        `call` is a tool's name, with `arguments`, or a `ToolCall`. `on_progress` gets what the tool reports.
        """
        # Not `async def`: the coroutine of the short way is handed on as it is, which saves a layer for each call.
        if isinstance(call, str):
            name, call_id = call, f"call_{next(IDS)}"
        else:
            name, call_id, arguments = (known := as_call(call)).name, known.id, known.arguments
        route = self._routes.get(name)
        if route is None:
            found = self._route_or_refusal(name)
            if isinstance(found, UnknownTool) and self._remotes:
                ask = Ask(context_from(context), checked(timeout), checked_retry(retry), on_progress=on_progress)
                return self._after_listing(call_of(call_id, name, arguments), ask)
            if isinstance(found, ToolCallError):
                return self._refused(call_id, name, found)
            route = found
        if context is None and on_progress is None and retry is INHERIT and (timeout is INHERIT or timeout is None):
            ask = NOTHING_ASKED if timeout is INHERIT else NO_TIMEOUT
        else:
            ask = Ask(context_from(context), checked(timeout), checked_retry(retry), on_progress=on_progress)
        perform = route.perform
        if perform is None or self._office.middleware:
            return governed(route, self._office, self._run, ask, call_of(call_id, route.name, arguments))
        return perform(call_id, arguments, ask)

    async def _after_listing(self, call: ToolCall, ask: Ask) -> ToolResult:
        """Run a call whose tool may be on a server that was not asked yet."""
        route: Route | ToolCallError
        seconds = self._policy.settings.call_timeout if ask.timeout is INHERIT else ask.timeout
        try:
            async with asyncio.timeout(seconds):
                route = (await self._listed_for(ask.context))._route_or_refusal(call.name)  # noqa: SLF001 - one of ourselves
        except ToolCallError as unreachable:
            route = unreachable
        except TimeoutError:
            route = ToolTimeout(call.name, seconds or 0.0, limit="timeout, waiting for a server", retryable=True)
        if isinstance(route, ToolCallError):
            return await self._refused(call.id, call.name, route)
        return await self._performed(route, call, ask)

    def _performed(self, route: Route, call: ToolCall, ask: Ask) -> Coroutine[Any, Any, ToolResult]:
        if route.perform is None or self._office.middleware:
            named = call if call.name == route.name else dataclasses.replace(call, name=route.name)
            return governed(route, self._office, self._run, ask, named)
        return route.perform(call.id, call.arguments, ask)

    async def _refused(self, call_id: str, name: str, error: ToolCallError) -> ToolResult:
        return ToolResult(call_id, name, attempts=0, **shown(error, self._policy.on_error))

    async def call_all(
        self,
        calls: Calls,
        *,
        strategy: Strategy = PARALLEL,
        context: ContextLike = None,
        timeout: float | None = None,
        results: Results | None = None,
        on_progress: OnProgress | None = None,
    ) -> Results:
        """Run the calls of one turn; one result for each, in call order, whatever fails.

        `timeout` is for the whole batch. `results`, where given, is filled also when the batch is cancelled:
        what was done keeps its result, the rest is `ToolCancelled`.
        """
        wanted = [as_call(call) for call in calls]
        width = width_of(strategy, self._policy.max_concurrency)
        known, seconds, box = context_from(context), checked(timeout), self
        routes = [self._route_or_refusal(call.name) for call in wanted]
        if self._remotes and any(isinstance(route, UnknownTool) for route in routes):
            box = self._seen(known)
            # What cannot be had in time is refused call by call: the others must not wait for it, or fail with it.
            with contextlib.suppress(TimeoutError, ToolCallError):
                async with asyncio.timeout(self._policy.settings.call_timeout if timeout is None else timeout):
                    await box._remotes.prepare(doubtful=True)  # noqa: SLF001 - one of ourselves
            routes = [box._route_or_refusal(call.name) for call in wanted]  # noqa: SLF001 - one of ourselves
        # What was there when the batch began stays there for it, whoever clears the lists meanwhile.
        found = {call.name: route for call, route in zip(wanted, routes, strict=True)}

        async def run_one(call: ToolCall, ends: float | None) -> ToolResult:
            route = box._route_or_refusal(call.name)  # noqa: SLF001 - one of ourselves
            route = found[call.name] if isinstance(route, UnknownTool) else route
            if isinstance(route, ToolCallError):
                return await self._refused(call.id, call.name, route)
            ask = Ask(known, ends=ends, span=timeout or 0.0, on_progress=on_progress)
            return await self._performed(route, call, ask)

        batch = Batch(wanted, results if results is not None else [], width, seconds)
        return await batch.run(run_one, [is_barrier(route) for route in routes])

    def use(self, middleware: Middleware) -> None:
        """Put a hook around every call: `async def middleware(call, next) -> ToolResult`; the first is outermost."""
        if not callable(middleware):
            raise DefinitionError(f"{middleware!r} is not a hook. Give an async function of a call and what follows.")
        self._office.middleware.append(middleware)

    def cancel(self) -> None:
        """Call off the calls of this run, from any thread; each gets a result. See `run()`."""
        if self._run is not None:
            self._run.cancel()

    async def prompt(self, name: str, arguments: Arguments = None, *, context: ContextLike = None) -> Messages:
        """Return the messages of a prompt.

        Raises:
            KeyError: there is no such prompt; names those there are.
            InvalidArguments: the arguments do not fit.
        """
        found, box = self._catalog.prompts.get(name), self
        if found is None and self._remotes:
            box = await self._listed_for(context_from(context))
            found = next((prompt for prompt in box.prompts if prompt.name == name), None)
        if found is None:
            known = ", ".join(prompt.name for prompt in box.prompts) or "none"
            raise KeyError(f"No prompt named {name!r}. There are: {known}.")
        return await found.render(arguments, self._policy.context.merged(context_from(context)))


def _unchanged(tool: Tool) -> Tool | None:
    return tool


def _composed(first: View, second: View) -> View:
    def both(tool: Tool) -> Tool | None:
        seen = first(tool)
        return None if seen is None else second(seen)

    return both
