"""`Toolbox`: an ordered, checked set of tools, and the one place where calls run.

Lives here: the public face over `catalog` (which tools), `route` (how they are treated) and `dispatch` (running).
"""

from __future__ import annotations

import builtins
import dataclasses
import itertools
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Self

from typing_extensions import Unpack

from toolwright._core.approvals import Approvals, office_of, store_of
from toolwright._core.batch import Batch
from toolwright._core.catalog import Catalog, items_from
from toolwright._core.context import context_from
from toolwright._core.dispatch import NO_TIMEOUT, NOTHING_ASKED, Ask, performer_of
from toolwright._core.faces import PARALLEL, Calls, ContextLike, Faces, Messages, Results, Tools
from toolwright._core.govern import Governed, long_way
from toolwright._core.handles import READ_RESULT, reader_of, refuse_builtin_name
from toolwright._core.lanes import lane_of
from toolwright._core.limits import RunState
from toolwright._core.office import Middleware, is_governed
from toolwright._core.policy import INHERIT, Inherit, Retry, Sequential, Strategy, Timeout, checked
from toolwright._core.progress import OnProgress
from toolwright._core.prompts import Prompt
from toolwright._core.result import shown
from toolwright._core.route import BoxPolicy, BoxWords, Route, route_to
from toolwright._core.tool import Tool
from toolwright._core.values import Arguments, ToolCall, ToolResult, call_of
from toolwright._core.views import Views
from toolwright.errors import ExecutionError, ToolCallError, UnknownTool

_ids = itertools.count(1)


