"""A call with policy on it: limits, approval, turns, the run it belongs to. The long way beside `dispatch`.

hooks → bind → limits → approval → turn → run → render → record. A tool without any of these takes the short way;
both use the same steps, so the outcomes are the same. Not here: what each policy means (`approve`, `limits`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic, perf_counter
from typing import Any

from pydantic_core import from_json, to_json, to_jsonable_python

from toolmason._core.arguments.bind import as_read
from toolmason._core.call.approval import (
    ROUNDS,
    Allow,
    ApprovalRequest,
    Decision,
    Deny,
    Verdict,
    ask_for,
    identity_of,
    needs_approval,
    preview_of,
    rule_asks,
)
from toolmason._core.call.failures import shown
from toolmason._core.call.held_slots import Held, Refused
from toolmason._core.call.limits import Meter, RunState, fingerprint, json_like
from toolmason._core.call.pipeline import CLOCK_SLACK, Ask, Perform, all_read, attempts, failed, reporter_for, unbound
from toolmason._core.call.render import Unread
from toolmason._core.call.route import Route, capped
from toolmason._core.call.shared_state import Middleware, Next, Office
from toolmason._core.define.context import CallState, ToolContext
from toolmason._core.run import eager_task
from toolmason._core.run.execute import DeadlinePassed, within
from toolmason._core.values.content import Text
from toolmason._core.values.definition import canonical
from toolmason._core.values.policy import INHERIT
from toolmason._core.values.results import Arguments, ToolCall, ToolResult, result_of
from toolmason.errors import ApprovalDenied, ApprovalRequired, ToolCallError, ToolCancelled, ToolTimeout


class _Answered(Exception):
    """The call needs no run: here is its answer."""

    def __init__(self, result: ToolResult) -> None:
        super().__init__()
        self.result = result


@dataclass(slots=True, eq=False, repr=False)
class Governed:
    """One call on the long way: its route, the office, the run it belongs to, what it says for itself."""

    route: Route
    office: Office
    run: RunState | None
    ask: Ask
    decision: Decision | None = None

    @property
    def key(self) -> int:
        """What tells this tool from others, under whatever name it is called."""
        return id(self.route.tool.root)

    def perform(self, call: ToolCall) -> Coroutine[Any, Any, ToolResult]:
        """Run a call through every step, hooks outermost."""
        # To ask a text whether it is a mapping takes longer than all the rest here.
        if type(call.arguments) is not str and isinstance(call.arguments, Mapping):
            call = replace(call, arguments=_copied(call.arguments))
        hooks = self.office.middleware
        if not hooks:
            return self._last(call)
        return self._hooked(call, 0) if self.ask.ends is None else self._punctual(call)

    def _last(self, call: ToolCall) -> Coroutine[Any, Any, ToolResult]:
        perform = self.route.perform
        if perform is None or self.decision is not None:
            return self.steps(call)
        return perform(call.id, call.arguments, self.ask)

    async def _punctual(self, call: ToolCall) -> ToolResult:
        """Run the hooks within the deadline: the steps keep to it by themselves, a hook may not."""
        name, grace = self.route.patience
        left = max(0.0, (self.ask.ends or 0.0) - monotonic()) + grace + CLOCK_SLACK
        try:
            result: ToolResult = await within(self._hooked(call, 0), left, name, grace)
        except DeadlinePassed:
            error = ToolTimeout(name, self.ask.span, limit=self.ask.limit)
            return ToolResult(call.id, name, attempts=0, **shown(error, self.route.on_error))
        return result

    def _hooked(self, call: ToolCall, index: int) -> Coroutine[Any, Any, ToolResult]:
        """Run a call through the hook of this index, and all that are inside of it."""
        hooks = self.office.middleware
        following = self._last if index + 1 == len(hooks) else partial(self._hooked, index=index + 1)
        return _around(hooks[index], following, call, self.route, self.ask)

    async def steps(self, call: ToolCall) -> ToolResult:
        started, state = perf_counter(), CallState(call, report=reporter_for(self.ask, call.id, self.route))
        repairs: Any = ()
        try:
            values, repairs = self.route.bind(call.arguments)
        except BaseException as error:  # noqa: BLE001 - a validator of the user's own may raise anything
            return self._result(call, unbound(self.route, error, self.ask), started, replace(state, attempt=0))
        try:
            call, values = await self._admitted(call, values)
        except _Answered as answered:
            return answered.result
        except BaseException as error:  # noqa: BLE001 - rules, approvers and validators are foreign code
            own = isinstance(error, ToolCallError)
            fields = shown(error, self.route.on_error) if own else failed(self.route, error, self.ask)  # type: ignore[arg-type]
            return self._result(call, fields, started, replace(state, attempt=0))
        try:
            fields = await self._in_turn(replace_call(state, call), call, values)
        except Refused as refused:
            fields = shown(refused.error, self.route.on_error)
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything, and a result must come of it
            fields = failed(self.route, error, self.ask)
        if repairs:
            fields["repairs"] = repairs
        return self._recorded(call, self._result(call, fields, started, state))

    def _result(self, call: ToolCall, fields: dict[str, Any], started: float, state: CallState) -> ToolResult:
        if state.report is not None:
            state.report.close()
        made = {"call_id": call.id, "name": self.route.name, "attempts": state.attempt}
        return result_of({**fields, **made, "duration": perf_counter() - started})

    # --- limits and approval ---------------------------------------------------------------

    async def _admitted(self, call: ToolCall, values: dict[str, Any]) -> tuple[ToolCall, dict[str, Any]]:
        """Let a call pass the limits and the gate, or refuse it."""
        name, options = self.route.name, self.route.tool.options
        if self.run is not None and self.run.cancelled:
            raise ToolCancelled(name)
        if self.decision is None:
            if self.run is not None:
                self._look_for_repeats(call, self.run)
                self.run.count(name, options.max_calls, self.key)
            elif options.max_calls is not None:
                self.office.counts.count(name, options.max_calls, self.key)
            if options.rate is not None:
                self.office.meters.setdefault(self.key, Meter(options.rate)).count(name)
        return await self._approved(call, values)

    async def _approved(self, call: ToolCall, values: dict[str, Any]) -> tuple[ToolCall, dict[str, Any]]:
        tool = self.route.tool
        rule = self.office.rule_in(self.run)
        if self.decision is None and tool.options.approval is False and not rule_asks(rule, tool.options):
            return call, values
        context = self.route.policy.context.merged(self.ask.context).for_call(CallState(call))
        arguments = seen_arguments(self.route, call.arguments)
        for _ in range(ROUNDS):
            # A decision that was handed in is looked at in any case: a no stays a no, a forgery is found out.
            if self.decision is None and not await needs_approval(tool, rule, arguments, context):
                return call, values
            verdict, signed = await self._verdict(call, arguments, context)
            if isinstance(verdict, Allow):
                return call, values
            if isinstance(verdict, Deny):
                raise ApprovalDenied(self.route.name, verdict.reason)
            edited = dict(verdict.arguments)
            same = canonical(json_like(edited)) == canonical(json_like(arguments))
            values, _ = self.route.bind(edited)
            call, arguments = replace(call, arguments=edited), seen_arguments(self.route, edited)
            if signed or same:
                return call, values
        raise ApprovalDenied(self.route.name, f"its arguments were edited {ROUNDS} times and still need approval")

    async def _verdict(
        self, call: ToolCall, arguments: dict[str, Any], context: ToolContext[Any]
    ) -> tuple[Verdict, bool]:
        tool, identity = self.route.tool, identity_of(context)
        if self.decision is not None:
            return self.office.notary.redeem(self.decision, tool, json_like(arguments), identity), True
        wait = self.office.settings.approval_seconds
        request = ApprovalRequest(
            id=os.urandom(12).hex(),
            call_id=call.id,
            tool=self.route.name,
            digest=tool.definition.digest,
            arguments=json_like(arguments),
            preview=await preview_of(tool, arguments, context),
            effects=tuple(
                n for n in ("read_only", "destructive", "idempotent", "open_world") if getattr(tool.options, n)
            ),
            identity=identity,
            expires=None if wait is None else time.time() + wait,
        )
        sealed = self.office.notary.sealed(request)
        if self.office.approver is None:
            raise ApprovalRequired(self.route.name, sealed)
        left = None if self.ask.ends is None else max(0.0, self.ask.ends - monotonic())
        try:
            async with asyncio.timeout(left):
                return await ask_for(self.office.approver, sealed), False
        except TimeoutError:
            raise ToolTimeout(self.route.name, self.ask.span, limit=self.ask.limit) from None

    # --- running in turn -------------------------------------------------------------------

    async def _in_turn(self, state: CallState, call: ToolCall, values: dict[str, Any]) -> dict[str, Any]:
        route, ask = self.route, self._ask_within_run()
        seconds = route.timeout if ask.timeout is INHERIT else capped(ask.timeout, self.office.settings)
        started = monotonic()
        async with Held(route, self.office, values, ask, seconds):
            if self.run is not None and self.run.cancelled:
                raise Refused(ToolCancelled(route.name))
            # Waiting for a turn, telling the listener and running share one time-out.
            if route.tool.listener is not None:
                await self._told(call, values, ask, seconds, started)
            work = attempts(route, values, replace(ask, timeout=_left(seconds, started)), state)
            try:
                value, complete = await self._cancellable(work)
            except DeadlinePassed:
                raise Refused(self._timed_out(ask, seconds)) from None
        try:
            rendered = route.render(value, complete)
        except Unread:
            rendered = route.render(await all_read(route, value, ask), complete)
        fields = route.shorten(rendered)
        return {**fields, "return_direct": True} if route.return_direct else fields

    def _timed_out(self, ask: Ask, seconds: float | None) -> ToolTimeout:
        again = self.route.tool.options.repeatable
        if ask.ends is not None and monotonic() >= ask.ends - CLOCK_SLACK:
            return ToolTimeout(self.route.name, ask.span, limit=ask.limit, retryable=again)
        return ToolTimeout(self.route.name, seconds or 0.0, retryable=again)

    def _ask_within_run(self) -> Ask:
        left = None if self.run is None else self.run.left()
        if left is None or self.run is None:
            return self.ask
        if left <= 0:
            raise Refused(ToolTimeout(self.route.name, self.run.limits.seconds or 0.0, limit="run timeout"))
        ends = monotonic() + left
        if self.ask.ends is not None and self.ask.ends <= ends:
            return self.ask
        return replace(self.ask, ends=ends, span=self.run.limits.seconds or 0.0, limit="run timeout")

    async def _told(
        self, call: ToolCall, values: dict[str, Any], ask: Ask, seconds: float | None, started: float
    ) -> None:
        telling = asyncio.timeout(_left(seconds, started))
        try:
            async with telling:
                await self.route.tool.listener.tell(values, call)
        except TimeoutError:
            if telling.expired():
                raise Refused(self._timed_out(ask, seconds)) from None
            raise

    async def _cancellable(self, work: Any) -> Any:
        """Run work that `run.cancel()` can stop."""
        if self.run is None:
            return await work
        loop = asyncio.get_running_loop()
        task, value, error = eager_task.start(work, loop)
        if task is not None:
            with self.run.running(loop, task):
                try:
                    await eager_task.end_of(task)
                except asyncio.CancelledError:
                    task.cancel()
                    await asyncio.wait((task,))
                    raise
            value, error = task.result()
        if isinstance(error, asyncio.CancelledError) and self.run.cancelled:
            raise Refused(ToolCancelled(self.route.name))
        if error is not None:
            raise error
        return value

    # --- repeats ---------------------------------------------------------------------------

    def _look_for_repeats(self, call: ToolCall, run: RunState) -> None:
        if self.route.tool.options.repeats == "allow":
            return
        key = fingerprint(self.route.name, plain_arguments(call))
        again = run.repeated(key, self.route.name)
        if again is not None:
            note = "This call was made before with the same arguments and gave this same result. Do not make it again."
            raise _Answered(_noted(again, call.id, note))

    def _recorded(self, call: ToolCall, result: ToolResult) -> ToolResult:
        # A task of a server that is not done yet is asked for by the same call.
        waits = getattr(result.error, "phase", "") == "task"
        if self.run is None or waits or self.route.tool.options.repeats == "allow":
            return result
        times = self.run.remember(fingerprint(self.route.name, plain_arguments(call)), result)
        if times == 2:  # noqa: PLR2004 - the second time
            return _noted(result, call.id, "This is the second time that this call gave this result.")
        return result


def governed(
    route: Route, office: Office, run: RunState | None, ask: Ask, call: ToolCall
) -> Coroutine[Any, Any, ToolResult]:
    """Run a call of a tool that has policy on it, or hooks around it."""
    hooks, perform = office.middleware, route.perform
    if len(hooks) != 1 or perform is None or ask.ends is not None or type(call.arguments) is not str:
        return Governed(route, office, run, ask).perform(call)
    # One hook around the short way is what most have: it needs nothing to be kept.
    return _around(hooks[0], lambda given: perform(given.id, given.arguments, ask), call, route, ask)


async def _around(hook: Middleware, following: Next, call: ToolCall, route: Route, ask: Ask) -> ToolResult:
    """Run a call through a hook; whatever that does, a result comes of it."""
    try:
        result: Any = await hook(call, following)
    except BaseException as error:
        if route.on_error == "raise" and isinstance(error, ToolCallError):
            raise  # what the call itself was told to raise, and what a hook may raise as well
        fields = failed(route, error, ask)
    else:
        if type(result) is ToolResult:
            return result if result.call_id == call.id else result_of({**vars(result), "call_id": call.id})
        wrong = TypeError(f"a middleware returned {type(result).__name__}, not a ToolResult")
        fields = failed(route, wrong, ask)
    return ToolResult(call.id, route.name, **fields)


def long_way(route: Route, office: Office) -> Perform:
    """Return what runs the calls of a tool on the long way, hooks aside and outside of any run."""

    async def perform(call_id: str, raw: Arguments, ask: Ask) -> ToolResult:
        own = _copied(raw) if isinstance(raw, Mapping) else raw
        return await Governed(route, office, None, ask).steps(ToolCall(call_id, route.name, own))

    return perform


def _left(seconds: float | None, started: float) -> float | None:
    return None if seconds is None else max(0.001, seconds - (monotonic() - started))


def replace_call(state: CallState, call: ToolCall) -> CallState:
    """Give a state the call as it was admitted, and return it."""
    state.call = call
    return state


def plain_arguments(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments as a mapping, as they came."""
    raw = call.arguments
    if isinstance(raw, bytes | bytearray | memoryview):
        raw = str(raw, "utf-8")
    if isinstance(raw, str):
        return dict(from_json(raw)) if raw.strip() else {}
    return dict(raw or {})


