"""Provide `Toolbox`, a validated set of tools that runs calls."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import dataclasses
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from typing_extensions import Unpack

from toolmason._core.call.admission import make_full_runner, run_call
from toolmason._core.call.batch import CALL_NUMBERS, Batch, get_max_parallel, is_barrier, to_call
from toolmason._core.call.failures import make_error_fields
from toolmason._core.call.limited import make_limited_runner
from toolmason._core.call.limits import RunState
from toolmason._core.call.long_results import make_result_reader
from toolmason._core.call.pipeline import NO_OPTIONS, NO_TIMEOUT, CallOptions, make_runner
from toolmason._core.call.route import Route, make_route
from toolmason._core.call.shared_state import Middleware, needs_pipeline
from toolmason._core.catalog.catalog import (
    READ_RESULT,
    Catalog,
    CatalogItem,
    get_source_problems,
    iter_source_items,
    refuse_builtin_name,
    resolve_name,
)
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.context import ContextLike, make_context
from toolmason._core.define.tool import Tool
from toolmason._core.remote.nested import RemoteView, make_remote_views
from toolmason._core.remote.protocol import RemoteSource, ServerRequestHandlers, ToolTransform
from toolmason._core.remote.servers import Remotes, collect_prompts
from toolmason._core.run.blocking import blocking
from toolmason._core.run.progress import OnProgress
from toolmason._core.toolbox.approvals import Approvals, make_result_store, make_shared_call_state
from toolmason._core.toolbox.definitions import Exports
from toolmason._core.toolbox.options import ToolboxOptions, ToolboxPolicy
from toolmason._core.toolbox.servers import Connections
from toolmason._core.toolbox.views import NO_CHANGES, ViewChanges, Views
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import (
    INHERIT,
    Inherit,
    Parallel,
    Retry,
    Strategy,
    Timeout,
    check_retry,
    check_timeout,
)
from toolmason._core.values.provider_tools import AnyNativeTool
from toolmason._core.values.results import Arguments, ToolCall, ToolResult, make_call
from toolmason.errors import DefinitionError, ExecutionError, PluginError, ToolCallError, ToolTimeout, UnknownTool


class Toolbox(Connections, Views, Approvals, Exports):
    """Ordered, validated set of tools from any number of sources. All calls run through it."""

    def __init__(self, *sources: Any, **options: Unpack[ToolboxOptions]) -> None:
        self._policy = policy = ToolboxPolicy.from_options(options)
        self._catalog = Catalog()
        self._routes: dict[str, Route] = {}
        self._shared = make_shared_call_state(policy)
        self._result_store = make_result_store(policy)
        self._run_state: RunState | None = None
        self._owns_store = self._owns_remotes = True
        self._transform: ToolTransform = _keep_unchanged
        handlers = ServerRequestHandlers(
            policy.settings, policy.on_elicit, policy.on_sample, policy.roots, policy.context
        )
        self._remotes = Remotes(handlers, policy.on_conflict)
        self._remotes.add_listener(self)
        self._problems: tuple[PluginError, ...] = ()
        self._definitions_cache = {}
        self._sorted_cache: tuple[int, Catalog, Sequence[Tool]] | None = None
        for source in (*sources, *policy.native):
            self.add(source)

    @classmethod
    def from_manifest(cls, source: str | Path, **options: Unpack[ToolboxOptions]) -> Self:
        """Return a toolbox with the tools in a package's manifest, without importing them.

        `toolmason build` writes the manifest. `source` is the name of the package, or the path of the manifest. A
        tool's module is imported on its first call, or earlier with `resolve(name)`. If a module has changed since
        the build, its tools come from the module itself, with a `StaleManifest` warning.

        Raises:
            ConfigError: the manifest is missing or damaged.
            DuplicateTool: the manifest lists two tools with the same name.
        """
        from toolmason._core.load.manifest import find_manifest  # noqa: PLC0415 - 5 ms at start-up, needed only with a manifest

        return cls(find_manifest(source), **options)

    def _derive(self, catalog: Catalog, changes: ViewChanges = NO_CHANGES) -> Self:
        derived = object.__new__(type(self))
        transform, run_state = changes.transform, changes.run_state
        derived._transform = self._transform if transform is None else _compose(self._transform, transform)
        derived._owns_store = run_state is not None
        derived._owns_remotes = False
        derived._remotes = self._remotes if changes.remotes is None else changes.remotes
        derived._remotes.add_listener(derived)
        derived._problems = self._problems
        # A view that hides tools must not find them again through a resolver.
        derived._policy = dataclasses.replace(self._policy, resolvers=()) if changes.without_resolvers else self._policy
        derived._catalog = catalog
        derived._routes = {}
        derived._definitions_cache = {}
        derived._sorted_cache = None
        derived._shared = self._shared
        derived._run_state = run_state or self._run_state
        derived._result_store = self._result_store if run_state is None else make_result_store(self._policy)
        return derived

    def add(self, source: Any, *, replace: bool = False) -> None:
        """Add the tools and prompts of a source.

        Raises:
            DuplicateTool: a name is taken and `replace` is not set; the message names both origins.
            DefinitionError: the source provides no tools; the message says why.
        """
        # All or nothing: a source with a conflict leaves the toolbox unchanged.
        catalog = self._catalog.copy()
        servers = []
        for item in iter_source_items(source, self._policy.naming, self._policy.resolvers):
            # Check for Tool first, and once: an isinstance check costs as much as adding the tool.
            if isinstance(item, Tool):
                refuse_builtin_name(item)
                catalog.add_tool(item, replace_same=replace)
            elif not isinstance(item, CatalogItem) and isinstance(item, RemoteSource):
                servers.append(item.__remote__(self._remotes.handlers))
            else:
                catalog.add(item, replace_same=replace)
        for server in servers:
            self._remotes.add(server)
        self._catalog = catalog
        self._problems = (*self._problems, *get_source_problems(source))
        if self._owns_remotes:
            self._remotes.names.local_tools = frozenset((*catalog.tools, READ_RESULT))
            self._remotes.names.local_prompts = frozenset(catalog.prompts)
        self._remotes.mark_changed()
        self.clear_routes()

    def clear_routes(self) -> None:
        """Discard cached routes and definitions after the tools have changed."""
        self._routes.clear()
        self._definitions_cache.clear()

    def __tools__(self) -> Iterator[CatalogItem | AnyNativeTool | RemoteView]:
        yield from self._catalog.iter_items()
        yield from make_remote_views(self._remotes, self._transform)

    @property
    def name(self) -> str | None:
        """Name of this toolbox, or None."""
        return self._policy.name

    @property
    def problems(self) -> tuple[PluginError, ...]:
        """Plugins and modules that `discover` or `scan` skipped, with the reasons."""
        return self._problems

    @property
    def tools(self) -> builtins.list[Tool]:
        """Tools, sorted by name, so that the order is the same in every run.

        Includes `read_result` once a result has been truncated.
        """
        reader = None if READ_RESULT in self._catalog.tools else self._get_result_reader(READ_RESULT)
        if reader is None:
            return [*self._get_sorted_tools()]
        return sorted([*self._get_sorted_tools(), reader], key=lambda tool: tool.name)

    @property
    def native(self) -> tuple[AnyNativeTool, ...]:
        """Tools that a provider runs: web search, MCP servers it calls, and its own tools."""
        return self._catalog.native

    def _has_stored_results(self) -> bool:
        return len(self._result_store) > 0

    @property
    def _remote_tools(self) -> Mapping[str, Tool]:
        """Known tools of the servers, as this view exposes them."""
        if not self._remotes:
            return {}
        visible = (self._transform(tool) for tool in self._remotes.tools.values())
        return {tool.name: tool for tool in visible if tool is not None}

    @property
    def prompts(self) -> builtins.list[Prompt]:
        """Prompts, sorted by name. A server prompt whose name is taken becomes `server__prompt`."""
        remote_prompts = {
            name: dataclasses.replace(prompt, name=name) for name, (_, prompt) in collect_prompts(self._remotes).items()
        }
        return sorted({**remote_prompts, **self._catalog.prompts}.values(), key=lambda prompt: prompt.name)

    def __getitem__(self, name: str) -> Tool:
        found = self._find_tool(name) or self._get_result_reader(name)
        if found is None:
            raise KeyError(str(UnknownTool(name, self._list_names())))
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (self._find_tool(name) or self._get_result_reader(name)) is not None

    def _get_result_reader(self, name: str) -> Tool | None:
        """Return `read_result` if `name` asks for it and results are stored, or None."""
        return make_result_reader(self._result_store) if name == READ_RESULT and len(self._result_store) else None

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._get_sorted_tools())

    def _get_sorted_tools(self) -> Sequence[Tool]:
        # Cached with its inputs, so that listing a thousand tools before each turn does not sort them each time.
        version, catalog = self._remotes.version, self._catalog
        if self._sorted_cache is None or self._sorted_cache[0] != version or self._sorted_cache[1] is not catalog:
            found = sorted([*self._remote_tools.values(), *catalog.tools.values()], key=lambda tool: tool.name)
            self._sorted_cache = (version, catalog, tuple(found))
        return self._sorted_cache[2]

    def __len__(self) -> int:
        return len(self._catalog.tools) + len(self._remote_tools)

    def _find_tool(self, name: str) -> Tool | None:
        found = self._catalog.find(name)
        return Catalog(dict(self._remote_tools)).find(name) if found is None and self._remotes else found

    def _list_names(self) -> builtins.list[str]:
        return sorted([*self._catalog.tools, *self._remote_tools])

    def __repr__(self) -> str:
        return f"<Toolbox {self.name or ''}[{', '.join(tool.name for tool in self)}]>"

    async def list(self) -> builtins.list[Tool]:
        """Return the tools, sorted by name. Fetches missing or stale lists from the servers."""
        await self._remotes.prepare()
        self._remotes.raise_on_conflict()
        return self.tools

    list_sync = blocking(list)  # noqa: A003 - the method above

    async def resolve(self, name: str) -> Tool | None:
        """Return the tool that a call with this name would run, or None."""
        route = self._get_route(name)
        if route is None and self._remotes:
            box = await self._refresh_for_identity(None)
            route = box._get_route(name)  # noqa: SLF001 - same class
        return None if route is None else route.tool

    resolve_sync = blocking(resolve)

    def _get_route(self, name: str) -> Route | None:
        if (known := self._routes.get(name)) is not None:
            return known
        tool = self._catalog.find(name) or (make_result_reader(self._result_store) if name == READ_RESULT else None)
        if (
            tool is None
            and self._may_use_resolvers()
            and (found := resolve_name(name, self._policy.resolvers)) is not None
        ):
            tool = self._transform(found)
        tool = tool or self._find_tool(name)
        if tool is None:
            return None
        route = make_route(tool.load(), self._policy.for_calls(), self._result_store)
        if not needs_pipeline(route, self._shared, self._run_state):
            route = dataclasses.replace(route, runner=make_runner(route))
        elif self._run_state is None:
            route = dataclasses.replace(
                route, runner=make_limited_runner(route, self._shared, make_full_runner(route, self._shared))
            )
        self._routes[name] = route
        return route

    def _may_use_resolvers(self) -> bool:
        """Return True if a resolver may provide a tool that the toolbox does not list."""
        fallback = self._policy.resolution_fallback
        # The application may call any tool; a model may call only the tools it was offered.
        return self._run_state is None if isinstance(fallback, Inherit) else fallback

    def _get_route_or_error(self, name: str) -> Route | ToolCallError:
        try:
            return self._get_route(name) or UnknownTool(name, self._list_names())
        except Exception as error:  # noqa: BLE001 - a resolver is user code; its failure must cost one call, not a batch
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
        """Run one call and return its result. Errors of the tool or the model are in the result, not raised.

        `call` is the name of a tool, with `arguments`, or a `ToolCall`. `on_progress` receives the tool's progress
        reports.
        """
        # Not `async def`: returning the fast path's coroutine saves a layer for each call.
        if isinstance(call, str):
            name, call_id = call, f"call_{next(CALL_NUMBERS)}"
        else:
            given_call = to_call(call)
            name, call_id, arguments = given_call.name, given_call.id, given_call.arguments
        route = self._routes.get(name)
        if route is None:
            found = self._get_route_or_error(name)
            if isinstance(found, UnknownTool) and self._remotes:
                call_options = CallOptions(
                    make_context(context), check_timeout(timeout), check_retry(retry), on_progress=on_progress
                )
                return self._call_after_refresh(make_call(call_id, name, arguments), call_options)
            if isinstance(found, ToolCallError):
                return self._make_error_result(call_id, name, found)
            route = found
        if context is None and on_progress is None and retry is INHERIT and (timeout is INHERIT or timeout is None):
            call_options = NO_OPTIONS if timeout is INHERIT else NO_TIMEOUT
        else:
            call_options = CallOptions(
                make_context(context), check_timeout(timeout), check_retry(retry), on_progress=on_progress
            )
        runner = route.runner
        if runner is None or self._shared.middleware:
            return run_call(
                route, self._shared, self._run_state, call_options, make_call(call_id, route.name, arguments)
            )
        return runner(call_id, arguments, call_options)

    call_sync = blocking(call)

    async def _call_after_refresh(self, call: ToolCall, call_options: CallOptions) -> ToolResult:
        """Run a call whose tool may be on a server that has not been listed yet."""
        route: Route | ToolCallError
        seconds = self._policy.settings.call_timeout if call_options.timeout is INHERIT else call_options.timeout
        try:
            async with asyncio.timeout(seconds):
                route = (await self._refresh_for_identity(call_options.context))._get_route_or_error(call.name)  # noqa: SLF001 - same class
        except ToolCallError as unreachable:
            route = unreachable
        except TimeoutError:
            route = ToolTimeout(call.name, seconds or 0.0, limit="timeout, waiting for a server", retryable=True)
        if isinstance(route, ToolCallError):
            return await self._make_error_result(call.id, call.name, route)
        return await self._run_route(route, call, call_options)

    def _run_route(self, route: Route, call: ToolCall, call_options: CallOptions) -> Coroutine[Any, Any, ToolResult]:
        if route.runner is None or self._shared.middleware:
            renamed_call = call if call.name == route.name else dataclasses.replace(call, name=route.name)
            return run_call(route, self._shared, self._run_state, call_options, renamed_call)
        return route.runner(call.id, call.arguments, call_options)

    async def _make_error_result(self, call_id: str, name: str, error: ToolCallError) -> ToolResult:
        return ToolResult(call_id, name, attempts=0, **make_error_fields(error, self._policy.on_error))

    async def call_all(
        self,
        calls: Iterable[ToolCall | tuple[str, Arguments]],
        *,
        strategy: Strategy = Parallel(),  # noqa: B008 - frozen, so one default serves all
        context: ContextLike = None,
        timeout: float | None = None,
        results: builtins.list[ToolResult] | None = None,
        on_progress: OnProgress | None = None,
    ) -> builtins.list[ToolResult]:
        """Run the calls of one turn. Return one result for each, in call order, whatever fails.

        `timeout` applies to the whole batch. `results`, if given, is filled even if the batch is cancelled: finished
        calls keep their results, the others get `ToolCancelled`.
        """
        tool_calls = [to_call(call) for call in calls]
        max_parallel = get_max_parallel(strategy, self._policy.max_concurrency)
        call_context = make_context(context)
        seconds = check_timeout(timeout)
        box = self
        routes = [self._get_route_or_error(call.name) for call in tool_calls]
        if self._remotes and any(isinstance(route, UnknownTool) for route in routes):
            box = self._for_identity(call_context)
            # Refuse calls of unavailable tools one by one: the others must not wait for them or fail with them.
            with contextlib.suppress(TimeoutError, ToolCallError):
                async with asyncio.timeout(self._policy.settings.call_timeout if timeout is None else timeout):
                    await box._remotes.prepare(revalidate=True)  # noqa: SLF001 - same class
            routes = [box._get_route_or_error(call.name) for call in tool_calls]  # noqa: SLF001 - same class
        # A tool that was listed when the batch began stays available to it, even if the lists are cleared.
        routes_by_name = {call.name: route for call, route in zip(tool_calls, routes, strict=True)}

        async def run_one(call: ToolCall, deadline: float | None) -> ToolResult:
            route = box._get_route_or_error(call.name)  # noqa: SLF001 - same class
            route = routes_by_name[call.name] if isinstance(route, UnknownTool) else route
            if isinstance(route, ToolCallError):
                return await self._make_error_result(call.id, call.name, route)
            call_options = CallOptions(
                call_context, batch_deadline=deadline, batch_timeout=timeout or 0.0, on_progress=on_progress
            )
            return await self._run_route(route, call, call_options)

        batch = Batch(tool_calls, results if results is not None else [], max_parallel, seconds)
        return await batch.run(run_one, [is_barrier(route) for route in routes])

    call_all_sync = blocking(call_all)

    def use(self, middleware: Middleware) -> None:
        """Wrap every call in middleware: `async def middleware(call, next) -> ToolResult`. The first is outermost."""
        if not callable(middleware):
            raise DefinitionError(f"{middleware!r} is not middleware. Pass an async function that takes (call, next).")
        self._shared.middleware.append(middleware)

    def cancel(self) -> None:
        """Cancel the calls of this run. Each still gets a result. Thread-safe. See `run()`."""
        if self._run_state is not None:
            self._run_state.cancel()

    async def prompt(
        self, name: str, arguments: Arguments = None, *, context: ContextLike = None
    ) -> builtins.list[Message]:
        """Return the messages of a prompt.

        Raises:
            KeyError: the prompt is unknown; the message lists the known ones.
            InvalidArguments: the arguments are invalid.
        """
        found = self._catalog.prompts.get(name)
        box = self
        if found is None and self._remotes:
            box = await self._refresh_for_identity(make_context(context))
            found = next((prompt for prompt in box.prompts if prompt.name == name), None)
        if found is None:
            prompt_names = ", ".join(prompt.name for prompt in box.prompts) or "none"
            raise KeyError(f"No prompt named {name!r}. Available: {prompt_names}.")
        return await found.render(arguments, self._policy.context.merge(make_context(context)))

    prompt_sync = blocking(prompt)


def _keep_unchanged(tool: Tool) -> Tool | None:
    return tool


def _compose(first: ToolTransform, second: ToolTransform) -> ToolTransform:
    def composed(tool: Tool) -> Tool | None:
        visible = first(tool)
        return None if visible is None else second(visible)

    return composed
