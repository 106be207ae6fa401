"""Run the calls of a toolbox, one or a batch, whether their tools are known or not."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Coroutine, Iterable
from logging import DEBUG
from typing import Any, cast

from toolmason._core.call.batch import Batch, is_barrier
from toolmason._core.call.call_policy import combine_timeouts, run_in_time
from toolmason._core.call.deadlines import Deadline, get_earlier
from toolmason._core.call.failures import is_being_cancelled, make_error_result, make_failed_result
from toolmason._core.call.pipeline import run_with_middleware
from toolmason._core.call.route import CallOptions, Route
from toolmason._core.run.call_log import CALL_LOG, log_call, log_failure
from toolmason._core.run.execute import NEVER_CANCELLED, DeadlinePassed, await_with_timeout
from toolmason._core.run.tracing import LOADED_MODULES, TRACE_API, is_observed, trace_call, trace_refused
from toolmason._core.toolbox.lookup import ToolLookup
from toolmason._core.toolbox.state import ToolboxState
from toolmason._core.values.policy import INHERIT, Inherit, OnError, TraceOptions
from toolmason._core.values.results import ToolCall, ToolResult, replace_result
from toolmason.errors import ExecutionError, ToolCallError, ToolCancelled, ToolTimeout, UnknownTool


class Calls:
    """Runs the calls of a toolbox."""

    def __init__(self, state: ToolboxState, lookup: ToolLookup) -> None:
        self.state, self.lookup = state, lookup

    async def run_unknown(self, call: ToolCall, options: CallOptions, error: ToolCallError) -> ToolResult:
        """Run a call whose tool is not listed. A resolver may make it, or a server may have it."""
        route = await self.find_unlisted(call.name, options, error)
        if isinstance(route, ToolCallError):
            return await self.refuse(call, route)
        return await self.run(route, call, options)

    async def find_unlisted(self, name: str, options: CallOptions, error: ToolCallError) -> Route | ToolCallError:
        """Return the route of a tool of a resolver or a server, within the time of the call and of its run."""
        if not isinstance(error, UnknownTool) or not (self.state.remotes or self.lookup.may_use_resolvers):
            return error
        policy, run = self.state.calls, options.run
        seconds = combine_timeouts((policy,), policy.settings).get_seconds(options.timeout)
        deadline = get_earlier(options.deadline, None if run is None else run.deadline)
        remaining = seconds
        if deadline is not None:
            remaining = deadline.remaining if seconds is None else min(seconds, deadline.remaining)
        cancellation = NEVER_CANCELLED if run is None else run.cancellation
        work = self.lookup.find_route(name, options.context)
        try:
            found: Route | ToolCallError = await await_with_timeout(
                work, remaining, name, policy.settings.cancel_grace, cancellation
            )
        except ToolCallError as unreachable:
            return unreachable
        except asyncio.CancelledError:
            if not cancellation.cancelled or is_being_cancelled():
                raise
            return ToolCancelled(name)
        except DeadlinePassed:
            if deadline is not None and deadline.is_over:
                return deadline.make_error(name)
            return ToolTimeout(name, seconds or 0.0, retryable=True, began=False)
        return found

    def run(self, route: Route, call: ToolCall, options: CallOptions) -> Coroutine[Any, Any, ToolResult]:
        """Run a call of a known tool through its middleware and steps, in a span if the program traces calls."""
        if route.opens_tickets and options.run is not None and options.run.open_ticket is not None:
            return options.run.open_ticket(self.run, route, call, options)
        if TRACE_API in LOADED_MODULES and is_observed():
            run = functools.partial(self._run, route, call, options)
            return trace_call(route.tool.definition, call, route.trace, run)
        return self._run(route, call, options)

    def _run(self, route: Route, call: ToolCall, options: CallOptions) -> Coroutine[Any, Any, ToolResult]:
        runner = route.runner if options.run is None else route.run_runner
        if options.decision is not None:
            runner = route.full_runner
        if route.hooks and any(route.middleware):
            named_call = call if call.name == route.name else dataclasses.replace(call, name=route.name)
            return run_with_middleware(route, runner, named_call, options)
        return runner(call.id, call.raw, options)

    async def refuse(self, call: ToolCall, error: ToolCallError) -> ToolResult:
        """Return the result of a call that has no tool. A run counts them by name, whatever the arguments."""
        if (run := self.state.run) is not None:
            error = run.rejected.reject(call.name, error)
        if isinstance(error, ExecutionError):
            log_failure(error, call.id, call.raw, self.state.calls.context)
        policy = self.state.calls
        on_error: OnError = "message" if isinstance(policy.on_error, Inherit) else policy.on_error
        try:
            failed = await run_in_time(call.name, (policy,), make_failed_result(error, on_error, policy.settings))
        except ToolTimeout:
            if not callable(on_error):
                raise
            failed = make_error_result(error, "redact")
        result = replace_result(failed, call_id=call.id, name=call.name, attempts=0)
        if CALL_LOG.isEnabledFor(DEBUG):
            log_call(result, call.raw, TraceOptions())  # without a schema, no argument is known to be harmless
        if is_observed():
            trace_refused(call, result)
        return result

    async def run_batch(self, batch: Batch, options: CallOptions) -> list[ToolResult]:
        """Run the calls of a batch with the same options. Return one result for each, in call order."""
        lookup = self.lookup
        # A tool that was listed when the batch began stays available to it, even if the lists are cleared.
        routes = {call.name: lookup.get_route(call.name) for call in batch.calls}
        may_find_more = bool(self.state.remotes) or lookup.may_use_resolvers
        if may_find_more and any(isinstance(route, UnknownTool) for route in routes.values()):
            lookup = ToolLookup(self.state.for_identity(options.context), {})
            routes = await self._find_routes(lookup, routes, batch.seconds)

        def run_one(call: ToolCall, deadline: Deadline | None) -> Coroutine[Any, Any, ToolResult]:
            route = lookup.get_route(call.name)
            route = routes[call.name] if isinstance(route, UnknownTool) else route
            if isinstance(route, ToolCallError):
                return self.refuse(call, route)
            return self.run(route, call, options.with_deadline(deadline))

        return await batch.run(run_one, [is_barrier(routes[call.name]) for call in batch.calls])

    async def _find_routes(
        self, lookup: ToolLookup, names: Iterable[str], batch_seconds: float | None
    ) -> dict[str, Route | ToolCallError]:
        """Return the routes of a batch, with fresh lists of the servers and the tools of the resolvers."""
        policy = self.state.calls
        seconds = combine_timeouts((policy,), policy.settings).get_seconds(INHERIT)
        if batch_seconds is not None:
            seconds = batch_seconds if seconds is None else min(seconds, batch_seconds)
        routes: dict[str, Route | ToolCallError] = {}
        # Refuse calls of unavailable tools one by one: the others must not wait for them or fail with them.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                with contextlib.suppress(ToolCallError):
                    await lookup.state.remotes.prepare(revalidate=True)
                for name in names:
                    routes[name] = await lookup.resolve_route(name)
        return {name: routes.get(name) or lookup.get_route(name) for name in names}


def name_call(work: Coroutine[Any, Any, ToolResult]) -> Coroutine[Any, Any, ToolResult]:
    """Give the coroutine of a call the name that Python shows if it is not awaited. The runners of a route have it."""
    cast("Any", work).__qualname__ = "Toolbox.call"
    return work