def seen_arguments(route: Route, raw: Any) -> dict[str, Any]:
    """Return the arguments as whoever decides sees them: repairs made, defaults filled in."""
    inputs = route.tool.inputs
    parts = inputs.schema.get("properties", {}).items()
    defaults = {name: part["default"] for name, part in parts if isinstance(part, dict) and "default" in part}
    return {**defaults, **as_read(inputs, raw, route.name), **_as_bound(route, raw)}


def _as_bound(route: Route, raw: Any) -> dict[str, Any]:
    """Return the arguments as the tool gets them, inside too: what a model adds there and nobody reads is not shown.

    Only where the same values come of it again; what JSON cannot carry is shown as it came.
    """
    labels = {parameter.name: parameter.label for parameter in getattr(route.tool.root, "parameters", ())}
    try:
        values, _ = route.bind(raw)
        shown = {labels[name]: to_jsonable_python(value, by_alias=True) for name, value in values.items()}
        again, _ = route.bind(to_json(shown).decode())
    except Exception:  # noqa: BLE001 - values of a user's own types may do anything here
        return {}
    return shown if again == values else {}


def _copied(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments that nobody else can change: what was approved is what runs, in every attempt."""
    try:
        return deepcopy(dict(arguments))
    except Exception:  # noqa: BLE001 - an object that cannot be copied is shared, as Python would
        return dict(arguments)


def _noted(result: ToolResult, call_id: str, note: str) -> ToolResult:
    fields = {**vars(result), "call_id": call_id, "structured": result.structured}
    fields["content"] = (*result.content, Text(f"[{note}]"))
    fields["text"] = f"{result.text}\n[{note}]"
    return result_of(fields)
