"""State of one call on its way through the pipeline: what was checked, what it holds, and the time it has left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable, Mapping
from contextvars import ContextVar, Token
from logging import DEBUG
from time import monotonic, perf_counter
from typing import Any

from toolmason._core.arguments.bind import Bound
from toolmason._core.call.deadlines import get_earlier
from toolmason._core.call.failures import FailedCall, Stop, make_failure
from toolmason._core.call.gates import copy_arguments, count_call, find_repeated_result, get_call_key, record_new_result
from toolmason._core.call.limits import fingerprint, make_caller_key
from toolmason._core.call.route import CallOptions, Route
from toolmason._core.run.call_log import CALL_LOG, log_call
from toolmason._core.run.execute import NEVER_CANCELLED, DeadlinePassed, await_with_timeout
from toolmason._core.run.metrics import measure
from toolmason._core.run.progress import Reporter
from toolmason._core.run.slots import KeyedLock, Semaphore
from toolmason._core.run.tracing import open_span
from toolmason._core.values.call_state import CallState
from toolmason._core.values.policy import INHERIT
from toolmason._core.values.results import Arguments, Repair, ToolCall, ToolResult, make_call
from toolmason.errors import InvalidArguments, LimitExceeded, ToolCancelled, ToolTimeout

_held: ContextVar[frozenset[Hashable]] = ContextVar("toolmason_held_slots", default=frozenset())


def _make_lock_key(value: Any) -> Hashable:
    """Return a key that is equal for equal arguments."""
    kind = type(value)
    return (kind, value) if kind is str or kind is int else fingerprint("lock", value)


class HeldSlots:
    """Slots and locks of one call, acquired in a fixed order. A nested call does not acquire what its caller holds."""

    __slots__ = ("_acquired", "_keys", "_token", "_wanted")

    def __init__(self, route: Route, values: Mapping[str, Any]) -> None:
        already_held = _held.get()
        self._wanted: list[Semaphore | KeyedLock] = []
        self._keys: list[Hashable] = []
        if (parameter := route.tool.options.lock) is not None:
            key = (route.limit_key, _make_lock_key(route.compiled.get_argument(parameter, values)))
            if key not in already_held:
                self._keys.append(key)
                self._wanted.append(KeyedLock(route.chain[0].state.locks, key))
        for semaphore in route.semaphores:
            if semaphore not in already_held:
                self._keys.append(semaphore)
                self._wanted.append(semaphore)
        self._acquired: list[Semaphore | KeyedLock] = []
        self._token: Token[frozenset[Hashable]] | None = None

    def try_acquire(self) -> bool:
        """Acquire the slots that are free, in order. Return False if one is missing."""
        for slot in self._wanted:
            if not slot.try_acquire():
                return False
            self._acquired.append(slot)
        self.mark_held()
        return True

    async def acquire_rest(self) -> None:
        """Wait for the slots that were not free."""
        for slot in self._wanted[len(self._acquired) :]:
            await slot.acquire()
            self._acquired.append(slot)

    def mark_held(self) -> None:
        """Let calls that the tool makes run in the same slots."""
        if self._keys:
            self._token = _held.set(_held.get().union(self._keys))

    def release(self) -> None:
        """Release every slot that was acquired."""
        if self._token is not None:
            _held.reset(self._token)
        for slot in reversed(self._acquired):
            slot.release()


class CurrentCall:
    """One call on its way through the pipeline."""

    __slots__ = (
        *("arguments", "attempts", "bound", "call_id", "cancellation", "deadline", "ends", "key", "options", "route"),
        *("remote_attempts", "repairs", "run", "seconds", "slots", "started", "state"),
    )
    bound: Bound | None
    ends: float | None
    key: Hashable
    slots: HeldSlots | None
    state: CallState | None

    def __init__(self, route: Route, call_id: str | None, arguments: Arguments, options: CallOptions) -> None:
        self.started = perf_counter()
        self.route, self.call_id, self.options = route, call_id, options
        self.run = run = options.run
        self.deadline = options.deadline
        self.cancellation = NEVER_CANCELLED
        if run is not None:
            self.cancellation = run.cancellation
            self.deadline = get_earlier(options.deadline, run.deadline)
        if type(arguments) is not str and isinstance(arguments, Mapping):
            arguments = copy_arguments(arguments)
        self.arguments = arguments
        self.seconds = route.timeout if options.timeout is INHERIT else route.timeouts.get_seconds(options.timeout)
        self.attempts = 0
        """Number of attempts; 0 until the tool runs."""
        self.remote_attempts = 0
        """Number of attempts that servers made besides these, in the attempts that failed."""
        self.repairs: tuple[Repair, ...] = ()
        self.bound = self.slots = self.state = self.key = self.ends = None

    # --- gates ---------------------------------------------------------------------------------

    def enter(self, *, detects_repeats: bool, is_counted: bool) -> ToolResult | None:  # noqa: C901 - one gate after another
        """Bind the arguments and count the call. Return the earlier result of a repeated call, or None.

        Raises:
            ToolCallError: the call must not run.
        """
        route, run = self.route, self.run
        is_new = self.options.decision is None
        if run is not None:
            if run.cancellation.cancelled:
                raise ToolCancelled(route.name)
            if self.deadline is not None and self.deadline.at <= monotonic():
                raise self.deadline.make_error(route.name)
        problem: BaseException | None = None
        try:
            self.bound = bound = route.bind(self.arguments)
            self.repairs = bound[1]
        except BaseException as error:  # noqa: BLE001 - a validator may raise anything; a repeated call is found first
            problem = error
        if run is not None and detects_repeats and is_new and not (run.is_program or self.options.is_repeated):
            key = get_call_key(route, self.arguments, self.bound, self.options.context)
            is_known = key in run.repeats
            repeated = find_repeated_result(run, key, route.name, self.make_call().id) if is_known else None
            if repeated is not None:
                return repeated
            if isinstance(problem, InvalidArguments):
                raise run.rejected.reject(key, problem)
            self.key = key
        if problem is not None:
            raise problem
        if is_new:
            if run is not None:
                run.count(route.name, route.tool.options.max_calls, route.limit_key)
            if is_counted:
                count_call(route, self.options.context, is_in_run=run is not None)
        return None

    async def count_rates(self) -> None:
        """Count the call in rates that processes share, by the name that the tool was defined with.

        Raises:
            LimitExceeded: a rate is exceeded.
        """
        for state, rate in self.route.rates:
            if state.rates is not None:
                caller = make_caller_key(rate, self.route.context.merge(self.options.context))
                await state.rates.count(self.route.root.name, rate, caller)

    def make_call(self) -> ToolCall:
        """Return the call, with the arguments as they were approved."""
        call = make_call(self.call_id, self.route.name, self.arguments)
        self.call_id = call.id
        return call

    def edit(self, arguments: Mapping[str, Any]) -> None:
        """Replace the arguments.

        Raises:
            InvalidArguments: they are invalid.
        """
        self.bound = bound = self.route.bind(arguments)
        self.repairs += bound[1]
        self.arguments = arguments

    # --- time ----------------------------------------------------------------------------------

    def start_timer(self) -> None:
        """Give the next attempt its full time. The waits before the first attempt share it."""
        self.ends = None if self.seconds is None else monotonic() + self.seconds

    def get_remaining(self) -> float | None:
        """Return the remaining seconds, or None if there is no limit."""
        if self.deadline is None:
            return None if self.ends is None else max(0.001, self.ends - monotonic())
        at = self.deadline.at if self.ends is None else min(self.ends, self.deadline.at)
        return max(0.001, at - monotonic())

    async def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Wait for something that the call needs, within its time."""
        route = self.route
        grace = route.settings.cancel_grace
        return await await_with_timeout(work, self.get_remaining(), route.name, grace, self.cancellation)

    async def acquire_slots(self, values: Mapping[str, Any]) -> None:
        """Acquire the slots and locks of the call.

        Raises:
            Stop: they did not become free in time.
        """
        self.slots = slots = HeldSlots(self.route, values)
        if slots.try_acquire():
            return
        tool = {"gen_ai.tool.name": self.route.name}
        measure("toolmason.queue.depth", 1, tool)
        try:
            with open_span(f"wait_for_slot {self.route.name}", tool):
                await self.wait(slots.acquire_rest())
        except DeadlinePassed:
            if self.deadline is not None and self.deadline.is_over:
                raise Stop(self.deadline.make_error(self.route.name, is_harmless=True)) from None
            name, seconds, limit = self.route.name, self.seconds or 0.0, "timeout, waiting for a slot"
            raise Stop(ToolTimeout(name, seconds, limit=limit, retryable=True, is_harmless=True)) from None
        finally:
            measure("toolmason.queue.depth", -1, tool)
        slots.mark_held()

    async def pause(self, seconds: float) -> None:
        """Wait between two attempts."""
        await await_with_timeout(asyncio.sleep(seconds), None, self.route.name, 0.0, self.cancellation)

    # --- the result ----------------------------------------------------------------------------

    def start_state(self) -> CallState:
        """Return the state that the attempts of the call share with its context."""
        call, options = self.make_call(), self.options
        report = None
        if options.on_progress is not None:
            queue_size = self.route.settings.progress_queue
            report = Reporter(options.on_progress, call.id, self.route.name, queue_size)
        self.state = CallState(call, report=report, run=self.run)
        return self.state

    async def fail(self, error: BaseException) -> ToolResult:
        """Return the result for a failure, without the fields of the call. Re-raise what must propagate."""
        if not self.attempts and isinstance(error, LimitExceeded) and error.retryable:
            self.key = None  # the call may succeed later
        failed = FailedCall(
            self.call_id,
            self.options,
            self.attempts > 0,
            self.seconds,
            self.deadline,
            self.arguments,
        )
        return await make_failure(self.route, error, failed)

    def finish(self, result: ToolResult) -> ToolResult:
        """Return the result with the fields of the call, and record it in the run."""
        fields = result.__dict__
        if self.repairs:
            fields["repairs"] = self.repairs
        state = self.state
        if state is not None:
            self.attempts = state.attempt
            if state.report is not None:
                state.report.close()
        if self.attempts and "attempts" in fields:
            # A server reported that it tried several times, or that it refused the call.
            self.attempts += fields["attempts"] - 1
        self.attempts += self.remote_attempts
        fields["attempts"] = self.attempts
        if self.call_id is not None:
            fields["call_id"] = self.call_id
        fields["name"] = self.route.name
        fields["duration"] = perf_counter() - self.started
        if CALL_LOG.isEnabledFor(DEBUG):
            log_call(result, self.arguments, self.route.trace)
        run, key = self.run, self.key
        if run is None or key is None:
            return result
        return record_new_result(run, key, result)
