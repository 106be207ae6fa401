"""Resume a saved run with decisions on its pending calls."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolmason._core.call.approval import Decision
from toolmason._core.toolbox.approvals import restore_call
from toolmason._core.toolbox.exchange import ModelReply
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason._core.values.results import ToolResult
from toolmason.chat.loop import ModelTurn
from toolmason.chat.reply import Reply
from toolmason.chat.run import Run
from toolmason.errors import ApprovalDenied, ConfigError

_log = logging.getLogger("toolmason")


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

    reply: Reply
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
        decided = await run.run_decided_calls(run.turns, last_message, pending_requests, self.decisions)
        new_results = {result.call_id: result for result in decided}
        results = [new_results.get(result.call_id, result) for result in self.results]
        previous_turn = ModelTurn(turn.request, run.turns, turn.conversation, run)
        return await run.handle_results(previous_turn, ModelReply(last_message, last_message.calls, "calls"), results)

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
