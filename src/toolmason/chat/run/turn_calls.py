"""Run the calls of a turn, each once, and record them as effects."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from toolmason._core.call.batch import Batch, get_max_parallel
from toolmason._core.catalog.catalog import FINAL_ANSWER, READ_RESULT
from toolmason._core.define.tool import Tool
from toolmason._core.run.call_log import CALL_LOG
from toolmason._core.toolbox.approvals import restore_call
from toolmason._core.toolbox.exchange import ModelRequest
from toolmason._core.toolbox.toolbox import get_state
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.results import ToolCall, ToolResult, replace_result
from toolmason._text import to_line
from toolmason.chat.durable.effects import RunEffect, Work, get_recorded_arguments
from toolmason.chat.events import CallFinished, CallStarted
from toolmason.chat.programs.code import PROGRAM_MODEL
from toolmason.chat.reply import make_cancelled_result
from toolmason.chat.run.delegation import (
    CALL_SERIALIZER,
    TICKET,
    complete_result,
    get_delegation,
    is_chat_tool,
    restore_delegation,
)
from toolmason.chat.run.plan import RunPlan
from toolmason.chat.run.tickets import CANCEL_TICKET, CHECK_TICKET, get_tickets, open_ticket, restore_ticket
from toolmason.errors import UnknownOutcome, UnknownTool


class TurnCalls:
    """Runner of the calls that a model requests."""

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self._offered: Sequence[ToolDefinition] = ()
        self._offered_names: frozenset[str] = frozenset()
        self.turns: list[tuple[int, Sequence[ToolCall]]] = []
        """Calls of each turn, with its number."""
        run = get_state(plan.box).run
        assert run is not None  # noqa: S101 - the toolbox of a run
        self.run_state = run
        run.open_ticket = partial(open_ticket, plan)
        run.is_program = plan.model.name == PROGRAM_MODEL

    def offer(self, tools: Sequence[ToolDefinition]) -> None:
        """Set the tools of the last request. The model cannot call other tools of the toolbox."""
        self._offered, self._offered_names = tools, frozenset([tool.name for tool in tools])

    async def make_offer(self, request: ModelRequest) -> ModelRequest:
        """Return a request as the model gets it. Only its tools can be called."""
        if self.plan.request_tools.is_conditional:
            disabled = await self.plan.request_tools.find_disabled(self.plan.context)
            enabled = tuple(tool for tool in request.tools if tool.name not in disabled)
            request = request.with_messages(request.messages, tools=enabled)
        if self.plan.answer is not None:
            request = self.plan.answer.apply(request)
        if self._offered is not request.tools:
            self.offer(request.tools)
        return request

    def add_own_tools(self, tools: tuple[ToolDefinition, ...]) -> tuple[ToolDefinition, ...]:
        """Return the tools of a turn with those that a run offers for its tickets and its long results."""
        box = self.plan.box
        if self.plan.tickets is not None:
            tools = self.plan.tickets.add_tools([tool for tool in tools if not self.is_ticket_tool(tool.name)])
        if len(get_state(box).result_store) == 0 or any(tool.name == READ_RESULT for tool in tools):
            return tools
        reader = [tool.definition for tool in box.tools if tool.name == READ_RESULT]
        return tuple(sorted([*tools, *reader], key=lambda tool: tool.name))

    def find_effect(self, call_id: str) -> str:
        """Return the key of a call in the journal; empty if it is not a call of this run."""
        for number, calls in reversed(self.turns):
            for index, call in enumerate(calls):
                if call.id == call_id:
                    return _make_effect_key(number, index, call)
        return ""

    async def run(
        self, number: int, calls: Sequence[ToolCall], results: list[ToolResult], remaining: float | None
    ) -> list[ToolResult]:
        """Run calls concurrently or in order, each once. If the batch is cancelled, `results` has those so far."""
        self.turns.append((number, calls))
        self.run_state.rejected.turn = number
        if len(calls) == 1 and remaining is None:
            # Fast path for the common case, one call: no batch is needed.
            return [await self.run_call(number, 0, calls[0])]
        indexes = {id(call): index for index, call in enumerate(calls)}
        max_parallel = get_max_parallel(self.plan.strategy, get_state(self.plan.box).policy.max_parallel)
        batch = Batch(calls, results, max_parallel, remaining, "run timeout")
        return await batch.run(
            lambda call, _: self.run_call(number, indexes[id(call)], call), [self._is_barrier(call) for call in calls]
        )

    async def run_call(self, number: int, index: int, call: ToolCall, work: Work | None = None) -> ToolResult:
        """Run one call, and report its start and its end."""
        emit, work = self.plan.emit, work or partial(self.call_tool, call)
        if emit is None:
            return await self.run_effect(number, index, call, work)
        emit(CallStarted(call))
        try:
            result = await self.run_effect(number, index, call, work)
        except asyncio.CancelledError:
            emit(CallFinished(call, make_cancelled_result(call)))
            raise
        emit(CallFinished(call, result))
        return result

    async def run_effect(self, number: int, index: int, call: ToolCall, work: Work) -> ToolResult:
        """Return the result of a call: from the journal, by running it, or as an unknown outcome."""
        if self.plan.execution is None:
            result: ToolResult = await work()
            return result
        was_run = False

        async def run_work() -> ToolResult:
            nonlocal was_run
            was_run = True
            performed: ToolResult = await work()
            return performed

        tool = self._find_tool(call.name)
        options = None if tool is None else tool.options
        # The journal has the run of a chat and the work of a ticket apart, and decides there.
        repeatable = options is None or options.repeatable or is_chat_tool(tool) or options.may_open_ticket
        key, arguments = _make_effect_key(number, index, call), get_recorded_arguments(call)
        effect = RunEffect(self.plan.run_id, key, "tool", call.name, arguments, repeatable=repeatable)
        try:
            result = await self.plan.execution.perform(
                effect, run_work, CALL_SERIALIZER, self.plan.make_reconciler(call, options)
            )
        except UnknownOutcome as unknown_outcome:
            return ToolResult(call.id, call.name, error=unknown_outcome, attempts=0)
        if result.call_id != call.id:
            result = replace_result(result, call_id=call.id)
        if not was_run:
            # Calls of an earlier process count as well: resuming a run does not raise its limits.
            await restore_call(get_state(self.plan.box), call, result, self.plan.context)
            if TICKET in result.meta:
                await restore_ticket(self.plan, call, result)
            if (delegation := get_delegation(result)) is not None:
                counted = self.plan.resumed.pop(call.id, None)
                restore_delegation(self.plan, delegation, None if counted is None else counted.reply)
        return result

    def is_ticket_tool(self, name: str) -> bool:
        """Return True if a name is that of a tool for tickets, and not that of a tool of the toolbox."""
        return name in (CHECK_TICKET, CANCEL_TICKET) and name not in self.plan.box

    def _find_tool(self, name: str) -> Tool | None:
        """Return the tool that a call refers to, or None if only a resolver may know it."""
        try:
            return self.plan.box[name]
        except KeyError:
            return None

    async def call_tool(self, call: ToolCall) -> ToolResult:
        """Run a call of a tool that was offered."""
        if (answer := self.plan.answer) is not None and call.name == FINAL_ANSWER:
            return await answer.take(call)
        if self.plan.tickets is not None and call.name in self._offered_names and self.is_ticket_tool(call.name):
            return await get_tickets(self.plan).answer(call)
        offered_names = self._offered_names
        tool = None if call.name in offered_names else self._find_tool(call.name)
        if tool is not None and tool.name not in offered_names:
            error = self.run_state.rejected.reject(call.name, UnknownTool(call.name, sorted(offered_names)))
            CALL_LOG.debug("%s [%s] is not offered in this turn", tool.name, to_line(call.id))
            return ToolResult(call.id, call.name, error=error, attempts=0)
        plan = self.plan
        on_progress = None if plan.emit is None else plan.on_progress  # most runs have no reader
        result = await plan.box.call(call, context=plan.context, on_progress=on_progress)
        return self.complete(call, result) if plan.answered else result

    def complete(self, call: ToolCall, result: ToolResult) -> ToolResult:
        """Return a result with what is known of the chat that made it, if it is one of a chat."""
        reply = self.plan.answered.pop(call.id, None)
        if reply is None:
            return result
        if reply.pending or reply.external:
            self.plan.waiting[call.id] = reply
        return complete_result(call, result, reply)

    def _is_barrier(self, call: ToolCall) -> bool:
        tool = self._find_tool(call.name)
        return tool is not None and tool.options.runs_alone


def _make_effect_key(number: int, index: int, call: ToolCall) -> str:
    return f"{number}/{index}/{call.name}"
