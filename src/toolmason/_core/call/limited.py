"""A call under limits whose turn is free → its result, on the short way.

Lives here: counting and taking turns without waiting, around the short way. What needs more (a wait, an approval, a
lock, a retry, a run) is handed to the long way before anything was counted. Not here: the long way (`govern`).
"""

from __future__ import annotations

from dataclasses import replace

from toolmason._core.arguments.bind import Bound
from toolmason._core.call.approval import rule_asks
from toolmason._core.call.held_slots import held, hold, let_go
from toolmason._core.call.limits import Meter, used_up
from toolmason._core.call.pipeline import Ask, Perform, performer_of
from toolmason._core.call.route import Route
from toolmason._core.call.shared_state import Office
from toolmason._core.run.slots import Slots
from toolmason._core.values.policy import INHERIT
from toolmason._core.values.results import Arguments, ToolResult


def lane_of(route: Route, office: Office, long_way: Perform) -> Perform | None:
    """Return what runs the calls of a tool with limits, outside of any run; `None` where only the long way will do."""
    tool, options = route.tool, route.tool.options
    asked = options.approval is not False or rule_asks(office.rule_in(None), options)
    if asked or options.lock is not None or tool.listener is not None:
        return None
    if route.direct is None or route.where == "process" or route.retry is not None:
        return None
    inner, slots = performer_of(_counted(route, office)), _slots_of(route, office)
    alone = frozenset(slots)

    async def perform(call_id: str, raw: Arguments, ask: Ask) -> ToolResult:
        already = held()
        # A tool that calls another holds its turn already; waiting for it would be for ever.
        wanted = tuple(slot for slot in slots if slot not in already) if already else slots
        if ask.ends is not None or ask.retry is not INHERIT or not _taken(wanted):
            return await long_way(call_id, raw, ask)
        token = hold(already | alone if already else alone)
        try:
            return await inner(call_id, raw, ask)
        finally:
            let_go(token)
            for slot in wanted:
                slot.give()

    if len(slots) != 1:
        return perform if slots else inner
    take, give = slots[0].try_take, slots[0].give

    async def perform_in_turn(call_id: str, raw: Arguments, ask: Ask) -> ToolResult:
        # One limit, and a turn that is free, is what most calls find.
        if held() or ask.ends is not None or ask.retry is not INHERIT or not take():
            return await perform(call_id, raw, ask)
        token = hold(alone)
        try:
            return await inner(call_id, raw, ask)
        finally:
            let_go(token)
            give()

    return perform_in_turn


def _taken(slots: tuple[Slots, ...]) -> bool:
    """Take all of these slots, or none."""
    for slot in slots:
        if not slot.try_take():
            for taken in slots[: slots.index(slot)]:
                taken.give()
            return False
    return True


def _slots_of(route: Route, office: Office) -> tuple[Slots, ...]:
    own = route.tool.options.max_concurrency
    slots = [] if own is None else [office.slots_for(id(route.tool.root), own)]
    return (*slots, office.slots_for(0, office.most)) if office.most is not None else tuple(slots)


def _counted(route: Route, office: Office) -> Route:
    """Return a route that counts each call whose arguments fit."""
    name, options, key = route.name, route.tool.options, id(route.tool.root)
    bind, most, numbers = route.bind, options.max_calls, office.counts.counter(key)
    meter = None if options.rate is None else office.meters.setdefault(key, Meter(options.rate))
    if most is None and meter is None:
        return route

    def counting(raw: Arguments) -> Bound:
        bound = bind(raw)
        if most is not None and next(numbers) >= most:
            raise used_up(name, most)
        if meter is not None:
            meter.count(name)
        return bound

    return replace(route, bind=counting)
