"""Ask the model for a turn, within the time of the run, and count what it used in shared budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial

from toolmason._core.run.metrics import METER, METERS
from toolmason._core.run.tracing import LOADED_MODULES, PROVIDER, TRACE_API
from toolmason._core.toolbox.exchange import Finished, ModelReply, ModelRequest
from toolmason._core.values.results import ToolCall
from toolmason.chat.run.plan import RunPlan
from toolmason.chat.run.spending import find_cost
from toolmason.chat.run_spans import trace_turn
from toolmason.errors import ModelError


def call_model(plan: RunPlan, request: ModelRequest, *, in_span: bool = False) -> Awaitable[ModelReply]:
    """Ask the model for one turn, in a span if the program traces."""
    if (
        not in_span
        and TRACE_API in LOADED_MODULES
        and (getattr(LOADED_MODULES[TRACE_API], PROVIDER, None) or getattr(LOADED_MODULES.get(METERS), METER, None))
    ):
        work = partial(call_model, plan, request, in_span=True)
        return trace_turn(plan.model, plan.box, request, plan.spending.prices, work)
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
        async for event in plan.model.stream(request):
            if isinstance(event, Finished):
                reply = event.reply
                continue
            plan.emit(event)
            if plan.answer is not None and (progress := plan.answer.read_event(event)) is not None:
                plan.emit(progress)
    if reply is None:
        raise ModelError(plan.model.name, "its stream ended without `Finished`. End each stream with it")
    return reply


def assign_call_ids(reply: ModelReply, call_ids: set[str]) -> ModelReply:
    """Give each call a unique ID and a name: providers reject conversations without them."""
    message = reply.message
    calls: list[ToolCall] = []
    is_changed = False
    for call in message.calls:
        base_id = call.id or "call"
        call_id = base_id
        number = 1
        while call_id in call_ids:
            number += 1
            call_id = f"{base_id}_{number}"
        call_ids.add(call_id)
        if call_id != call.id or not call.name:
            is_changed = True
            call = replace(call, id=call_id, name=call.name or "unknown")  # noqa: PLW2901 - the same call
        calls.append(call)
    if not is_changed:
        return reply
    return replace(reply, message=replace(message, calls=tuple(calls)))
