"""One run of a chat: turns of the model, calls and their results, until it ends.

Lives here: what is asked, what is done, what is recorded, and why a run ends. Every turn and every call is an effect
that goes through the runtime; nothing else here touches the world. Not here: what a caller sees (`chat`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from toolwright._core.approve import ApprovalRequest
from toolwright._core.batch import Batch
from toolwright._core.context import ToolContext
from toolwright._core.exchange import Finished, ModelReply, ModelRequest, Usage
from toolwright._core.messages import Message, dump_result, load_result
from toolwright._core.policy import Limits, Sequential, Strategy
from toolwright._core.toolbox import Toolbox
from toolwright._core.values import ToolCall, ToolResult
from toolwright.chat.effects import Effect
from toolwright.chat.events import CallFinished, CallProgress, CallStarted, Event, StepFinished
from toolwright.chat.memory import Memory
from toolwright.chat.reply import Finish, Reply, Step
from toolwright.chat.runtime import Driven, Form
from toolwright.chat.turns import Turn, with_messages
from toolwright.errors import ApprovalRequired, LimitExceeded, ToolCancelled, UnknownOutcome, UnknownTool
from toolwright.models.protocol import Model

Execute = bool | Callable[[ModelRequest, ModelReply], bool]


@dataclass(slots=True, eq=False, repr=False)
class Plan:
    """What a run is given; nothing here changes while it runs."""

    model: Model
    box: Toolbox
    context: ToolContext[Any] | None
    limits: Limits
    strategy: Strategy
    execute: Execute
    history: bool
    memory: Memory | None
    conversation: str | None
    emit: Callable[[Event], None] | None
    run: str


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """A run, while it runs."""

    plan: Plan
    driven: Driven
    system: tuple[Message, ...]
    messages: list[Message]
    """The conversation, without the system messages."""
    said: int
    started: float = field(default_factory=time.monotonic)
    results: list[ToolResult] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    pending: tuple[ApprovalRequest, ...] = ()
    finish: Finish = "stop"
    ids: set[str] = field(default_factory=set)
    """The ids of calls that the conversation holds."""
    hidden: frozenset[str] = frozenset()
    """Tools of the toolbox that are not offered in this turn, and so cannot be called."""

    def __post_init__(self) -> None:
        self.ids.update(call.id for message in self.messages for call in message.calls)

    # --- asking the model ----------------------------------------------------------------------------

    async def ask(self, turn: Turn) -> ModelReply:
        """Ask the model for one turn."""
        began = time.perf_counter()
        model = self.plan.model
        effect = Effect(self.plan.run, f"{turn.number}/model", "model", model.name, {"messages": len(turn.messages)})
        reply: ModelReply = await self.driven.perform(effect, lambda: self._answered(turn.request), _REPLY)
        reply = self._with_own_ids(reply)
        self.usage += reply.usage
        names = tuple(call.name for call in reply.calls)
        self.steps.append(Step(turn.number, reply.text, names, time.perf_counter() - began))
        return reply

    async def _answered(self, request: ModelRequest) -> ModelReply:
        left = self._left()
        async with asyncio.timeout(left):
            if self.plan.emit is None:
                return await self.plan.model.respond(request)
            reply: ModelReply | None = None
            async for event in self.plan.model.stream(request):
                if isinstance(event, Finished):
                    reply = event.reply
                else:
                    self._tell(event)
        assert reply is not None  # noqa: S101 - the last event of every stream
        return reply

    def _with_own_ids(self, reply: ModelReply) -> ModelReply:
        """Give each call an id of its own: providers refuse a conversation in which one is there twice."""
        calls: list[ToolCall] = []
        for call in reply.calls:
            own, number = call.id or "call", 1
            while own in self.ids:
                number += 1
                own = f"{call.id or 'call'}_{number}"
            self.ids.add(own)
            calls.append(call if own == call.id else replace(call, id=own))
        if all(mine is theirs for mine, theirs in zip(calls, reply.calls, strict=True)):
            return reply
        message = reply.message
        return replace(
            reply, message=Message(message.role, message.content, calls, provider_state=message.provider_state)
        )

    # --- doing what it asks for ----------------------------------------------------------------------

    async def after(self, turn: Turn, reply: ModelReply) -> Turn | None:
        """Do what the model asked for; return the next turn, or `None` where the run is over."""
        await self.record([reply.message])
        if not reply.calls:
            self._tell(StepFinished(turn.number, reply))
            return None
        self.calls.extend(reply.calls)
        execute = self.plan.execute
        if not (execute(turn.request, reply) if callable(execute) else execute):
            self.finish = "calls"
            return None
        results = await self.perform(turn.number, reply.calls)
        return await self.answered(turn, reply, results)

    async def answered(self, turn: Turn, reply: ModelReply, results: Sequence[ToolResult]) -> Turn | None:
        """Go on with the results of a turn."""
        waits = tuple(r.error.request for r in results if isinstance(r.error, ApprovalRequired))
        await self.record([Message("tool", results=tuple(results))], keep=not waits)
        self.results.extend(results)
        self._tell(StepFinished(turn.number, reply, tuple(results)))
        if waits:
            self.pending, self.finish = waits, "pending"
        elif all(result.return_direct and result.ok for result in results):
            self.finish = "direct"
        elif self.over(turn.number) or any(_is_over(result) for result in results):
            self.finish = "limit"
        else:
            return await self.next(turn)
        return None

    async def next(self, turn: Turn) -> Turn:
        """Return the turn after this one; a choice that was forced holds once."""
        request = with_messages(turn.request, await self.shown(), tool_choice=None)
        return replace(turn, request=request, number=turn.number + 1)

    async def shown(self) -> tuple[Message, ...]:
        """Return what the model is shown next."""
        if self.plan.history:
            return (*self.system, *self.messages)
        assert self.plan.memory is not None  # noqa: S101 - the chat has looked
        return (*self.system, *await self.plan.memory.load(self.plan.conversation or ""))

    async def perform(self, number: int, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run calls: side by side or in order, each once, each with a result."""
        box, plan = self.plan.box, self.plan
        results: list[ToolResult] = []
        places = {id(call): place for place, call in enumerate(calls)}

        async def run_one(call: ToolCall, ends: float | None) -> ToolResult:
            del ends
            effect = self._effect(number, places[id(call)], call)
            self._tell(CallStarted(call))
            try:
                result: ToolResult = await self.driven.perform(effect, lambda: self._called(call), _RESULT)
            except UnknownOutcome as unknown:
                result = ToolResult(call.id, call.name, error=unknown, attempts=0)
            self._tell(CallFinished(call, result))
            return result

        batch = Batch(calls, results, _width(plan.strategy), self._left())
        try:
            return await batch.run(run_one, [self._is_barrier(call, box) for call in calls])
        except asyncio.CancelledError:
            # Whoever stops a run still gets a conversation in which every call has its result.
            await self.record([Message("tool", results=tuple(results))])
            self.results.extend(results)
            raise

    async def _called(self, call: ToolCall) -> ToolResult:
        box = self.plan.box
        if self.hidden and call.name in box and box[call.name].name in self.hidden:
            known = [tool.name for tool in box if tool.name not in self.hidden]
            return ToolResult(call.id, call.name, error=UnknownTool(call.name, known), attempts=0)
        emit = self.plan.emit
        told = None if emit is None else (lambda report: emit(CallProgress(report)))
        return await self.plan.box.call(call, context=self.plan.context, on_progress=told)

    def _effect(self, number: int, place: int, call: ToolCall) -> Effect:
        options = self.plan.box[call.name].options if call.name in self.plan.box else None
        arguments = call.arguments if isinstance(call.arguments, dict) else {"text": str(call.arguments or "")}
        again = options is None or options.repeatable
        return Effect(self.plan.run, f"{number}/{place}/{call.name}", "tool", call.name, arguments, repeatable=again)

    @staticmethod
    def _is_barrier(call: ToolCall, box: Toolbox) -> bool:
        return call.name in box and box[call.name].options.alone

    # --- the record ----------------------------------------------------------------------------------

    async def record(self, messages: Sequence[Message], *, keep: bool = True) -> None:
        """Add to the conversation, and to what is kept of it."""
        self.messages.extend(messages)
        if keep and self.plan.memory is not None:
            await self.plan.memory.append(self.plan.conversation or "", messages)

    def over(self, number: int) -> bool:
        """Tell whether the run has used up its turns or its time."""
        steps, left = self.plan.limits.steps, self._left()
        return (steps is not None and number >= steps) or (left is not None and left <= 0)

    def _left(self) -> float | None:
        seconds = self.plan.limits.seconds
        return None if seconds is None else max(0.0, seconds - (time.monotonic() - self.started))

    def _tell(self, event: Event) -> None:
        if self.plan.emit is not None:
            self.plan.emit(event)

    def cancelled(self) -> None:
        """Note that the run was called off; a call that had not begun gets a result that says so."""
        self.finish = "cancelled"
        last = self.messages[-1] if self.messages else None
        if last is not None and last.calls:
            gone = [ToolResult(c.id, c.name, error=ToolCancelled(c.name), attempts=0) for c in last.calls]
            self.messages.append(Message("tool", results=gone))

    def reply(self) -> Reply:
        """Return what the run has come to."""
        return Reply(
            (*self.system, *self.messages),
            self.finish,
            tuple(self.calls),
            tuple(self.results),
            self.usage,
            self.pending,
            self.plan.conversation,
            self.plan.run,
            tuple(self.steps),
            said=len(self.system) + self.said,
        )


def _width(strategy: Strategy) -> int:
    if isinstance(strategy, Sequential):
        return 1
    return 64 if strategy.limit is None else strategy.limit


def _is_over(result: ToolResult) -> bool:
    return isinstance(result.error, LimitExceeded) and "for this run" in str(result.error)


def _dump_reply(reply: ModelReply) -> dict[str, Any]:
    usage = {name: getattr(reply.usage, name) for name in Usage.__slots__}
    return {"message": reply.message.to_dict(), "finish": reply.finish, "usage": usage}


def _load_reply(data: dict[str, Any]) -> ModelReply:
    return ModelReply(Message.from_dict(data["message"]), data["finish"], Usage(**data["usage"]))


_REPLY = Form(_dump_reply, _load_reply)
_RESULT = Form(dump_result, load_result)
