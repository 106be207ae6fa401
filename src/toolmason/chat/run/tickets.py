"""Let the calls of a run go on in the background, and deliver their results to its conversation."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Annotated, Any, Final, TypeAlias

from pydantic_core import to_json

from toolmason._core.call.approval import get_identity
from toolmason._core.call.limits import RunState
from toolmason._core.call.route import CallOptions, Route
from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import Param
from toolmason._core.define.tool import Tool
from toolmason._core.run.eager_task import wake_waiter
from toolmason._core.toolbox.calls import Calls
from toolmason._core.toolbox.lookup import ToolLookup
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.content import Text
from toolmason._core.values.definition import ToolDefinition, ToolOptions
from toolmason._core.values.messages import Message, dump_result, load_result
from toolmason._core.values.results import ToolCall, ToolResult, replace_result
from toolmason.chat.durable.effects import OutcomeSerializer, RunEffect, get_recorded_arguments
from toolmason.chat.reply import RunFinish, make_cancelled_result
from toolmason.chat.run.delegation import CALL_SERIALIZER, TICKET, complete_result, is_chat_tool
from toolmason.chat.run.plan import RunPlan
from toolmason.chat.run.ticket_store import Ticket
from toolmason.errors import (
    ApprovalRequired,
    ExecutionError,
    LimitExceeded,
    RunTaken,
    ToolCallError,
    ToolError,
    UnknownOutcome,
)

CHECK_TICKET: Final = "check_ticket"
CANCEL_TICKET: Final = "cancel_ticket"
MAX_WAIT_SECONDS: Final = 60.0
"""Maximum number of seconds that one `check_ticket` waits."""
_PENDING: Final = "pending"
"""End of one in the journal that waits for approval. Its run is resumed, and makes the call again."""
_DELIVERED: Final = "delivered"
"""End of a ticket in the journal, once a conversation has its result."""

RunCall: TypeAlias = Callable[[Route, ToolCall, CallOptions], Coroutine[Any, Any, ToolResult]]
Work: TypeAlias = Callable[[], Awaitable[ToolResult]]


async def open_ticket(plan: RunPlan, run: RunCall, route: Route, call: ToolCall, options: CallOptions) -> ToolResult:
    """Run a call of a run. If it takes too long, return a ticket, and the work goes on."""
    return await get_tickets(plan).run(run, route, call, options)


def get_tickets(plan: RunPlan) -> RunTickets:
    """Return the tickets of a run, which begin with the first one."""
    if plan.tickets is None:
        plan.tickets = RunTickets(plan)
    tickets: RunTickets = plan.tickets
    return tickets


async def find_tickets(plan: RunPlan) -> None:
    """Find the tickets that earlier runs of the conversation left, also in other processes."""
    may_have_journal = plan.runtime is not None and plan.conversation is not None
    if may_have_journal and any(tool.options.may_open_ticket for tool in plan.box):
        await get_tickets(plan).load()
    elif plan.ticket_store.tickets:
        get_tickets(plan)


class RunTickets:
    """Tickets that a run can deliver: its own, and those of earlier runs of its conversation."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan, self.store = plan, plan.ticket_store
        state = get_state(plan.box)
        assert state.run is not None  # noqa: S101 - the toolbox of a run
        self._run_state = state.run
        identity = get_identity(state.calls.context.merge(plan.context))
        owner = to_json([plan.conversation or plan.run_id, plan.conversation is None, identity])
        self.owner = sha256(owner).hexdigest()[:32]
        self.ids = [ticket.id for ticket in self.store.find_all(self.owner) if not ticket.is_awaited]
        for ticket in self.get_open():
            ticket.on_progress = plan.on_progress
        self._delivered: list[str] = []
        """Tickets whose results the conversation has, but which the journal still lists."""
        self._answers: dict[str, Ticket] = {}
        """Tickets that calls of `check_ticket` ask for, and that have finished."""
        self.box = Toolbox(*self._make_tools())

    def get_open(self) -> list[Ticket]:
        """Return the tickets that are not delivered, oldest first."""
        found = [self.store.tickets.get(ticket_id) for ticket_id in self.ids]
        return [ticket for ticket in found if ticket is not None and not ticket.is_taken]

    # --- the work ------------------------------------------------------------------------------------

    async def run(self, run: RunCall, route: Route, call: ToolCall, options: CallOptions) -> ToolResult:
        """Run a call. Return its result, or a ticket once the call is approved and takes longer than it may."""
        tool_options = route.tool.options
        ticket = Ticket(self._make_id(call), self.owner, self.plan.conversation, call)
        ticket.on_progress = options.on_progress
        if (restored := self.store.tickets.get(ticket.id)) is not None:
            return self._issue(restored)  # an earlier process made the call, and did not record the ticket
        limit = self.store.reserve(ticket)
        if limit and tool_options.background:
            error = LimitExceeded(route.name, limit, "Wait for one of them, or cancel it.")
            return ToolResult(call.id, route.name, error=error, attempts=0)
        if limit:
            return await run(route, call, replace(options, run=self._copy_run_state()))
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        run_state = self._detach(ticket, partial(wake_waiter, admitted))
        detached = replace(options, run=run_state, deadline=None, on_progress=ticket.take_report)
        # The journal has the start before the work begins, so that no crash can make it run twice.
        work = self._start(ticket, partial(run, route, call, detached), tool_options, is_chat=is_chat_tool(route.tool))
        try:
            remaining = self.plan.get_remaining_seconds()
            await asyncio.wait((work, admitted), timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
            if not admitted.done() and not work.done():
                ticket.cancellation.cancel()  # the time of the run ends before the call is approved
                await asyncio.wait((work,))
            seconds = 0.0 if tool_options.background else tool_options.ticket_after or 0.0
            if seconds and not work.done():
                remaining = self.plan.get_remaining_seconds()
                await asyncio.wait((work,), timeout=seconds if remaining is None else min(seconds, remaining))
        except asyncio.CancelledError:
            self.store.remove(ticket.id)
            work.cancel()
            await asyncio.wait((work,))
            raise
        return self._issue(ticket)

    def _issue(self, ticket: Ticket) -> ToolResult:
        """Return a ticket, or the result of a call that needs none. Raise what such a call raised."""
        result, ticket.is_awaited = ticket.result, False
        if result is None:
            if ticket.id not in self.ids:
                self.ids.append(ticket.id)
            return make_ticket_result(ticket)
        self.store.remove(ticket.id)
        if ticket.failure is not None:
            raise ticket.failure
        if self.plan.runtime is None or isinstance(result.error, ApprovalRequired):
            return result
        self.note_delivered(ticket.id)
        return replace_result(result, meta={**result.meta, TICKET: {"id": ticket.id, "is_open": False}})

    def _detach(self, ticket: Ticket, on_admitted: Callable[[], object] | None = None) -> RunState:
        """Return the run for work that outlives it: the same counters, but its own cancellation and no deadline."""
        state = self._copy_run_state()
        state.deadline, state.cancellation, state.on_admitted = None, ticket.cancellation, on_admitted
        return state

    def _copy_run_state(self) -> RunState:
        """Return the run for calls that open no tickets. Both count in the same counters."""
        state = copy.copy(self._run_state)
        state.open_ticket = None
        return state

    def _start(
        self, ticket: Ticket, work: Work, options: ToolOptions | None, *, is_chat: bool = False
    ) -> asyncio.Task[None]:
        """Keep a ticket, and do its work in a task."""
        self.store.tickets[ticket.id] = ticket
        repeatable = options is None or options.repeatable or is_chat
        task = asyncio.get_running_loop().create_task(self._keep(ticket, work, options, repeatable=repeatable))
        ticket.task = task
        background = get_state(self.plan.box).calls.state.background
        background.add(ticket.stop)
        task.add_done_callback(lambda _: background.discard(ticket.stop))
        return task

    async def _keep(self, ticket: Ticket, work: Work, options: ToolOptions | None, *, repeatable: bool) -> None:
        """Do the work of a ticket, and keep its result."""
        call = ticket.call
        try:
            result = await self._perform(ticket, work, options, repeatable=repeatable)
        except RunTaken:
            ticket.is_elsewhere = True
            return
        except asyncio.CancelledError:
            self.store.finish(ticket, make_cancelled_result(call))
            raise
        except Exception as error:  # noqa: BLE001 - the run may be over, so the failure is a result
            ticket.failure = error
            failed = error if isinstance(error, ToolCallError) else ExecutionError(call.name, error)
            result = ToolResult(call.id, call.name, error=failed)
        finally:
            ticket.is_recorded.set()
        if result is None:
            self.store.remove(ticket.id)
        else:
            self.store.finish(ticket, result)

    async def _perform(
        self, ticket: Ticket, work: Work, options: ToolOptions | None, *, repeatable: bool
    ) -> ToolResult | None:
        """Return the result of the work: from the journal, by doing it, or as an unknown outcome.

        Return None if a conversation has the result already.
        """
        runtime, call = self.plan.runtime, ticket.call

        async def do_work() -> ToolResult:
            ticket.is_recorded.set()
            result = await work()
            reply = None if ticket.is_awaited else self.plan.answered.pop(call.id, None)
            return result if reply is None or reply.pending else complete_result(call, result, reply)

        if runtime is None:
            return await do_work()

        arguments = get_recorded_arguments(call)
        given = call.raw if isinstance(call.raw, dict | str | None) else dict(arguments)
        facts: dict[str, Any] = {"asked": [], "before": [], "conversation": ticket.conversation}
        facts["call"] = [call.id, call.name, given]
        run_id = self._make_run_id(ticket.id)
        async with runtime.execute(run_id) as execution:
            known = await execution.begin(lambda: facts)
            if known is not None and known.get(_DELIVERED):
                await execution.end(_DELIVERED, dict)
                return None
            effect = RunEffect(run_id, call.name, "tool", call.name, arguments, repeatable=repeatable)
            reconciler = self.plan.make_reconciler(call, options)
            try:
                result: ToolResult = await execution.perform(effect, do_work, CALL_SERIALIZER, reconciler)
            except UnknownOutcome as unknown_outcome:
                result = ToolResult(call.id, call.name, error=unknown_outcome, attempts=0)
            await execution.end(_PENDING if isinstance(result.error, ApprovalRequired) else "stop", dict)
        return result

    def _make_id(self, call: ToolCall) -> str:
        if self.plan.runtime is None:
            return f"tk_{uuid.uuid4().hex[:16]}"
        # The same each time the run is executed, so that the journal knows the work again.
        return f"tk_{sha256(to_json([self.plan.run_id, call.id])).hexdigest()[:16]}"

    def _make_run_id(self, ticket_id: str) -> str:
        return f"ticket/{self.owner}/{ticket_id}"

    # --- after a crash -------------------------------------------------------------------------------

    async def load(self) -> None:
        """Go on with the tickets that the journal has of the conversation and that no process works on."""
        find_runs = getattr(self.plan.runtime, "find_runs", None)
        for record in () if find_runs is None else await find_runs(self._make_run_id("")):
            ticket_id = record.run.rpartition("/")[2]
            if (
                record.finish not in (_DELIVERED, _PENDING)
                and "call" in record.facts
                and ticket_id not in self.store.tickets
            ):
                await self.restore(ticket_id, ToolCall(*record.facts["call"]))

    async def restore(self, ticket_id: str, call: ToolCall) -> None:
        """Go on with a ticket of an earlier process. The journal has its result, or decides if it may be run again."""
        if ticket_id not in self.ids:
            self.ids.append(ticket_id)
        if ticket_id not in self.store.tickets:
            ticket = Ticket(ticket_id, self.owner, self.plan.conversation, call, on_progress=self.plan.on_progress)
            ticket.is_awaited = False
            await self._restart(ticket)

    async def _restart(self, ticket: Ticket) -> None:
        box, name = self.plan.box, ticket.call.name
        tool = next((tool for tool in box.tools if tool.name == name), None)
        options = None if tool is None else tool.options
        self._start(ticket, partial(self._run_again, ticket), options, is_chat=is_chat_tool(tool))
        await ticket.is_recorded.wait()  # the journal may have the result

    async def _run_again(self, ticket: Ticket) -> ToolResult:
        state = get_state(self.plan.box).derive(run=self._detach(ticket))
        calls = Calls(state, ToolLookup(state, {}))
        route = await calls.lookup.find_route(ticket.call.name, self.plan.context)
        if isinstance(route, ToolCallError):
            return await calls.refuse(ticket.call, route)
        options = CallOptions(self.plan.context, on_progress=ticket.take_report, run=state.run)
        return await calls.run(route, ticket.call, options)

    # --- delivery ------------------------------------------------------------------------------------

    async def deliver(self, number: int) -> list[Message]:
        """Return the results that have arrived before a turn, as calls of `check_ticket` and their results."""
        await self.mark_delivered()
        if not self.ids:
            return []
        for ticket in self.get_open():
            if ticket.is_elsewhere:
                ticket.is_elsewhere = False
                ticket.is_recorded.clear()
                await self._restart(ticket)
        if self.plan.execution is None:
            finished = await self._find_finished()
        else:
            # What has arrived is part of the run: if it is executed again, the same arrives at the same turn.
            effect = RunEffect(self.plan.run_id, f"{number}/tickets", "tool", CHECK_TICKET)
            finished = await self.plan.execution.perform(effect, self._find_finished, _FINISHED_SERIALIZER)
        calls: list[ToolCall] = []
        results: list[ToolResult] = []
        for ticket_id, result in finished:
            call = ToolCall(f"ticket_{ticket_id}", CHECK_TICKET, {"ticket": ticket_id})
            self.plan.call_ids.add(call.id)
            calls.append(call)
            results.append(self._hand_over(ticket_id, call, result))
        return [Message("assistant", "", calls), Message("tool", results=results)] if calls else []

    async def _find_finished(self) -> list[tuple[str, ToolResult]]:
        finished: list[tuple[str, ToolResult]] = []
        for ticket in self.get_open():
            if ticket.result is not None:
                ticket.is_taken = True
                finished.append((ticket.id, ticket.result))
        return finished

    def _hand_over(self, ticket_id: str, call: ToolCall, result: ToolResult) -> ToolResult:
        """Return the result of a ticket as that of a call, and note that the conversation gets it."""
        self.note_delivered(ticket_id)
        note = f"[Ticket {ticket_id}: {result.name} has finished.]"
        return replace_result(
            result,
            call_id=call.id,
            name=call.name,
            content=(Text(note), *result.content),
            text=f"{note}\n{result.text}",
            structured=None,
            structured_from=None,
            return_direct=False,
            meta={**result.meta, TICKET: {"id": ticket_id, "is_open": False}},
        )

    def note_delivered(self, ticket_id: str) -> None:
        """Note that the conversation gets the result of a ticket."""
        if ticket_id in self.ids:
            self.ids.remove(ticket_id)
        self._delivered.append(ticket_id)

    async def mark_delivered(self) -> None:
        """Forget the tickets that the conversation has, after their results are recorded."""
        while self._delivered:
            ticket = self.store.remove(self._delivered[0])
            if self.plan.runtime is not None:
                if ticket is not None and ticket.task is not None:
                    await asyncio.wait((ticket.task,))
                try:
                    async with self.plan.runtime.execute(self._make_run_id(self._delivered[0])) as execution:
                        await execution.end(_DELIVERED, lambda: {_DELIVERED: True})
                except RunTaken:
                    return  # another process reads it at this moment; tried again at the next turn
            del self._delivered[0]

    async def wait(self) -> None:
        """Wait until one of the tickets has finished, within the time of the run.

        Raises:
            TimeoutError: the time of the run is over.
        """
        waits = [asyncio.ensure_future(ticket.is_finished.wait()) for ticket in self.get_open()]
        if not waits:
            return
        try:
            async with asyncio.timeout(self.plan.get_remaining_seconds()):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    async def close(self, finish: RunFinish) -> None:
        """End the part that the run has in its tickets. Without a conversation, no other run can have the results."""
        for ticket in self.get_open():
            ticket.on_progress = None
            if self.plan.conversation is None and finish != "pending":
                ticket.cancellation.cancel()
                self.store.remove(ticket.id)
        await self.mark_delivered()

    # --- the tools of the model ------------------------------------------------------------------------

    def add_tools(self, tools: Sequence[ToolDefinition]) -> tuple[ToolDefinition, ...]:
        """Return the tools of a turn, with those for tickets while there are any and no other tool has their names."""
        taken = {tool.name for tool in tools}
        own = [tool.definition for tool in self.box if tool.name not in taken] if self.get_open() else []
        return tuple(sorted([*tools, *own], key=lambda tool: tool.name)) if own else tuple(tools)

    async def answer(self, call: ToolCall) -> ToolResult:
        """Run a call of one of these tools."""
        state = get_state(self.box).derive(run=self._copy_run_state())
        calls = Calls(state, ToolLookup(state, {}))
        route = calls.lookup.get_route(call.name)
        if isinstance(route, ToolCallError):
            return await calls.refuse(call, route)
        result = await calls.run(route, call, CallOptions(self.plan.context, run=state.run))
        ticket = self._answers.pop(call.id, None)
        if ticket is None or ticket.result is None or ticket.is_taken:
            return result
        ticket.is_taken = True
        return self._hand_over(ticket.id, call, ticket.result)

    def _find(self, ticket_id: str) -> Ticket:
        ticket = self.store.tickets.get(ticket_id)
        if ticket is None or ticket not in self.get_open():
            known = ", ".join(ticket.id for ticket in self.get_open()) or "none"
            raise ToolError(f"No open ticket {ticket_id[:100]!r} in this conversation. Open tickets: {known}.")
        return ticket

    def _make_tools(self) -> list[Tool]:
        async def check_ticket(
            ticket: Annotated[str, Param(description="The ticket")],
            wait: Annotated[float, Param(description="Seconds to wait for the end of the work, at most 60")] = 0.0,
            *,
            ctx: ToolContext[Any],
        ) -> str:
            """Ask for work that goes on in the background: its progress, or its result if it has finished."""
            found = self._find(ticket)
            remaining = self.plan.get_remaining_seconds()
            seconds = min(wait, MAX_WAIT_SECONDS, MAX_WAIT_SECONDS if remaining is None else remaining)
            if found.result is None and seconds > 0:
                waiting = asyncio.ensure_future(found.is_finished.wait())
                try:
                    await asyncio.wait((waiting,), timeout=seconds)
                finally:
                    waiting.cancel()
            if found.result is not None:
                self._answers[ctx.call.id] = found
            return found.describe()

        async def cancel_ticket(ticket: Annotated[str, Param(description="The ticket")]) -> str:
            """Cancel work that goes on in the background."""
            found = self._find(ticket)
            if found.result is not None:
                return f"{found.describe()} It is too late to cancel it."
            found.cancellation.cancel()
            return f"{found.call.name} is being cancelled."

        options: Any = {"repeats": "allow", "max_calls": 1_000_000, "timeout": None, "output_schema": False}
        return [
            Tool.from_function(check_ticket, read_only=True, **options),
            Tool.from_function(cancel_ticket, idempotent=True, **options),
        ]


def make_ticket_result(ticket: Ticket) -> ToolResult:
    """Return the result of a call whose work goes on."""
    call = ticket.call
    text = (
        f"{call.name} goes on in the background as ticket {ticket.id}. Its result will be added to this conversation. "
        f"Go on with other work; {CHECK_TICKET} shows its progress, {CANCEL_TICKET} cancels it."
    )
    return ToolResult(call.id, call.name, text=text, meta={TICKET: {"id": ticket.id, "is_open": True}})


async def restore_ticket(plan: RunPlan, call: ToolCall, result: ToolResult) -> None:
    """Restore what a call of an earlier process did: it opened a ticket, or it asked for the result of one."""
    if (found := result.meta.get(TICKET)) is None:
        return
    tickets = get_tickets(plan)
    if found["is_open"]:
        await tickets.restore(found["id"], call)
    else:
        tickets.note_delivered(found["id"])


def _dump_finished(finished: Sequence[tuple[str, ToolResult]]) -> list[Any]:
    return [[ticket_id, dump_result(result)] for ticket_id, result in finished]


def _load_finished(data: Sequence[Any]) -> list[tuple[str, ToolResult]]:
    return [(ticket_id, load_result(result)) for ticket_id, result in data]


_FINISHED_SERIALIZER: Final = OutcomeSerializer(_dump_finished, _load_finished)
