"""One run of a chat: turns of the model, calls and their results, until it ends.

Lives here: what is asked, what is done, what is recorded, and why a run ends. Every turn and every call is an effect
that goes through the runtime; nothing else here touches the world. Not here: what a caller sees (`chat`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from toolmason._core.call.approval import ApprovalRequest, Decision
from toolmason._core.call.batch import Batch
from toolmason._core.catalog.catalog import READ_RESULT
from toolmason._core.define.context import ToolContext
from toolmason._core.toolbox.exchange import Finished, ModelReply, ModelRequest, Usage
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.definition import ToolDefinition, ToolOptions
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import Limits, Sequential, Strategy
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.chat.durable.effects import REPLY_SERIALIZER, RESULT_SERIALIZER, RunEffect, Work, make_reconciler
from toolmason.chat.durable.runtime import RunExecution
from toolmason.chat.events import CallFinished, CallProgress, CallStarted, Event, StepFinished
from toolmason.chat.loop import ModelTurn, replace_messages
from toolmason.chat.memory import Memory
from toolmason.chat.reply import Reply, RunFinish, Step
from toolmason.errors import ApprovalRequired, ConfigError, LimitExceeded, ToolCancelled, UnknownOutcome, UnknownTool
from toolmason.models.protocol import Model

ExecuteRule = bool | Callable[[ModelRequest, ModelReply], bool]


@dataclass(slots=True, eq=False, repr=False)
class RunPlan:
    """What a run is given; nothing here changes while it runs."""

    model: Model
    box: Toolbox
    context: ToolContext[Any] | None
    limits: Limits
    strategy: Strategy
    execute: ExecuteRule
    history: bool
    memory: Memory | None
    conversation: str | None
    emit: Callable[[Event], None] | None
    run_id: str


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """A run, while it runs."""

    plan: RunPlan
    execution: RunExecution
    system: tuple[Message, ...]
    messages: list[Message]
    """The conversation, without the system messages."""
    history_length: int
    started: float = field(default_factory=time.monotonic)
    results: list[ToolResult] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    pending: tuple[ApprovalRequest, ...] = ()
    finish: RunFinish = "stop"
    turns: int = 0
    """How many turns the model has taken, in every process that drove the run."""
    call_ids: set[str] = field(default_factory=set)
    """The ids of calls that the conversation holds."""
    last_executed: ModelReply | None = None
    """The last answer whose calls were run."""
    offered_tools: tuple[Sequence[ToolDefinition], frozenset[str]] = ((), frozenset())
    """The tools of the last request, and their names; no other tool of the toolbox can be called."""

    def __post_init__(self) -> None:
        self.load_history(self.messages)

    def load_history(self, messages: Sequence[Message]) -> None:
        """Take what was said before."""
        self.messages, self.history_length = [*messages], len(messages)
        self.call_ids = {call.id for message in messages for call in message.calls}

    async def begin(self, new: Sequence[Message]) -> None:
        """Write down what the run is asked; where it was begun before, go back to what was said until then.

        Raises:
            ConfigError: the run was begun with something else.
        """

        def facts() -> dict[str, Any]:
            messages_by_kind = {"asked": new, "before": self.messages, "system": self.system}
            dumped = {name: [message.to_dict() for message in messages] for name, messages in messages_by_kind.items()}
            return {**dumped, "model": self.plan.model.name, "conversation": self.plan.conversation}

        recorded = await self.execution.begin(facts)
        if recorded is None:
            return
        if recorded["asked"] != [message.to_dict() for message in new]:
            raise ConfigError(
                f"The run {self.plan.run_id!r} was begun with another message. "
                "Send the same again, or name another run."
            )
        self.load_history([Message.from_dict(message) for message in recorded["before"]])

    def summarize(self) -> dict[str, Any]:
        """Return what is written down of the end."""
        reply = self.make_reply()
        return {"text": reply.text, "turns": self.turns, "saved": reply.save() if self.pending else None}

    # --- asking the model ----------------------------------------------------------------------------

    async def ask_model(self, turn: ModelTurn) -> ModelReply:
        """Ask the model for one turn."""
        started_at = time.perf_counter()
        model = self.plan.model
        if self.offered_tools[0] is not turn.request.tools:
            self.offered_tools = (turn.request.tools, frozenset(tool.name for tool in turn.request.tools))
        effect = RunEffect(
            self.plan.run_id, f"{turn.number}/model", "model", model.name, {"messages": len(turn.messages)}
        )
        reply: ModelReply = await self.execution.perform(
            effect, lambda: self._call_model(turn.request), REPLY_SERIALIZER
        )
        reply = self._assign_call_ids(reply)
        self.turns = turn.number
        self.usage += reply.usage
        names = tuple(call.name for call in reply.calls)
        self.steps.append(Step(turn.number, reply.text, names, time.perf_counter() - started_at))
        return reply

    async def _call_model(self, request: ModelRequest) -> ModelReply:
        remaining = self._get_remaining_seconds()
        if remaining is None and self.plan.emit is None:
            return await self.plan.model.respond(request)
        async with asyncio.timeout(remaining):
            if self.plan.emit is None:
                return await self.plan.model.respond(request)
            reply: ModelReply | None = None
            async for event in self.plan.model.stream(request):
                if isinstance(event, Finished):
                    reply = event.reply
                else:
                    self._emit(event)
        assert reply is not None  # noqa: S101 - the last event of every stream
        return reply

    def _assign_call_ids(self, reply: ModelReply) -> ModelReply:
        """Give each call an id of its own, and a name: providers refuse a conversation without."""
        calls: list[ToolCall] = []
        for call in reply.calls:
            call_id, number = call.id or "call", 1
            while call_id in self.call_ids:
                number += 1
                call_id = f"{call.id or 'call'}_{number}"
            self.call_ids.add(call_id)
            is_complete = call_id == call.id and call.name
            calls.append(call if is_complete else replace(call, id=call_id, name=call.name or "unknown"))
        if all(new_call is old_call for new_call, old_call in zip(calls, reply.calls, strict=True)):
            return reply
        message = reply.message
        return replace(
            reply, message=Message(message.role, message.content, calls, provider_state=message.provider_state)
        )

    # --- doing what it asks for ----------------------------------------------------------------------

    async def handle_reply(self, turn: ModelTurn, reply: ModelReply) -> ModelTurn | None:
        """Do what the model asked for; return the next turn, or `None` where the run is over."""
        execute = self.plan.execute
        if is_paused_by_provider(reply) and execute is not False:
            if self.is_over_limit(turn.number):
                self.finish = "limit"
                return None
            await self.record([reply.message])
            self._emit(StepFinished(turn.number, reply))
            return await self.make_next_turn(turn)
        if not reply.calls or not (execute(turn.request, reply) if callable(execute) else execute):
            return None
        await self.record([reply.message])
        self.calls.extend(reply.calls)
        self.last_executed = reply
        results = await self.run_calls(turn.number, reply.calls)
        return await self.handle_results(turn, reply, results)

    async def finish_with(self, reply: ModelReply) -> None:
        """Take the last answer, as the advisors leave it; where its calls were run, it is in the record already."""
        if reply is self.last_executed or self.pending:
            return
        await self.record([reply.message])
        self.calls.extend(reply.calls)
        if self.finish != "limit":
            self.finish = "calls" if reply.calls else "stop"
        self._emit(StepFinished(self.turns, reply))

    async def handle_results(
        self, turn: ModelTurn, reply: ModelReply, results: Sequence[ToolResult]
    ) -> ModelTurn | None:
        """Go on with the results of a turn."""
        pending = tuple(r.error.request for r in results if isinstance(r.error, ApprovalRequired))
        await self.record([Message("tool", results=tuple(results))], persist=not pending)
        self.results.extend(results)
        self._emit(StepFinished(turn.number, reply, tuple(results)))
        if pending:
            self.pending, self.finish = pending, "pending"
        elif all(result.return_direct and result.ok for result in results):
            self.finish = "direct"
        elif self.is_over_limit(turn.number) or any(is_run_limit_error(result) for result in results):
            self.finish = "limit"
        else:
            return await self.make_next_turn(turn)
        return None

    async def make_next_turn(self, turn: ModelTurn) -> ModelTurn:
        """Return the turn after this one; a choice that was forced holds once."""
        request = replace_messages(
            turn.request, await self.get_visible_messages(), tool_choice=None, tools=self._get_next_tools(turn.request)
        )
        return ModelTurn(request, turn.number + 1, turn.conversation, self)

    def _get_next_tools(self, request: ModelRequest) -> tuple[ToolDefinition, ...]:
        """Return the tools of the next turn: the same, and `read_result` as soon as there is something to read."""
        if READ_RESULT not in self.plan.box or any(tool.name == READ_RESULT for tool in request.tools):
            return request.tools
        reader = [tool.definition for tool in self.plan.box.tools if tool.name == READ_RESULT]
        return tuple(sorted([*request.tools, *reader], key=lambda tool: tool.name))

    async def get_visible_messages(self, messages: Sequence[Message] | None = None) -> tuple[Message, ...]:
        """Return what the model is shown next."""
        if self.plan.history:
            visible = self.messages if messages is None else messages
            return (*self.system, *visible) if self.system else tuple(visible)
        assert self.plan.memory is not None  # noqa: S101 - the chat has looked
        return (*self.system, *await self.plan.memory.load(self.plan.conversation or ""))

    async def run_calls(self, number: int, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run calls: side by side or in order, each once, each with a result."""
        results: list[ToolResult] = []
        indexes = {id(call): index for index, call in enumerate(calls)}
        remaining = self._get_remaining_seconds()
        started_calls: dict[int, ToolCall] = {}

        async def run_one(call: ToolCall, deadline: float | None) -> ToolResult:
            del deadline
            started_calls[indexes[id(call)]] = call
            self._emit(CallStarted(call))
            result = await self._run_effect(number, indexes[id(call)], call, lambda: self._call_tool(call))
            self._emit(CallFinished(call, result))
            del started_calls[indexes[id(call)]]
            return result

        try:
            if len(calls) == 1 and remaining is None:
                # Most turns ask for one thing, which needs no turn of its own.
                results.append(make_cancelled_result(calls[0]))
                results[0] = await run_one(calls[0], None)
                return results
            batch = Batch(calls, results, _get_max_parallel(self.plan.strategy), remaining)
            return await batch.run(run_one, [self._is_barrier(call) for call in calls])
        except asyncio.CancelledError:
            # Whoever stops a run still gets a conversation in which every call has its result. A journal may know
            # better when the run is driven again, so that a memory waits for that.
            for place, call in started_calls.items():
                self._emit(CallFinished(call, results[place]))
            await self.record([Message("tool", results=tuple(results))], persist=not self.execution.is_durable)
            self.results.extend(results)
            raise

    async def run_decided_calls(
        self,
        number: int,
        message: Message,
        pending_requests: Mapping[str, ApprovalRequest],
        decisions: Mapping[str, Decision],
    ) -> list[ToolResult]:
        """Run the calls of a turn that were decided about; what was not keeps waiting."""
        results: list[ToolResult] = []
        for index, call in enumerate(message.calls):
            request = pending_requests.get(call.id)
            if request is None:
                continue
            decision = decisions.get(request.id)
            if decision is None:
                error = ApprovalRequired(call.name, request)
                results.append(ToolResult(call.id, call.name, error=error, attempts=0))
            else:
                results.append(await self._run_effect(number, index, call, partial(self._resume_call, decision)))
        return results

    async def _run_effect(self, number: int, index: int, call: ToolCall, work: Work) -> ToolResult:
        """Return what came of a call: from the journal, by making it now, or that nobody knows."""
        was_run = False

        async def run_work() -> ToolResult:
            nonlocal was_run
            was_run = True
            result: ToolResult = await work()
            return result

        options = self._get_options(call.name)
        effect = self._make_effect(f"{number}/{index}/{call.name}", call, options)
        try:
            result: ToolResult = await self.execution.perform(
                effect, run_work, RESULT_SERIALIZER, make_reconciler(call, options, self.plan.context)
            )
        except UnknownOutcome as unknown_outcome:
            return ToolResult(call.id, call.name, error=unknown_outcome, attempts=0)
        if result.call_id != call.id:
            result = ToolResult(**{**vars(result), "call_id": call.id})
        if not was_run:
            # What was done in another process counts, too: a run that is driven again does not get more.
            self.plan.box.record_earlier_call(call, result)
        return result

    def _get_options(self, name: str) -> ToolOptions | None:
        try:
            return self.plan.box[name].options
        except KeyError:
            return None

    def _resolve_name(self, name: str) -> str | None:
        """Return the name of the tool that a call means; `None` where only a resolver may know it."""
        try:
            return self.plan.box[name].name
        except KeyError:
            return READ_RESULT if name == READ_RESULT and name in self.plan.box else None

    async def _call_tool(self, call: ToolCall) -> ToolResult:
        offered_names = self.offered_tools[1]
        tool_name = call.name if call.name in offered_names else self._resolve_name(call.name)
        if tool_name is not None and tool_name not in offered_names:
            return ToolResult(call.id, call.name, error=UnknownTool(call.name, sorted(offered_names)), attempts=0)
        emit = self.plan.emit
        on_progress = None if emit is None else (lambda report: emit(CallProgress(report)))
        return await self.plan.box.call(call, context=self.plan.context, on_progress=on_progress)

    async def _resume_call(self, decision: Decision) -> ToolResult:
        return await self.plan.box.resume(decision, context=self.plan.context)

    def _make_effect(self, key: str, call: ToolCall, options: ToolOptions | None) -> RunEffect:
        arguments = call.arguments if isinstance(call.arguments, dict) else {"text": str(call.arguments or "")}
        repeatable = options is None or options.repeatable
        return RunEffect(self.plan.run_id, key, "tool", call.name, arguments, repeatable=repeatable)

    def _is_barrier(self, call: ToolCall) -> bool:
        options = self._get_options(call.name)
        return options is not None and options.runs_alone

    # --- the record ----------------------------------------------------------------------------------

    async def record(self, messages: Sequence[Message], *, persist: bool = True) -> None:
        """Add to the conversation, and to what is kept of it."""
        index = len(self.messages) - self.history_length
        self.messages.extend(messages)
        memory, name = self.plan.memory, self.plan.conversation or ""
        if not persist or memory is None:
            return
        append_once: Any = getattr(memory, "append_once", None)
        if self.execution.is_durable and append_once is not None:
            # A run that is driven again says the same things again.
            await append_once(name, f"{self.plan.run_id}/{index}", messages)
        else:
            await memory.append(name, messages)

    def is_over_limit(self, number: int) -> bool:
        """Tell whether the run has used up its turns or its time."""
        steps, remaining = self.plan.limits.steps, self._get_remaining_seconds()
        return (steps is not None and number >= steps) or (remaining is not None and remaining <= 0)

    def _get_remaining_seconds(self) -> float | None:
        seconds = self.plan.limits.seconds
        return None if seconds is None else max(0.0, seconds - (time.monotonic() - self.started))

    def _emit(self, event: Event) -> None:
        if self.plan.emit is not None:
            self.plan.emit(event)

    def mark_cancelled(self) -> None:
        """Note that the run was called off; a call that had not begun gets a result that says so."""
        self.finish = "cancelled"
        last_message = self.messages[-1] if self.messages else None
        if last_message is not None and last_message.calls:
            self.messages.append(Message("tool", results=map(make_cancelled_result, last_message.calls)))

    def make_reply(self) -> Reply:
        """Return what the run has come to."""
        return Reply(
            (*self.system, *self.messages),
            self.finish,
            tuple(self.calls),
            tuple(self.results),
            self.usage,
            self.pending,
            self.plan.conversation,
            self.plan.run_id,
            tuple(self.steps),
            history_length=len(self.system) + self.history_length,
            turns=self.turns,
        )


