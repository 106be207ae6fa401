"""`Toolbox`: an ordered, checked set of tools, and the one place where calls run.

Lives here: the public face over `catalog` (which tools), `route` (how they are treated) and `dispatch` (running).
"""

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
from toolmason._core.catalog.prompts import Prompt, rename_prompt
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
from toolmason._core.toolbox.views import Views
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
    """An ordered, checked set of tools from any number of sources; the one place where calls run."""

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

    def _derive(
        self,
        catalog: Catalog,
        *,
        without_resolvers: bool = False,
        run_state: RunState | None = None,
        transform: ToolTransform | None = None,
        remotes: Remotes | None = None,
    ) -> Self:
        derived = object.__new__(type(self))
        derived._transform = self._transform if transform is None else _compose(self._transform, transform)
        derived._owns_store, derived._owns_remotes = run_state is not None, False
        derived._remotes = self._remotes if remotes is None else remotes
        derived._remotes.add_listener(derived)
        derived._problems = self._problems
        # A view that leaves tools out must not find them again through a resolver.
        derived._policy = dataclasses.replace(self._policy, resolvers=()) if without_resolvers else self._policy
        derived._catalog, derived._routes, derived._definitions_cache, derived._sorted_cache = catalog, {}, {}, None
        derived._shared, derived._run_state = self._shared, run_state or self._run_state
        derived._result_store = self._result_store if run_state is None else make_result_store(self._policy)
        return derived

    def add(self, source: Any, *, replace: bool = False) -> None:
        """Add the tools and prompts of a source.

        Raises:
            DuplicateTool: a name is taken and `replace` is not set; names both origins.
            DefinitionError: the source cannot give tools; says why.
        """
        # All or nothing: a source that clashes leaves the toolbox as it was.
        catalog, servers = self._catalog.copy(), []
        for item in iter_source_items(source, self._policy.naming, self._policy.resolvers):
            # Tools first, and asked once: to ask an object what it is takes as long as to list it.
            if isinstance(item, Tool):
                refuse_builtin_name(item)
                catalog.add_tool(item, replace_same=replace)
            elif not isinstance(item, CatalogItem) and isinstance(item, RemoteSource):
                servers.append(item.__remote__(self._remotes.handlers))
            else:
                catalog.add(item, replace_same=replace)
        for server in servers:
            self._remotes.add(server)
        self._catalog, self._problems = catalog, (*self._problems, *get_source_problems(source))
        if self._owns_remotes:
            self._remotes.local_tools = frozenset((*catalog.tools, READ_RESULT))
            self._remotes.local_prompts = frozenset(catalog.prompts)
        self._remotes.mark_changed()
        self.clear_routes()

    def clear_routes(self) -> None:
        """Work out anew how calls are treated; what the tools are has changed."""
        self._routes.clear()
        self._definitions_cache.clear()

    def __tools__(self) -> Iterator[CatalogItem | AnyNativeTool | RemoteView]:
        yield from self._catalog.iter_items()
        yield from make_remote_views(self._remotes, self._transform)

    @property
    def name(self) -> str | None:
        """What this toolbox is called, where it has a name."""
        return self._policy.name

    @property
    def problems(self) -> tuple[PluginError, ...]:
        """What `discover` or `scan` had to leave out, and why."""
        return self._problems

    @property
    def tools(self) -> builtins.list[Tool]:
        """The tools, sorted by name, so that the order is the same in every run.

        `read_result` is among them as soon as a result was cut.
        """
        reader = None if READ_RESULT in self._catalog.tools else self._get_result_reader(READ_RESULT)
        return sorted([*self, reader], key=lambda tool: tool.name) if reader else [*self._get_sorted_tools()]

    @property
    def native(self) -> tuple[AnyNativeTool, ...]:
        """The tools that a provider runs: web search, MCP servers that it calls, others of its own."""
        return self._catalog.native

    def _has_stored_results(self) -> bool:
        return len(self._result_store) > 0

    @property
    def _remote_tools(self) -> Mapping[str, Tool]:
        """What the servers are known to offer, as this view shows it."""
        if not self._remotes:
            return {}
        visible = (self._transform(tool) for tool in self._remotes.tools.values())
        return {tool.name: tool for tool in visible if tool is not None}

    @property
    def prompts(self) -> builtins.list[Prompt]:
        """The prompts, sorted by name; a server's whose name is taken is `server__prompt`."""
        remote_prompts = {
            name: rename_prompt(prompt, name) for name, (_, prompt) in collect_prompts(self._remotes).items()
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
        """Return what reads cut results, where it is asked for and there are any."""
        return make_result_reader(self._result_store) if name == READ_RESULT and len(self._result_store) else None

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._get_sorted_tools())

    def _get_sorted_tools(self) -> Sequence[Tool]:
        # Kept with what it was made of: whoever lists a thousand tools before each turn does not sort them each time.
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
        """Return the tools, sorted by name; fetches what servers offer where that is missing or stale."""
        await self._remotes.prepare()
        self._remotes.raise_on_conflict()
        return self.tools

    list_sync = blocking(list)  # noqa: A003 - the method above

    async def resolve(self, name: str) -> Tool | None:
        """Return the tool that a call of this name would run, or `None`."""
        route = self._get_route(name)
        if route is None and self._remotes:
            box = await self._refresh_for_identity(None)
            route = box._get_route(name)  # noqa: SLF001 - one of ourselves
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
        """Tell whether a resolver may be asked for a tool that was not offered."""
        fallback = self._policy.resolution_fallback
        # What the application calls is its own decision; a model gets what it was offered.
        return self._run_state is None if isinstance(fallback, Inherit) else fallback

    def _get_route_or_error(self, name: str) -> Route | ToolCallError:
        try:
            return self._get_route(name) or UnknownTool(name, self._list_names())
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
            name, call_id = call, f"call_{next(CALL_NUMBERS)}"
        else:
            name, call_id, arguments = (given_call := to_call(call)).name, given_call.id, given_call.arguments
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
        """Run a call whose tool may be on a server that was not asked yet."""
        route: Route | ToolCallError
        seconds = self._policy.settings.call_timeout if call_options.timeout is INHERIT else call_options.timeout
        try:
            async with asyncio.timeout(seconds):
                route = (await self._refresh_for_identity(call_options.context))._get_route_or_error(call.name)  # noqa: SLF001 - one of ourselves
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
        """Run the calls of one turn; one result for each, in call order, whatever fails.

        `timeout` is for the whole batch. `results`, where given, is filled also when the batch is cancelled:
        what was done keeps its result, the rest is `ToolCancelled`.
        """
        tool_calls = [to_call(call) for call in calls]
        max_parallel = get_max_parallel(strategy, self._policy.max_concurrency)
        call_context, seconds, box = make_context(context), check_timeout(timeout), self
        routes = [self._get_route_or_error(call.name) for call in tool_calls]
        if self._remotes and any(isinstance(route, UnknownTool) for route in routes):
            box = self._for_identity(call_context)
            # What cannot be had in time is refused call by call: the others must not wait for it, or fail with it.
            with contextlib.suppress(TimeoutError, ToolCallError):
                async with asyncio.timeout(self._policy.settings.call_timeout if timeout is None else timeout):
                    await box._remotes.prepare(revalidate=True)  # noqa: SLF001 - one of ourselves
            routes = [box._get_route_or_error(call.name) for call in tool_calls]  # noqa: SLF001 - one of ourselves
        # What was there when the batch began stays there for it, whoever clears the lists meanwhile.
        routes_by_name = {call.name: route for call, route in zip(tool_calls, routes, strict=True)}

        async def run_one(call: ToolCall, deadline: float | None) -> ToolResult:
            route = box._get_route_or_error(call.name)  # noqa: SLF001 - one of ourselves
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
        """Put a hook around every call: `async def middleware(call, next) -> ToolResult`; the first is outermost."""
        if not callable(middleware):
            raise DefinitionError(f"{middleware!r} is not a hook. Give an async function of a call and what follows.")
        self._shared.middleware.append(middleware)

    def cancel(self) -> None:
        """Call off the calls of this run, from any thread; each gets a result. See `run()`."""
        if self._run_state is not None:
            self._run_state.cancel()

    async def prompt(
        self, name: str, arguments: Arguments = None, *, context: ContextLike = None
    ) -> builtins.list[Message]:
        """Return the messages of a prompt.

        Raises:
            KeyError: there is no such prompt; names those there are.
            InvalidArguments: the arguments do not fit.
        """
        found, box = self._catalog.prompts.get(name), self
        if found is None and self._remotes:
            box = await self._refresh_for_identity(make_context(context))
            found = next((prompt for prompt in box.prompts if prompt.name == name), None)
        if found is None:
            prompt_names = ", ".join(prompt.name for prompt in box.prompts) or "none"
            raise KeyError(f"No prompt named {name!r}. There are: {prompt_names}.")
        return await found.render(arguments, self._policy.context.merge(make_context(context)))

    prompt_sync = blocking(prompt)


def _keep_unchanged(tool: Tool) -> Tool | None:
    return tool


def _compose(first: ToolTransform, second: ToolTransform) -> ToolTransform:
    def composed(tool: Tool) -> Tool | None:
        visible = first(tool)
        return None if visible is None else second(visible)

    return composed
