"""Run the turns and calls of one chat run, until it ends.

Every turn and every call is an effect that goes through the runtime. Nothing else here has side effects.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from typing import Any

from toolmason._core.call.approval import ApprovalRequest
from toolmason._core.call.call_policy import run_in_time
from toolmason._core.call.deadlines import Deadline
from toolmason._core.run.execute import call_user_function
from toolmason._core.run.tracing import get_traceparent, link_current
from toolmason._core.toolbox.exchange import ModelReply, Usage
from toolmason._core.toolbox.toolbox import get_state
from toolmason._core.values.messages import Message
from toolmason._core.values.provider_tools import get_native_origins
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason._text import to_line
from toolmason.chat.answers import AnswerRun
from toolmason.chat.durable.effects import REPLY_SERIALIZER, RunEffect, RunExecution
from toolmason.chat.events import CallFinished, CallStarted, Compacted, StepFinished
from toolmason.chat.loop import ModelTurn, refuse_turn
from toolmason.chat.memory import apply_window, complete_last_turn
from toolmason.chat.reply import (
    CONTINUE_TEXT,
    Delegation,
    Reply,
    RunFinish,
    Step,
    find_finish,
    find_limit,
    is_paused_by_provider,
    is_run_limit_error,
    make_cancelled_result,
)
from toolmason.chat.run.compaction import Compactor
from toolmason.chat.run.delegation import get_delegation
from toolmason.chat.run.external import find_waiting
from toolmason.chat.run.model_calls import assign_call_ids, call_model
from toolmason.chat.run.plan import RunPlan
from toolmason.chat.run.spending import find_cost
from toolmason.chat.run.tickets import get_tickets
from toolmason.chat.run.turn_calls import TurnCalls
from toolmason.errors import ConfigError

_log = logging.getLogger("toolmason")


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """State of a run in progress."""

    plan: RunPlan
    system: tuple[Message, ...] = ()
    messages: list[Message] = field(default_factory=list)
    """Conversation without the system messages."""
    history_length: int = 0
    results: list[ToolResult] = field(default_factory=list)
    calls: list[ToolCall] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    pending: tuple[ApprovalRequest, ...] = ()
    external: tuple[ToolCall, ...] = ()
    finish: RunFinish = "stop"
    last: ModelReply | None = None
    """Last reply of the model."""
    notes: list[str] = field(default_factory=list)
    recorded: int = 0
    """Number of messages that the run has recorded, across all processes that executed it."""
    turns: int = 0
    """Number of model turns so far, across all processes that executed the run."""
    requests: set[str] = field(default_factory=set)
    """Keys of the requests to the model in the journal."""
    last_executed: ModelReply | None = None
    """Last reply whose calls were run, as the loop has it."""
    limit: str = ""
    """Limit that ended the run; empty if none did."""
    last_input: tuple[int, int] = (0, 0)
    """Number of messages and of input tokens of the last request."""
    delegations: list[Delegation] = field(default_factory=list)
    compactor: Compactor | None = None
    compacted: tuple[int, int] = (0, 0)
    """Number of messages of the run, and of calls in them, that a summary replaced."""
    turn_calls: TurnCalls = field(init=False)

    def __post_init__(self) -> None:
        self.turn_calls = TurnCalls(self.plan)
        state = self.turn_calls.run_state
        state.name, state.owner = self.plan.run_id, self

    def start(self, started: float) -> None:
        """Set the start of the run, before it was prepared. Its time limit also applies to its calls."""
        self.plan.started = started
        seconds = self.plan.limits.seconds
        if seconds is not None:
            self.turn_calls.run_state.deadline = Deadline(started + seconds, seconds, "run timeout")

    def load_history(self, messages: Sequence[Message]) -> None:
        """Set the conversation before this run."""
        self.messages, self.history_length = [*messages], len(messages)
        self.plan.call_ids = {call.id for message in messages for call in message.calls}

    def find_effect(self, call_id: str) -> str:
        """Return the key of a call in the journal; empty if it is not a call of this run."""
        return self.turn_calls.find_effect(call_id)

    def find_origins(self) -> frozenset[str]:
        """Return the origins of what is in the conversation."""
        found = frozenset[str]().union(*[message.origins for message in self.messages])
        native = self.plan.box.native
        if native and any(message.role == "assistant" for message in self.messages):
            codec = getattr(self.plan.model, "codec", None)
            found |= get_native_origins(native, getattr(codec, "name", ""))
        return found

    async def begin(self, new: Sequence[Message], execution: RunExecution) -> None:
        """Record the messages of a new run. If the run was started before, restore its earlier conversation.

        Raises:
            ConfigError: the run was started with other messages.
        """
        trace = get_traceparent()  # not in the thread of the journal, which has no span

        def facts() -> dict[str, Any]:
            messages_by_kind = {"asked": new, "before": self.messages, "system": self.system}
            dumped = {name: [message.to_dict() for message in messages] for name, messages in messages_by_kind.items()}
            tickets = [] if self.plan.tickets is None else self.plan.tickets.ids
            given = {"model": self.plan.model.name, "conversation": self.plan.conversation, "trace": trace}
            return {**dumped, **given, **({"tickets": tickets} if tickets else {})}

        recorded = await execution.begin(facts)
        if recorded is None:
            return
        link_current(str(recorded.get("trace", "")))
        if self.plan.tickets is not None or "tickets" in recorded:
            get_tickets(self.plan).ids[:] = recorded.get("tickets", ())
        if recorded["asked"] != [message.to_dict() for message in new]:
            raise ConfigError(
                f"Run {self.plan.run_id!r} was started with another message. "
                "Send the same message again, or use another run."
            )
        self.load_history([Message.from_dict(message) for message in recorded["before"]])

    def summarize(self) -> dict[str, Any]:
        """Return the facts to record at the end of the run."""
        reply = self.make_reply()
        saved = reply.save() if reply.pending or reply.external else None
        return {"text": reply.text, "turns": self.turns, "finish_reason": reply.finish_reason, "saved": saved}

    # --- model turns ---------------------------------------------------------------------------------

    async def ask_model(self, turn: ModelTurn) -> ModelReply:
        """Ask the model for one turn. An advisor may ask again in the same turn, within the limits of the run."""
        if self.turns == turn.number and await self.must_stop():
            self.finish = "limit"
            await refuse_turn(self)
        started_at = time.perf_counter()
        request = await self.turn_calls.make_offer(turn.request)
        if self.plan.execution is None:
            reply = await call_model(self.plan, request)
        else:
            data = {"messages": len(request.messages)}
            # An advisor may ask several times. A request that failed leaves its key to the next one.
            keys = (f"{turn.number}/model{again}" for again in chain([""], map("/{}".format, count(2))))
            key = next(key for key in keys if key not in self.requests)
            self.requests.add(key)
            effect = RunEffect(self.plan.run_id, key, "model", self.plan.model.name, data)
            work = partial(call_model, self.plan, request)
            try:
                reply = await self.plan.execution.perform(effect, work, REPLY_SERIALIZER)
            except BaseException:
                self.requests.discard(key)
                raise
        if reply.message.calls:
            reply = assign_call_ids(reply, self.plan.call_ids)
        self.last = reply
        self.notes += reply.notes
        prices = self.plan.spending.prices
        cost = None if prices is None else find_cost(prices, reply, self.plan.model.name, self.notes)
        self.last_input = (len(request.messages), reply.usage.input_tokens)
        self._count_turn(turn.number, reply, reply.usage, cost, time.perf_counter() - started_at)
        return reply

    def _count_turn(self, number: int, reply: ModelReply, usage: Usage, cost: float | None, seconds: float) -> None:
        self.turns = number
        names = tuple([call.name for call in reply.message.calls])
        self.plan.spending.add(usage, cost, 0 if self.turn_calls.run_state.is_program else 1)
        self.steps.append(Step(number, reply.message.text, names, seconds, self.plan.model.name))
        if _log.isEnabledFor(logging.DEBUG):
            what = f"calls {to_line(', '.join(names))}" if names else "an answer"
            _log.debug("run %s, turn %d: %s in %.1f ms", self.plan.run_id, number, what, seconds * 1000)

    async def _take(self, turn: ModelTurn, reply: ModelReply) -> ModelReply:
        """Return the reply of an advisor with the same guarantees as one of the model."""
        if self.turns != turn.number:  # the model was not asked: the turn counts, and offers its tools
            await self.turn_calls.make_offer(turn.request)
            self._count_turn(turn.number, reply, Usage(), None, 0.0)
            await asyncio.sleep(0)  # so that a run can be cancelled if nothing in it waits
        return self._identify(reply)

    def _identify(self, reply: ModelReply) -> ModelReply:
        """Give the calls of an advisor's reply IDs that no call of the conversation has."""
        if not reply.message.calls:
            return reply
        taken = {call.id for message in self.messages for call in message.calls} | {call.id for call in self.calls}
        reply = assign_call_ids(reply, taken)
        self.plan.call_ids |= taken
        return reply

    # --- tool calls ----------------------------------------------------------------------------------

    async def handle_reply(self, turn: ModelTurn, reply: ModelReply) -> ModelTurn | None:
        """Run the calls of a reply. Return the next turn, or None if the run is over."""
        given, execute = reply, self.plan.execute
        if reply is not self.last or self.turns != turn.number:
            reply = await self._take(turn, reply)
        calls = reply.message.calls
        if reply.finish == "pause" and execute is not False and is_paused_by_provider(reply):
            return await self._continue_answer(turn, reply)
        may_continue = self.plan.on_length == "continue" and execute is not False and self.plan.answer is None
        if reply.finish == "length" and not calls and may_continue:
            return await self._continue_answer(turn, reply, Message("user", CONTINUE_TEXT))
        if not calls and execute is not False and await self._must_wait_for_tickets():
            return await self._ask_again(turn, reply)
        if (answer := self.plan.answer) is not None and not calls:
            return await self._handle_text_answer(turn, reply, answer)
        is_answer = answer is not None and answer.is_answer(calls)  # taken whatever `execute=` says
        is_left = not calls or not execute
        if not is_answer and (is_left or (callable(execute) and not await self._may_execute(execute, turn, reply))):
            return None
        await self.record([reply.message])
        self.calls.extend(calls)
        self.last_executed = given
        results = await self.run_calls(turn.number, calls)
        return await self.handle_results(turn, reply, results)

    async def _continue_answer(self, turn: ModelTurn, reply: ModelReply, *messages: Message) -> ModelTurn | None:
        """Ask for the rest of an answer that was paused or, with a message, cut off, unless a limit is reached."""
        limit = self.plan.limits.continuations if messages else None
        asked = sum(message.text == CONTINUE_TEXT for message in self.messages[self.history_length :])
        is_over = limit is not None and asked >= limit
        if is_over or await self.must_stop():
            self.finish, self.limit = "limit", f"limit of {limit} continuations" if is_over else self.limit
            return None
        return await self._ask_again(turn, reply, *messages)

    async def _must_wait_for_tickets(self) -> bool:
        """Wait for a ticket if only this run can have its result. Return False if there is none, or a limit."""
        tickets = self.plan.tickets
        if tickets is None or self.plan.conversation is not None or not tickets.get_open() or await self.must_stop():
            return False
        await tickets.wait()
        return True

    async def deliver_tickets(self, number: int) -> None:
        """Record the results of tickets that have arrived before a turn."""
        messages = await self.plan.tickets.deliver(number)
        if not messages:
            return
        await self.record(messages)
        await self.plan.tickets.mark_delivered()
        self.calls.extend(messages[0].calls)
        self.results.extend(messages[1].results)
        if self.plan.emit is not None:
            for call, result in zip(messages[0].calls, messages[1].results, strict=True):
                self.plan.emit(CallStarted(call))
                self.plan.emit(CallFinished(call, result))

    async def _handle_text_answer(self, turn: ModelTurn, reply: ModelReply, answer: AnswerRun) -> ModelTurn | None:
        """Take the text of a reply as the answer. Return the next turn if it is wrong and the model may correct it."""
        if (call := answer.read_text(turn.number, reply)) is None:
            return None
        async with asyncio.timeout(self.plan.get_remaining_seconds()):
            result = await self.turn_calls.run_effect(turn.number, 0, call, partial(answer.take, call))
        [result] = answer.review([call], [result])
        if answer.is_over or not await self._may_answer_again(answer):
            return None
        return await self._ask_again(turn, reply, answer.explain(result))

    async def _ask_again(self, turn: ModelTurn, reply: ModelReply, *messages: Message) -> ModelTurn:
        """Record a reply without calls that does not end the run. Return the next turn."""
        await self.record([reply.message, *messages])
        if self.plan.emit is not None:
            self.plan.emit(StepFinished(turn.number, reply))
        return await self.make_next_turn(turn)

    async def _may_answer_again(self, answer: AnswerRun) -> bool:
        limit = self.plan.limits.answers
        if await self.must_stop() or (limit is not None and answer.attempts >= limit):
            self.finish = "limit"
            return False
        return self.plan.execute is not False

    async def _may_execute(self, execute: Callable[..., Any], turn: ModelTurn, reply: ModelReply) -> bool:
        """Return the answer of the function `execute=`, sync or async, within the time of the run.

        Raises:
            ToolTimeout: the function did not answer in time.
        """
        state = get_state(self.plan.box)
        work = call_user_function(execute, turn.request, reply, settings=state.policy.settings)
        async with asyncio.timeout(self.plan.get_remaining_seconds()):
            return bool(await run_in_time("execute", (state.calls,), work))

    async def finish_with(self, reply: ModelReply) -> None:
        """Record the final reply, as returned by the advisors. If its calls were run, it is already recorded."""
        if reply is self.last_executed or self.finish == "pending":
            return
        if reply is not self.last:
            reply = self._identify(reply)
        message = reply.message
        await self.record([message])
        if message.calls:
            self.calls = [*message.calls]  # the caller runs these, and must not run the earlier ones again
        is_own = reply is self.last and not message.calls and bool(self.steps[-1].text.strip())
        self.last = reply
        if self.finish != "limit":
            has_answer = self.plan.answer is not None and self.plan.answer.is_accepted
            self.finish = "stop" if has_answer or (is_own and reply.finish == "stop") else find_finish(reply)
        if self.finish == "error":
            reason = f" ({to_line(reply.finish_reason)})" if reply.finish_reason else ""
            _log.warning("run %s: the model ended without an answer%s", self.plan.run_id, reason)
        if self.plan.emit is not None:
            self.plan.emit(StepFinished(self.turns, reply))

    async def handle_results(
        self, turn: ModelTurn, reply: ModelReply, results: Sequence[ToolResult]
    ) -> ModelTurn | None:
        """Record the results of a turn. Return the next turn, or None if the run is over."""
        answer = self.plan.answer
        if answer is not None:
            results = answer.review(reply.message.calls, results)
        errors = [result.error for result in results if result.error is not None]
        if errors:
            self.pending, self.external = find_waiting(results, self.plan.waiting)
        is_waiting = bool(errors and (self.pending or self.external))
        await self.record([Message("tool", results=tuple(results))], persist=not is_waiting)
        self.results.extend(results)
        self.delegations += [found for result in results if result.meta and (found := get_delegation(result))]
        if self.plan.emit is not None:
            self.plan.emit(StepFinished(turn.number, reply, tuple(results)))
        if is_waiting:
            self.finish = "pending"
        elif answer is not None and answer.attempts and (answer.is_over or not await self._may_answer_again(answer)):
            return None
        elif not errors and all(result.return_direct for result in results):
            self.finish = "direct"
        elif (
            await self.must_stop()
            or any(map(is_run_limit_error, errors))
            or (self.compactor is not None and await self.compact(turn.number) and await self.must_stop())
        ):
            self.finish = "limit"
        else:
            return await self.make_next_turn(turn)
        return None

    async def make_next_turn(self, turn: ModelTurn) -> ModelTurn:
        """Return the turn after this one. A forced tool choice applies only once."""
        if self.plan.tickets is not None:
            await self.deliver_tickets(turn.number + 1)
        box, tools, request_tools = self.plan.box, turn.request.tools, self.plan.request_tools
        messages = await self.get_visible_messages()
        if request_tools.prepared is not None or request_tools.has_changed():
            tools = await request_tools.update(box, tools)
        if self.plan.tickets is not None or len(get_state(box).result_store):
            tools = self.turn_calls.add_own_tools(tools)
        request = turn.request.with_messages(messages, tool_choice=None, tools=tools)
        return ModelTurn(request, turn.number + 1, turn.conversation, self)

    async def get_visible_messages(self, messages: Sequence[Message] | None = None) -> tuple[Message, ...]:
        """Return the messages that the model sees next."""
        if self.plan.history:
            visible = self.messages if messages is None else messages
            return (*self.system, *visible) if self.system else tuple(visible)
        assert self.plan.memory is not None  # noqa: S101 - checked by Chat
        loaded = await self.plan.memory.load(self.plan.conversation or "")
        return (*self.system, *complete_last_turn(loaded, self.messages, self.messages[self.history_length :]))

    async def run_calls(self, number: int, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Run the calls of a turn. Every call gets a result, also if the run is cancelled."""
        results: list[ToolResult] = []
        try:
            return await self.turn_calls.run(number, calls, results, self.plan.get_remaining_seconds())
        except asyncio.CancelledError:
            # With a journal, a later execution may know the real results, so the memory is not written yet.
            results = results or [*map(make_cancelled_result, calls)]
            await self.record([Message("tool", results=results)], persist=self.plan.execution is None)
            self.results.extend(results)
            raise

    async def compact(self, number: int) -> bool:
        """Replace older messages by a summary if the conversation is too long. Return True if a model was asked."""
        found = None if self.compactor is None else await self.compactor.run(number, self.messages)
        if found is None:
            return False
        memory, old = self.plan.memory, [*self.messages]
        earlier, own = old[: self.history_length], old[self.history_length :]
        if found.summary is None:
            # At the start, the whole conversation was loaded to be compacted.
            earlier = [*apply_window(memory, earlier)] if number == 0 else earlier
        else:
            replaced = {*found.replaced}
            earlier = [found.summary, *(each for i, each in enumerate(earlier) if i not in replaced)]
            own = [each for i, each in enumerate(own, self.history_length) if i not in replaced]
            removed = [old[i] for i in found.replaced if i >= self.history_length]
            messages, calls = self.compacted
            self.compacted = messages + len(removed), calls + sum(len(message.calls) for message in removed)
            replace_once: Any = getattr(memory, "replace_once", None)
            if replace_once is not None:
                conversation = self.plan.conversation or ""
                await replace_once(conversation, found.key, [old[i] for i in found.replaced], found.summary)
            if self.plan.emit is not None:
                self.plan.emit(Compacted(found.summary, len(found.replaced)))
        self.messages[:], self.history_length = [*earlier, *own], len(earlier)
        return True

    # --- messages and limits -------------------------------------------------------------------------

    async def record(self, messages: Sequence[Message], *, persist: bool = True) -> None:
        """Append messages to the conversation and, if `persist`, to the memory."""
        index = self.recorded
        self.recorded += len(messages)
        self.messages.extend(messages)
        memory = self.plan.memory
        conversation = self.plan.conversation or ""
        if not persist or memory is None:
            return
        append_once: Any = getattr(memory, "append_once", None)
        if self.plan.execution is not None and append_once is not None:
            # A run that is executed again appends the same messages.
            await append_once(conversation, f"{self.plan.run_id}/{index}", messages)
        else:
            await memory.append(conversation, messages)

    async def must_stop(self) -> bool:
        """Return True if the run must not ask the model again: a limit, or a budget that it shares, is used up."""
        for budget in self.plan.budgets:
            if found := await budget.find_limit():
                self.limit = found
                return True
        return self.is_over_limit()

    def is_over_limit(self) -> bool:
        """Return True if the run, or one that it belongs to, has used up its turns, its time or its budget."""
        count, tokens = self.last_input
        # The next request has the messages of the last one and more, unless only some of them are sent.
        next_input = tokens if self.plan.history and len(self.messages) + len(self.system) >= count else 0
        self.limit = self.plan.spending.find_limit(next_input)
        if not self.limit and self.turn_calls.run_state.is_exhausted:
            self.limit = f"limit of {self.plan.limits.calls} calls"
        if self.limit:
            return True
        remaining = self.plan.get_remaining_seconds()
        return remaining is not None and remaining <= 0

    def mark_cancelled(self) -> None:
        """Mark the run as cancelled. Calls that had not started get a result that says so."""
        self.finish = "cancelled"
        last_message = self.messages[-1] if self.messages else None
        if last_message is not None and last_message.calls:
            self.messages.append(Message("tool", results=map(make_cancelled_result, last_message.calls)))

    def make_reply(self) -> Reply[Any]:
        """Return the reply of the run so far."""
        spending = self.plan.spending
        reply: Reply[Any] = Reply(
            (*self.system, *self.messages),
            self.finish,
            tuple(self.calls),
            tuple(self.results),
            spending.usage,
            self.pending,
            self.plan.conversation,
            self.plan.run_id,
            tuple(self.steps),
            history_length=len(self.system) + self.history_length,
            turns=self.turns,
            answer=None if self.plan.answer is None else self.plan.answer.report(self.finish),
            cost=spending.cost,
            delegations=tuple(self.delegations),
            waiting=self.plan.waiting,
            external=self.external,
            compacted=self.compacted,
            finish_reason="" if self.last is None else self.last.finish_reason,
            model="" if self.last is None else self.last.model or self.plan.model.name,
            notes=tuple(dict.fromkeys(self.notes)),
            tickets=() if self.plan.tickets is None else tuple([ticket.id for ticket in self.plan.tickets.get_open()]),
        )
        if self.finish != "limit":
            return reply
        return replace(reply, limit=self.limit or find_limit(self.plan.limits, reply))
