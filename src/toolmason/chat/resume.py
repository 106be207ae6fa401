"""Resume a saved run with decisions on its pending calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from toolmason._core.call.approval import DECISION_USER, ApprovalRequest, Decision
from toolmason._core.define.context import ContextLike
from toolmason._core.toolbox.approvals import restore_call
from toolmason._core.toolbox.exchange import ModelReply, ToolChoice
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.messages import Message
from toolmason._core.values.policy import Limits
from toolmason._core.values.results import ToolResult
from toolmason.chat.events import CallProgress, Event
from toolmason.chat.loop import ModelTurn
from toolmason.chat.reply import Reply
from toolmason.chat.run import Run
from toolmason.chat.search import ToolSearch
from toolmason.chat.send_options import SendOptions
from toolmason.chat.tools import RequestTools
from toolmason.errors import ApprovalDenied, ApprovalRequired, ConfigError

_log = logging.getLogger("toolmason")


def load_waiting(saved: Mapping[str, Any] | Reply[Any]) -> Reply[Any]:
    """Return a run that waits for approval.

    Raises:
        ConfigError: the data is not a saved run, or the run is not waiting.
    """
    reply = saved if isinstance(saved, Reply) else Reply.load(saved)
    if not reply.pending or not any(message.results for message in reply.messages):
        raise ConfigError("This run is not waiting for approval. Send the next message instead.")
    return reply


def make_resume_options(  # noqa: PLR0913 - one parameter for each option
    reply: Reply[Any],
    output: Any,
    *,
    tools: Any = None,
    add_tools: Any = None,
    context: ContextLike = None,
    tool_choice: ToolChoice | str | None = None,
    limits: Limits | None = None,
) -> SendOptions:
    """Return the options of a run that is resumed."""
    attempts = 0 if reply.answer is None else reply.answer.attempts
    return SendOptions(tools, add_tools, context, reply.conversation, tool_choice, limits, reply.run, output, attempts)


def verify_decisions(box: Toolbox, decisions: Iterable[Decision | Mapping[str, Any]]) -> dict[str, Decision]:
    """Return the valid decisions by request ID. Forged or damaged ones are logged and ignored.

    Raises:
        ConfigError: a value is not a decision.
    """
    verified: dict[str, Decision] = {}
    given_decisions: Iterable[Any] = [decisions] if isinstance(decisions, Decision) else decisions
    for given in given_decisions:
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
    """Saved run, with the results of its last turn so far and the decisions by request ID."""

    reply: Reply[Any]
    results: Sequence[ToolResult]
    decisions: Mapping[str, Decision]

    async def resume(self, run: Run, turn: ModelTurn) -> ModelTurn | None:
        """Run the calls that have a decision. Return the next turn, or None if the run still waits or is over.

        Raises:
            ConfigError: the last turn of the saved run has no calls.
        """
        last_message = run.messages[-1] if run.messages else None
        if last_message is None or not last_message.calls:
            raise ConfigError("This saved run is damaged: its last turn has no calls. Save it again.")
        pending_requests = {request.call_id: request for request in self.reply.pending}
        run.turns = self.reply.turns
        await self._restore_calls(run)
        decided = await self._run_decided_calls(run, last_message, pending_requests)
        new_results = {result.call_id: result for result in decided}
        results = [new_results.get(result.call_id, result) for result in self.results]
        previous_turn = ModelTurn(turn.request, run.turns, turn.conversation, run)
        return await run.handle_results(previous_turn, ModelReply(last_message, last_message.calls, "calls"), results)

    async def _run_decided_calls(
        self, run: Run, message: Message, pending_requests: Mapping[str, ApprovalRequest]
    ) -> list[ToolResult]:
        """Run the calls of the last turn that have a decision. The others keep waiting."""
        results: list[ToolResult] = []
        for index, call in enumerate(message.calls):
            request = pending_requests.get(call.id)
            if request is None:
                continue
            decision = self.decisions.get(request.id)
            if decision is None:
                error = ApprovalRequired(call.name, request)
                results.append(ToolResult(call.id, call.name, error=error, attempts=0))
            else:
                results.append(await run.run_call(run.turns, index, call, partial(_resume_call, run, decision)))
        return results

    async def _restore_calls(self, run: Run) -> None:
        """Restore earlier calls, so that limits continue from there and the reply includes them."""
        run_messages = run.messages[run.history_length :]
        earlier_results = [result for message in run_messages for result in message.results]
        results_by_call = {result.call_id: result for result in (*earlier_results, *self.results)}
        run.calls = [call for message in run_messages for call in message.calls]
        run.results = earlier_results
        for call in run.calls:
            if call.id in results_by_call:
                await restore_call(get_state(run.plan.box), call, results_by_call[call.id])


async def _resume_call(run: Run, decision: Decision) -> ToolResult:
    user = DECISION_USER.set("" if run.execution is None else f"run {run.plan.run_id}")
    emit = run.plan.emit
    on_progress = None if emit is None else (lambda report: emit(CallProgress(report)))
    try:
        return await run.plan.box.approvals.resume(decision, context=run.plan.context, on_progress=on_progress)
    finally:
        DECISION_USER.reset(user)


@dataclass(slots=True, eq=False, repr=False)
class PreparedRun:
    """A run that is about to start, or to continue."""

    run: Run
    new_messages: list[Message]
    tool_choice: ToolChoice | str | None
    tool_search: ToolSearch | None
    resumed: ResumedRun | None = None


Prepare: TypeAlias = Callable[[Callable[[Event], None] | None, RequestTools], Coroutine[Any, Any, PreparedRun]]
"""Function that prepares a run: of the function that emits its events, and its tools."""
