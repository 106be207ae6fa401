"""Run calls with simple limits on the fast path if their slots are free.

Calls that need more (a wait, approval, a lock, a retry, a run) go to the full pipeline before anything is counted.
"""

from __future__ import annotations

from dataclasses import replace

from toolmason._core.arguments.bind import Bound
from toolmason._core.call.approval import rule_requires_approval
from toolmason._core.call.held_slots import get_held, reset_held, set_held
from toolmason._core.call.limits import RateLimiter, make_max_calls_error
from toolmason._core.call.pipeline import CallOptions, CallRunner, make_runner
from toolmason._core.call.route import Route
from toolmason._core.call.shared_state import SharedCallState
from toolmason._core.run.slots import Semaphore
from toolmason._core.values.policy import INHERIT
from toolmason._core.values.results import Arguments, ToolResult


def make_limited_runner(route: Route, shared: SharedCallState, full_runner: CallRunner) -> CallRunner | None:
    """Return a runner for a tool with limits, outside of a run, or None if the tool needs the full pipeline."""
    tool, options = route.tool, route.tool.options
    needs_approval = options.approval is not False or rule_requires_approval(shared.get_rule(None), options)
    if needs_approval or options.lock is not None or tool.on_arguments is not None:
        return None
    if route.plain_function is None or route.runs_on == "process" or route.retry is not None:
        return None
    inner = make_runner(_with_counting(route, shared))
    semaphores = _get_semaphores(route, shared)
    own_semaphores = frozenset(semaphores)

    async def run_limited(call_id: str, arguments: Arguments, call_options: CallOptions) -> ToolResult:
        already_held = get_held()
        needed = semaphores
        if already_held:
            # A nested call inherits its caller's slots; waiting for them would deadlock.
            needed = tuple(semaphore for semaphore in semaphores if semaphore not in already_held)
        if call_options.batch_deadline is not None or call_options.retry is not INHERIT or not _try_acquire_all(needed):
            return await full_runner(call_id, arguments, call_options)
        token = set_held(already_held | own_semaphores if already_held else own_semaphores)
        try:
            return await inner(call_id, arguments, call_options)
        finally:
            reset_held(token)
            for slot in needed:
                slot.release()

    if len(semaphores) != 1:
        return run_limited if semaphores else inner
    try_acquire, release = semaphores[0].try_acquire, semaphores[0].release

    async def run_with_one_semaphore(call_id: str, arguments: Arguments, call_options: CallOptions) -> ToolResult:
        # Fast path for the common case: one limit with a free slot.
        if (
            get_held()
            or call_options.batch_deadline is not None
            or call_options.retry is not INHERIT
            or not try_acquire()
        ):
            return await run_limited(call_id, arguments, call_options)
        token = set_held(own_semaphores)
        try:
            return await inner(call_id, arguments, call_options)
        finally:
            reset_held(token)
            release()

    return run_with_one_semaphore


def _try_acquire_all(semaphores: tuple[Semaphore, ...]) -> bool:
    """Acquire all of these slots, or none."""
    for semaphore in semaphores:
        if not semaphore.try_acquire():
            for acquired in semaphores[: semaphores.index(semaphore)]:
                acquired.release()
            return False
    return True


def _get_semaphores(route: Route, shared: SharedCallState) -> tuple[Semaphore, ...]:
    tool_limit = route.tool.options.max_concurrency
    semaphores: list[Semaphore] = []
    if tool_limit is not None:
        semaphores.append(shared.get_semaphore(id(route.tool.root), tool_limit))
    if shared.max_concurrency is not None:
        semaphores.append(shared.get_semaphore(0, shared.max_concurrency))
    return tuple(semaphores)


def _with_counting(route: Route, shared: SharedCallState) -> Route:
    """Return a route that counts each call with valid arguments."""
    name, bind = route.name, route.bind
    tool_key = id(route.tool.root)
    max_calls, rate = route.tool.options.max_calls, route.tool.options.rate
    counter = shared.counters.get_counter(tool_key)
    rate_limiter = None if rate is None else shared.rate_limiters.setdefault(tool_key, RateLimiter(rate))
    if max_calls is None and rate_limiter is None:
        return route

    def bind_and_count(arguments: Arguments) -> Bound:
        bound = bind(arguments)
        if max_calls is not None and next(counter) >= max_calls:
            raise make_max_calls_error(name, max_calls)
        if rate_limiter is not None:
            rate_limiter.count(name)
        return bound

    return replace(route, bind=bind_and_count)
