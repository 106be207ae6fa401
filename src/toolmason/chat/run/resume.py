"""Resume a saved run with decisions on its pending calls."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from typing_extensions import Unpack

from toolmason._core.call.approval import DECISION_USER, Allow, ApprovalRequest, Decision
from toolmason._core.toolbox.approvals import restore_call
from toolmason._core.toolbox.exchange import ModelReply
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.messages import Message
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.chat.loop import ModelTurn
from toolmason.chat.reply import Reply
from toolmason.chat.run.delegation import count_steps
from toolmason.chat.run.external import make_external_result, select_inner, take_results
from toolmason.chat.run.plan import ResumedChat
from toolmason.chat.run.run import Run
from toolmason.chat.send_options import ResumeKeywords, SendOptions
from toolmason.errors import ApprovalDenied, ApprovalRequired, ConfigError

_log = logging.getLogger("toolmason")


def load_waiting(saved: Mapping[str, Any] | Reply[Any]) -> Reply[Any]:
    """Return a run that waits for approval.

    Raises:
        ConfigError: the data is not a saved run, or the run is not waiting.
    """
    reply = saved if isinstance(saved, Reply) else Reply.load(saved)
    if not (reply.pending or reply.external) or not any(message.results for message in reply.messages):
        raise ConfigError("This run is not waiting for approval. Send the next message instead.")
    return reply


def make_resume_options(
    reply: Reply[Any], output: Any, results: Iterable[ToolResult], **options: Unpack[ResumeKeywords]
) -> SendOptions:
    """Return the options of a run that is resumed.

    Raises:
        ConfigError: a result is not of a call that the run waits for.
    """
    attempts = 0 if reply.answer is None else reply.answer.attempts
    given = take_results(reply, results)
    return SendOptions(
        **options,
        conversation=reply.conversation,
        run=reply.run,
        output=output,
        attempts=attempts,
        results=given,
        trace=reply.trace,
    )


def verify_decisions(box: Toolbox, decisions: Iterable[Decision | Mapping[str, Any]]) -> dict[str, Decision]:
    """Return the valid decisions by request ID. Forged or damaged ones are logged and ignored.

    Raises:
        ConfigError: a value is not a decision.
    """
    verified: dict[str, Decision] = {}
    items: Any = decisions
    for given in items if isinstance(items, Iterable) else [items]:
        if not isinstance(given, Decision | Mapping):
            raise ConfigError(
                f"{given!r:.80} is not a decision. Pass one from `box.approvals.decide(request, Allow())`."
            )
        try:
            decision = given if isinstance(given, Decision) else Decision.from_dict(given)
        except ApprovalDenied:
            _log.warning("ignored a damaged decision")
            continue
        if box.approvals.verify(decision):
            verified[decision.request.id] = decision
        else:
            _log.warning(
                "ignored a decision about %r: it is not signed with this toolbox's approval_key", decision.request.tool
            )
    return verified


@dataclass(frozen=True, slots=True, eq=False)
class ResumedRun:
    """Saved run, with the results of its last turn so far, the decisions by request ID, and new results."""

    reply: Reply[Any]
    results: Sequence[ToolResult]
    decisions: Mapping[str, Decision]
    given: Sequence[ToolResult] = ()
    """Results of calls that the application ran."""

    async def resume(self, run: Run, turn: ModelTurn) -> ModelTurn | None:
        """Run the calls that have a decision. Return the next turn, or None if the run still waits or is over.

        Raises:
            ConfigError: the last turn of the saved run has no calls.
        """
        last_message = run.messages[-1] if run.messages else None
        if last_message is None or not last_message.calls:
            raise ConfigError("This saved run is damaged: its last turn has no calls. Save it again.")
        pending_requests = {request.call_id: request for request in self._get_own_requests()}
        run.turns = self.reply.turns
        run.turn_calls.offer(turn.request.tools)
        run.turn_calls.turns.append((run.turns, last_message.calls))
        await self._restore_calls(run)
        decided = await self._run_decided_calls(run, last_message, pending_requests)
        new_results = {result.call_id: result for result in decided}
        results = [new_results.get(result.call_id, result) for result in self.results]
        previous_turn = ModelTurn(turn.request, run.turns, turn.conversation, run)
        return await run.handle_results(previous_turn, ModelReply(last_message, last_message.calls, "calls"), results)

    async def _run_decided_calls(
        self, run: Run, message: Message, pending_requests: Mapping[str, ApprovalRequest]
    ) -> list[ToolResult]:
        """Run the calls of the last turn that have a decision, and take given results. The others keep waiting."""
        results: list[ToolResult] = []
        external = {call.id: call.raw for call in self.reply.external}
        given = {result.call_id: result for result in self.given}
        for index, call in enumerate(message.calls):
            if call.id in given:
                work = partial(_return_result, given[call.id])
                results.append(await run.turn_calls.run_call(run.turns, index, call, work))
                continue
            if call.id in external:
                results.append(make_external_result(call, external[call.id]))
                continue
            if (waiting := self.reply.waiting.get(call.id)) is not None:
                results.append(await self._resume_chat(run, index, call, waiting))
                continue
            request = pending_requests.get(call.id)
            if request is None:
                continue
            decision = self.decisions.get(request.id)
            if decision is None:
                error = ApprovalRequired(call.name, request)
                results.append(ToolResult(call.id, call.name, error=error, attempts=0))
            else:
                results.append(
                    await run.turn_calls.run_call(run.turns, index, call, partial(_resume_call, run, call, decision))
                )
        return results

    async def _resume_chat(self, run: Run, index: int, call: ToolCall, waiting: Reply[Any]) -> ToolResult:
        """Resume a chat that was called as a tool with the decisions on its calls. Without one, it keeps waiting."""
        decisions = [self.decisions[request.id] for request in waiting.pending if request.id in self.decisions]
        given = select_inner(call, self.given)
        if decisions or given:
            run.plan.resumed[call.id] = ResumedChat(waiting, decisions, given)
            return await run.turn_calls.run_call(run.turns, index, call, partial(_resume_chat_call, run, call))
        run.plan.waiting[call.id] = waiting
        if not waiting.pending:
            return make_external_result(call)
        error = ApprovalRequired(call.name, waiting.pending[0])
        return ToolResult(call.id, call.name, error=error, attempts=0)

    def _get_own_requests(self) -> list[ApprovalRequest]:
        """Return the requests for calls of this run, and not of the chats that it called."""
        delegated = {request.id for reply in self.reply.waiting.values() for request in reply.pending}
        return [request for request in self.reply.pending if request.id not in delegated]

    async def _restore_calls(self, run: Run) -> None:
        """Restore earlier calls, so that limits continue from there and the reply includes them."""
        spending = run.plan.spending
        spending.usage, spending.cost, spending.steps = self.reply.usage, self.reply.cost, count_steps(self.reply)
        run.delegations = [*self.reply.delegations]
        state = get_state(run.plan.box).run
        delegated = run.plan.delegated
        if state is not None:
            if delegated is not None and delegated.is_counted:
                state.parent = None
            for delegation in run.delegations:
                state.add_delegated(delegation.calls)
        run.compacted = self.reply.compacted
        if state is not None:
            state.add_delegated(run.compacted[1])
        run_messages = run.messages[run.history_length :]
        earlier_results = [result for message in run_messages for result in message.results]
        results_by_call = {result.call_id: result for result in (*earlier_results, *self.results)}
        run.results = earlier_results
        for number, message in enumerate(run_messages, -len(run_messages)):  # negative: none is a later turn
            run.turn_calls.run_state.rejected.turn = number
            run.calls += message.calls
            for call in message.calls:
                # The call of a chat that waits is made again, and counted then.
                if call.id in results_by_call and call.id not in self.reply.waiting:
                    result = results_by_call[call.id]
                    await restore_call(get_state(run.plan.box), call, result, run.plan.context)
        if state is not None and delegated is not None:
            state.parent = get_state(delegated.caller.box).run


async def _return_result(result: ToolResult) -> ToolResult:
    return result


async def _resume_chat_call(run: Run, call: ToolCall) -> ToolResult:
    """Run the call of a chat that waits. If the call itself needs approval, it was approved before the chat began."""
    result = await run.turn_calls.call_tool(call)
    if isinstance(result.error, ApprovalRequired) and call.id not in run.plan.waiting:
        return await _resume_call(run, call, run.plan.box.approvals.decide(result.error.request, Allow()))
    return result


async def _resume_call(run: Run, call: ToolCall, decision: Decision) -> ToolResult:
    user = DECISION_USER.set("" if run.plan.execution is None else f"run {run.plan.run_id}")
    plan = run.plan
    try:
        result = await plan.box.approvals.resume(decision, context=plan.context, on_progress=plan.on_progress)
        return run.turn_calls.complete(call, result)
    finally:
        DECISION_USER.reset(user)