class Toolbox(Faces, Views, Approvals):
    """An ordered, checked set of tools from any number of sources; the one place where calls run."""

    def __init__(self, *sources: Any, **options: Unpack[BoxWords]) -> None:
        self._policy = policy = BoxPolicy.of(options)
        self._catalog = Catalog()
        self._routes: dict[str, Route] = {}
        self._office = office_of(policy)
        self._store = store_of(policy)
        self._run: RunState | None = None
        self._owns_store = True
        self._transform: Callable[[Tool], Tool] | None = None
        for source in sources:
            self.add(source)

    def _with(
        self,
        catalog: Catalog,
        *,
        closed: bool = False,
        run: RunState | None = None,
        transform: Callable[[Tool], Tool] | None = None,
    ) -> Self:
        twin = object.__new__(type(self))
        twin._transform, twin._owns_store = transform or self._transform, run is not None
        # A view that leaves tools out must not find them again through a resolver.
        twin._policy = dataclasses.replace(self._policy, resolvers=()) if closed else self._policy
        twin._catalog, twin._routes = catalog, {}
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
        grown = self._catalog.copy()
        for item in items_from(source, self._policy.naming, self._policy.resolvers):
            refuse_builtin_name(item)
            grown.add(item, replace_same=replace)
        self._catalog = grown
        self._routes.clear()

    def __tools__(self) -> Iterator[Tool | Prompt]:
        yield from self._catalog.tools.values()
        yield from self._catalog.prompts.values()

    @property
    def name(self) -> str | None:
        """What this toolbox is called, where it has a name."""
        return self._policy.name

    @property
    def tools(self) -> Tools:
        """The tools, sorted by name, so that the order is the same in every run.

        `read_result` is among them as soon as a result was cut.
        """
        if not len(self._store) or READ_RESULT in self._catalog.tools:
            return builtins.list(self._catalog)
        return sorted([*self._catalog, reader_of(self._store)], key=lambda tool: tool.name)

    @property
    def prompts(self) -> builtins.list[Prompt]:
        """The prompts, sorted by name."""
        return sorted(self._catalog.prompts.values(), key=lambda prompt: prompt.name)

    def __getitem__(self, name: str) -> Tool:
        found = self._catalog.find(name)
        if found is None:
            raise KeyError(str(UnknownTool(name, sorted(self._catalog.tools))))
        return found

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        return self._catalog.find(name) is not None or (name == READ_RESULT and len(self._store) > 0)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._catalog)

    def __len__(self) -> int:
        return len(self._catalog.tools)

    def __repr__(self) -> str:
        return f"<Toolbox {self.name or ''}[{', '.join(tool.name for tool in self)}]>"

    async def list(self) -> Tools:
        """Return the tools, sorted by name."""
        return self.tools

    async def resolve(self, name: str) -> Tool | None:
        """Return the tool that a call of this name would run, or `None`."""
        route = self._route(name)
        return None if route is None else route.tool

    def _route(self, name: str) -> Route | None:
        if (known := self._routes.get(name)) is not None:
            return known
        tool = self._catalog.find(name) or (reader_of(self._store) if name == READ_RESULT else None)
        if tool is None:
            found = (resolver.resolve(name) for resolver in self._policy.resolvers)
            tool = next((item for item in found if item is not None), None)
            if tool is not None and self._transform is not None:
                tool = self._transform(tool)
        if tool is None:
            return None
        route = route_to(tool, self._policy, self._store)
        if not is_governed(route, self._office, self._run):
            route = dataclasses.replace(route, perform=performer_of(route))
        elif self._run is None:
            route = dataclasses.replace(route, perform=lane_of(route, self._office, long_way(route, self._office)))
        self._routes[name] = route
        return route

    def _route_or_refusal(self, name: str) -> Route | ToolCallError:
        try:
            return self._route(name) or UnknownTool(name, sorted(self._catalog.tools))
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
            name, call_id = call, f"call_{next(_ids)}"
        else:
            name, call_id, arguments = call.name, call.id, call.arguments
        route = self._routes.get(name)
        if route is None:
            found = self._route_or_refusal(name)
            if isinstance(found, ToolCallError):
                return self._refused(call_id, name, found)
            route = found
        if context is None and on_progress is None and retry is INHERIT and (timeout is INHERIT or timeout is None):
            ask = NOTHING_ASKED if timeout is INHERIT else NO_TIMEOUT
        else:
            ask = Ask(context_from(context), checked(timeout), retry, on_progress=on_progress)
        perform = route.perform
        if perform is None or self._office.middleware:
            return Governed(route, self._office, self._run, ask).perform(call_of(call_id, route.name, arguments))
        return perform(call_id, arguments, ask)

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
        wanted = [_as_call(call) for call in calls]
        width = _width(strategy, self._policy.max_concurrency)

        routes = [self._route_or_refusal(call.name) for call in wanted]

        known, seconds = context_from(context), checked(timeout)

        async def run_one(call: ToolCall, ends: float | None) -> ToolResult:
            route = self._route_or_refusal(call.name)
            if isinstance(route, ToolCallError):
                return await self._refused(call.id, call.name, route)
            ask = Ask(known, ends=ends, span=timeout or 0.0, on_progress=on_progress)
            if route.perform is None or self._office.middleware:
                return await Governed(route, self._office, self._run, ask).perform(
                    dataclasses.replace(call, name=route.name)
                )
            return await route.perform(call.id, call.arguments, ask)

        batch = Batch(wanted, results if results is not None else [], width, seconds)
        return await batch.run(run_one, [_is_barrier(route) for route in routes])

    def use(self, middleware: Middleware) -> None:
        """Put a hook around every call: `async def middleware(call, next) -> ToolResult`; the first is outermost."""
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
        found = self._catalog.prompts.get(name)
        if found is None:
            known = ", ".join(sorted(self._catalog.prompts)) or "none"
            raise KeyError(f"No prompt named {name!r}. There are: {known}.")
        return await found.render(arguments, self._policy.context.merged(context_from(context)))


def _is_barrier(route: Route | ToolCallError) -> bool:
    return isinstance(route, Route) and route.tool.options.alone


def _as_call(call: ToolCall | tuple[str, Arguments]) -> ToolCall:
    return call if isinstance(call, ToolCall) else ToolCall(f"call_{next(_ids)}", *call)


def _width(strategy: Strategy, most: int) -> int:
    if isinstance(strategy, Sequential):
        return 1
    return most if strategy.limit is None else min(strategy.limit, most)