def _get_max_parallel(strategy: Strategy) -> int:
    if isinstance(strategy, Sequential):
        return 1
    return 64 if strategy.limit is None else strategy.limit


def is_paused_by_provider(reply: ModelReply) -> bool:
    """Tell whether the provider stopped in the midst of its own work, and goes on as soon as it is asked again."""
    if reply.finish != "pause" or reply.calls:
        return False
    state = reply.message.provider_state
    items = state.get("items", ()) if isinstance(state, Mapping) else ()
    # One that asks for approval waits for a person.
    return not any(item.get("type") == "mcp_approval_request" for item in items if isinstance(item, Mapping))


def make_cancelled_result(call: ToolCall) -> ToolResult:
    """Return the result of a call that was called off."""
    return ToolResult(call.id, call.name, error=ToolCancelled(call.name), attempts=0)


def is_run_limit_error(result: ToolResult) -> bool:
    """Tell whether a call was refused because a limit of the whole run is used up."""
    # By its code: one that was read from a journal is no `LimitExceeded` any more.
    return result.error is not None and result.error.code == "limit_exceeded" and "for this run" in result.error.message


def make_limit_error(limits: Limits, turns: int, results: Sequence[ToolResult]) -> LimitExceeded:
    """Return the error that names the limit at which a run ended."""
    limit_error = next((result.error for result in reversed(results) if is_run_limit_error(result)), None)
    if isinstance(limit_error, LimitExceeded):
        limit = limit_error.limit
    elif limit_error is not None:
        limit = f"limit of {limits.calls} calls"
    elif limits.steps is not None and turns >= limits.steps:
        limit = f"limit of {limits.steps} steps"
    else:
        limit = f"limit of {limits.seconds} seconds"
    return LimitExceeded("The next turn", limit, "Raise it, or read what there is with on_limit='stop'.")
