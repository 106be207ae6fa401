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
from toolmason.chat.durable.effects import Effect, Work
from toolmason.chat.durable.reconcile import REPLY, RESULT, asker
from toolmason.chat.durable.runtime import Driven
from toolmason.chat.events import CallFinished, CallProgress, CallStarted, Event, StepFinished
from toolmason.chat.loop import Turn, with_messages
from toolmason.chat.memory import Memory
from toolmason.chat.reply import Finish, Reply, Step
from toolmason.errors import ApprovalRequired, ConfigError, LimitExceeded, ToolCancelled, UnknownOutcome, UnknownTool
from toolmason.models.protocol import Model

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
    turns: int = 0
    """How many turns the model has taken, in every process that drove the run."""
    ids: set[str] = field(default_factory=set)
    """The ids of calls that the conversation holds."""
    last: ModelReply | None = None
    """The last answer whose calls were run."""
    offered: tuple[Sequence[ToolDefinition], frozenset[str]] = ((), frozenset())
    """The tools of the last request, and their names; no other tool of the toolbox can be called."""

    def __post_init__(self) -> None:
        self.know(self.messages)

    def know(self, messages: Sequence[Message]) -> None:
        """Take what was said before."""
        self.messages, self.said = [*messages], len(messages)
        self.ids = {call.id for message in messages for call in message.calls}

    async def begin(self, new: Sequence[Message]) -> None:
        """Write down what the run is asked; where it was begun before, go back to what was said until then.

        Raises:
            ConfigError: the run was begun with something else.
        """

        def facts() -> dict[str, Any]:
            said = {"asked": new, "before": self.messages, "system": self.system}
            plain = {name: [message.to_dict() for message in messages] for name, messages in said.items()}
            return {**plain, "model": self.plan.model.name, "conversation": self.plan.conversation}

        known = await self.driven.begin(facts)
        if known is None:
            return
        if known["asked"] != [message.to_dict() for message in new]:
            raise ConfigError(
                f"The run {self.plan.run!r} was begun with another message. Send the same again, or name another run."
            )
        self.know([Message.from_dict(message) for message in known["before"]])

    def came_to(self) -> dict[str, Any]:
        """Return what is written down of the end."""
        reply = self.reply()
        return {"text": reply.text, "turns": self.turns, "saved": reply.save() if self.pending else None}

    # --- asking the model ----------------------------------------------------------------------------

    async def ask(self, turn: Turn) -> ModelReply:
        """Ask the model for one turn."""
        began = time.perf_counter()
        model = self.plan.model
        if self.offered[0] is not turn.request.tools:
            self.offered = (turn.request.tools, frozenset(tool.name for tool in turn.request.tools))
        effect = Effect(self.plan.run, f"{turn.number}/model", "model", model.name, {"messages": len(turn.messages)})
        reply: ModelReply = await self.driven.perform(effect, lambda: self._answered(turn.request), REPLY)
        reply = self._with_own_ids(reply)
        self.turns = turn.number
        self.usage += reply.usage
        names = tuple(call.name for call in reply.calls)
        self.steps.append(Step(turn.number, reply.text, names, time.perf_counter() - began))
        return reply

    async def _answered(self, request: ModelRequest) -> ModelReply:
        left = self._left()
        if left is None and self.plan.emit is None:
            return await self.plan.model.respond(request)
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
        """Give each call an id of its own, and a name: providers refuse a conversation without."""
        calls: list[ToolCall] = []
        for call in reply.calls:
            own, number = call.id or "call", 1
            while own in self.ids:
                number += 1
                own = f"{call.id or 'call'}_{number}"
            self.ids.add(own)
            whole = own == call.id and call.name
            calls.append(call if whole else replace(call, id=own, name=call.name or "unknown"))
        if all(mine is theirs for mine, theirs in zip(calls, reply.calls, strict=True)):
            return reply
        message = reply.message
        return replace(
            reply, message=Message(message.role, message.content, calls, provider_state=message.provider_state)
        )

    # --- doing what it asks for ----------------------------------------------------------------------

    async def after(self, turn: Turn, reply: ModelReply) -> Turn | None:
        """Do what the model asked for; return the next turn, or `None` where the run is over."""
        execute = self.plan.execute
        if wants_more(reply) and execute is not False:
            if self.over(turn.number):
                self.finish = "limit"
                return None
            await self.record([reply.message])
            self._tell(StepFinished(turn.number, reply))
            return await self.next(turn)
        if not reply.calls or not (execute(turn.request, reply) if callable(execute) else execute):
            return None
        await self.record([reply.message])
        self.calls.extend(reply.calls)
        self.last = reply
        results = await self.perform(turn.number, reply.calls)
        return await self.answered(turn, reply, results)

    async def close(self, reply: ModelReply) -> None:
        """Take the last answer, as the advisors leave it; where its calls were run, it is in the record already."""
        if reply is self.last or self.pending:
            return
        await self.record([reply.message])
        self.calls.extend(reply.calls)
        if self.finish != "limit":
            self.finish = "calls" if reply.calls else "stop"
        self._tell(StepFinished(self.turns, reply))

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
        elif self.over(turn.number) or any(is_over(result) for result in results):
            self.finish = "limit"
        else:
            return await self.next(turn)
        return None

    async def next(self, turn: Turn) -> Turn:
        """Return the turn after this one; a choice that was forced holds once."""
        request = with_messages(turn.request, await self.shown(), tool_choice=None, tools=self._tools(turn.request))
        return Turn(request, turn.number + 1, turn.conversation, self)

    def _tools(self, request: ModelRequest) -> tuple[ToolDefinition, ...]:
        """Return the tools of the next turn: the same, and `read_result` as soon as there is something to read."""
        if READ_RESULT not in self.plan.box or any(tool.name == READ_RESULT for tool in request.tools):
            return request.tools
        reader = [tool.definition for tool in self.plan.box.tools if tool.name == READ_RESULT]
        return tuple(sorted([*request.tools, *reader], key=lambda tool: tool.name))

    async def shown(self, messages: Sequence[Message] | None = None) -> tuple[Message, ...]:
        """Return what the model is shown next."""
        if self.plan.history:
            said = self.messages if messages is None else messages
            return (*self.system, *said) if self.system else tuple(said)
        assert self.plan.memory is not None  # noqa: S101 - the chat has looked
        return (*self.system, *await self.plan.memory.load(self.plan.conversation or ""))

    async def perform(self, number: int, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run calls: side by side or in order, each once, each with a result."""
        results: list[ToolResult] = []
        places = {id(call): place for place, call in enumerate(calls)}
        left = self._left()
        begun: dict[int, ToolCall] = {}

        async def run_one(call: ToolCall, ends: float | None) -> ToolResult:
            del ends
            begun[places[id(call)]] = call
            self._tell(CallStarted(call))
            result = await self._performed(number, places[id(call)], call, lambda: self._called(call))
            self._tell(CallFinished(call, result))
            del begun[places[id(call)]]
            return result

        try:
            if len(calls) == 1 and left is None:
                # Most turns ask for one thing, which needs no turn of its own.
                results.append(cancelled(calls[0]))
                results[0] = await run_one(calls[0], None)
                return results
            batch = Batch(calls, results, _width(self.plan.strategy), left)
            return await batch.run(run_one, [self._is_barrier(call) for call in calls])
        except asyncio.CancelledError:
            # Whoever stops a run still gets a conversation in which every call has its result. A journal may know
            # better when the run is driven again, so that a memory waits for that.
            for place, call in begun.items():
                self._tell(CallFinished(call, results[place]))
            await self.record([Message("tool", results=tuple(results))], keep=not self.driven.keeps)
            self.results.extend(results)
            raise

    async def decided(
        self, number: int, asked: Message, waiting: Mapping[str, ApprovalRequest], decisions: Mapping[str, Decision]
    ) -> list[ToolResult]:
        """Run the calls of a turn that were decided about; what was not keeps waiting."""
        results: list[ToolResult] = []
        for place, call in enumerate(asked.calls):
            request = waiting.get(call.id)
            if request is None:
                continue
            decision = decisions.get(request.id)
            if decision is None:
                error = ApprovalRequired(call.name, request)
                results.append(ToolResult(call.id, call.name, error=error, attempts=0))
            else:
                results.append(await self._performed(number, place, call, partial(self._resumed, decision)))
        return results

    async def _performed(self, number: int, place: int, call: ToolCall, work: Work) -> ToolResult:
        """Return what came of a call: from the journal, by making it now, or that nobody knows."""
        made = False

        async def make() -> ToolResult:
            nonlocal made
            made = True
            result: ToolResult = await work()
            return result

        options = self._options(call.name)
        effect = self._effect(f"{number}/{place}/{call.name}", call, options)
        try:
            result: ToolResult = await self.driven.perform(
                effect, make, RESULT, asker(call, options, self.plan.context)
            )
        except UnknownOutcome as unknown:
            return ToolResult(call.id, call.name, error=unknown, attempts=0)
        if result.call_id != call.id:
            result = ToolResult(**{**vars(result), "call_id": call.id})
        if not made:
            # What was done in another process counts, too: a run that is driven again does not get more.
            self.plan.box.recall(call, result)
        return result

    def _options(self, name: str) -> ToolOptions | None:
        try:
            return self.plan.box[name].options
        except KeyError:
            return None

    def _known_as(self, name: str) -> str | None:
        """Return the name of the tool that a call means; `None` where only a resolver may know it."""
        try:
            return self.plan.box[name].name
        except KeyError:
            return READ_RESULT if name == READ_RESULT and name in self.plan.box else None

    async def _called(self, call: ToolCall) -> ToolResult:
        offered = self.offered[1]
        known = call.name if call.name in offered else self._known_as(call.name)
        if known is not None and known not in offered:
            return ToolResult(call.id, call.name, error=UnknownTool(call.name, sorted(offered)), attempts=0)
        emit = self.plan.emit
        told = None if emit is None else (lambda report: emit(CallProgress(report)))
        return await self.plan.box.call(call, context=self.plan.context, on_progress=told)

    async def _resumed(self, decision: Decision) -> ToolResult:
        return await self.plan.box.resume(decision, context=self.plan.context)

    def _effect(self, key: str, call: ToolCall, options: ToolOptions | None) -> Effect:
        arguments = call.arguments if isinstance(call.arguments, dict) else {"text": str(call.arguments or "")}
        again = options is None or options.repeatable
        return Effect(self.plan.run, key, "tool", call.name, arguments, repeatable=again)

    def _is_barrier(self, call: ToolCall) -> bool:
        options = self._options(call.name)
        return options is not None and options.alone

    # --- the record ----------------------------------------------------------------------------------

    async def record(self, messages: Sequence[Message], *, keep: bool = True) -> None:
        """Add to the conversation, and to what is kept of it."""
        place = len(self.messages) - self.said
        self.messages.extend(messages)
        memory, name = self.plan.memory, self.plan.conversation or ""
        if not keep or memory is None:
            return
        once: Any = getattr(memory, "append_once", None)
        if self.driven.keeps and once is not None:
            # A run that is driven again says the same things again.
            await once(name, f"{self.plan.run}/{place}", messages)
        else:
            await memory.append(name, messages)

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
            self.messages.append(Message("tool", results=map(cancelled, last.calls)))

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
            turns=self.turns,
        )


def _width(strategy: Strategy) -> int:
    if isinstance(strategy, Sequential):
        return 1
    return 64 if strategy.limit is None else strategy.limit


def wants_more(reply: ModelReply) -> bool:
    """Tell whether the provider stopped in the midst of its own work, and goes on as soon as it is asked again."""
    if reply.finish != "pause" or reply.calls:
        return False
    state = reply.message.provider_state
    items = state.get("items", ()) if isinstance(state, Mapping) else ()
    # One that asks for approval waits for a person.
    return not any(item.get("type") == "mcp_approval_request" for item in items if isinstance(item, Mapping))


def cancelled(call: ToolCall) -> ToolResult:
    """Return the result of a call that was called off."""
    return ToolResult(call.id, call.name, error=ToolCancelled(call.name), attempts=0)


def is_over(result: ToolResult) -> bool:
    """Tell whether a call was refused because a limit of the whole run is used up."""
    # By its code: one that was read from a journal is no `LimitExceeded` any more.
    return result.error is not None and result.error.code == "limit_exceeded" and "for this run" in result.error.message


def exceeded(limits: Limits, turns: int, results: Sequence[ToolResult]) -> LimitExceeded:
    """Return the error that names the limit at which a run ended."""
    told = next((result.error for result in reversed(results) if is_over(result)), None)
    if isinstance(told, LimitExceeded):
        used = told.limit
    elif told is not None:
        used = f"limit of {limits.calls} calls"
    elif limits.steps is not None and turns >= limits.steps:
        used = f"limit of {limits.steps} steps"
    else:
        used = f"limit of {limits.seconds} seconds"
    return LimitExceeded("The next turn", used, "Raise it, or read what there is with on_limit='stop'.")
