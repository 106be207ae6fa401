"""Ask the model for a turn, within the time of the run, and count what it used in shared budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import Any, Final, TypeAlias

from toolmason._core.run.metrics import METER, METERS
from toolmason._core.run.tracing import LOADED_MODULES, PROVIDER, TRACE_API
from toolmason._core.toolbox.exchange import (
    ArgumentsDelta,
    CallClosed,
    CallOpened,
    Finished,
    ModelReply,
    ModelRequest,
    TextDelta,
    ThoughtDelta,
    check_tool_choice,
)
from toolmason._core.values.results import ToolCall
from toolmason.chat.run.plan import RunPlan
from toolmason.chat.run.spending import find_cost
from toolmason.chat.run_spans import trace_turn
from toolmason.errors import ModelError
from toolmason.providers.content_parts import read_arguments

_ARGUMENT_TYPES: Final = (str, dict, NoneType, bytes, Mapping)
_Fragment: TypeAlias = TextDelta | ThoughtDelta | CallOpened | ArgumentsDelta | CallClosed


def call_model(plan: RunPlan, request: ModelRequest, *, in_span: bool = False) -> Awaitable[ModelReply]:
    """Ask the model for one turn, in a span if the program traces. Every model needs a possible `tool_choice`."""
    if (
        not in_span
        and TRACE_API in LOADED_MODULES
        and (getattr(LOADED_MODULES[TRACE_API], PROVIDER, None) or getattr(LOADED_MODULES.get(METERS), METER, None))
    ):
        work = partial(call_model, plan, request, in_span=True)
        return trace_turn(plan.model, plan.box, request, plan.spending.prices, work)
    if request.tool_choice is not None:
        check_tool_choice(request)
    if plan.budgets:
        return _call_on_budget(plan, request)
    if plan.emit is None and plan.limits.seconds is None:
        return plan.model.respond(request)
    # In a task of its own: each event of a stream would otherwise pass through every layer above.
    return asyncio.ensure_future(_call_in_time(plan, request))


async def _call_on_budget(plan: RunPlan, request: ModelRequest) -> ModelReply:
    """Ask the model, and count the request in the shared budgets. A turn from the journal is not counted again."""
    reply = await asyncio.ensure_future(_call_in_time(plan, request))
    prices = plan.spending.prices
    cost = None if prices is None else find_cost(prices, reply, plan.model.name, [])
    for budget in plan.budgets:
        await budget.add(reply.usage, cost)
    return reply


async def _call_in_time(plan: RunPlan, request: ModelRequest) -> ModelReply:
    async with asyncio.timeout(plan.get_remaining_seconds()):
        if plan.emit is None:
            return await plan.model.respond(request)
        reply: ModelReply | None = None
        streamed_ids = CallIds(set(plan.call_ids))
        async for event in plan.model.stream(request):
            if isinstance(event, Finished):
                reply = event.reply
                continue
            event = streamed_ids.rename(event)  # noqa: PLW2901 - the same event
            plan.emit(event)
            if plan.answer is not None and (progress := plan.answer.read_event(event)) is not None:
                plan.emit(progress)
    if reply is None:
        raise ModelError(plan.model.name, "its stream ended without `Finished`. End each stream with it")
    return reply


class CallIds:
    """Gives the calls of a turn unique IDs: the same ones in the stream and in the reply."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._latest: dict[str, str] = {}
        """Unique ID of the latest call, by the ID that the model gave."""
        self._numbers: dict[str, int] = {}
        """Number in the last unique ID, by the ID that the model gave."""

    def add(self, given_id: str) -> str:
        """Return a unique ID for the next call."""
        base_id = call_id = given_id or "call"
        number = self._numbers.get(base_id, 1)
        while call_id in self._taken:
            number += 1
            call_id = f"{base_id}_{number}"
        self._numbers[base_id] = number
        self._taken.add(call_id)
        self._latest[given_id] = call_id
        return call_id

    def rename(self, event: _Fragment) -> _Fragment:
        """Return an event of the stream with the unique ID of its call."""
        if isinstance(event, CallOpened | ArgumentsDelta):
            call_id = self.add(event.id) if isinstance(event, CallOpened) else self._latest.get(event.id, event.id)
            return event if call_id == event.id else replace(event, id=call_id)
        if isinstance(event, CallClosed) and (call_id := self._latest.get(event.call.id, "")) != event.call.id:
            return replace(event, call=replace(event.call, id=call_id or event.call.id))
        return event


def assign_call_ids(reply: ModelReply, call_ids: set[str]) -> ModelReply:
    """Give each call a unique ID and a name, without which providers reject conversations, and usual arguments."""
    message, ids = reply.message, CallIds(call_ids)
    calls: list[ToolCall] = []
    for call in message.calls:
        call_id = ids.add(call.id)
        sent: Any = call.raw
        raw = sent if isinstance(sent, _ARGUMENT_TYPES) else read_arguments(sent)
        is_right = call_id == call.id and call.name and raw is sent
        calls.append(call if is_right else replace(call, id=call_id, name=call.name or "unknown", raw=raw))
    if tuple(calls) == message.calls:
        return reply
    return replace(reply, message=replace(message, calls=tuple(calls)))
