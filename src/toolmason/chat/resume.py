"""A saved run and decisions → the turn after the calls that waited.

Lives here: which of its calls are made now, and which results are there already. Not here: checking a signature
(`_core.approve`), or what follows (`run`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolmason._core.call.approval import Decision
from toolmason._core.toolbox.exchange import ModelReply
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.results import ToolResult
from toolmason.chat.loop import Turn
from toolmason.chat.reply import Reply
from toolmason.chat.run import Run
from toolmason.errors import ApprovalDenied, ConfigError

_log = logging.getLogger("toolmason")


def genuine(box: Toolbox, decisions: Iterable[Decision | Mapping[str, Any]]) -> dict[str, Decision]:
    """Return the decisions that a toolbox signed, by their requests; a forged or damaged one counts for nothing.

    Raises:
        ConfigError: what is given cannot be a decision at all.
    """
    found: dict[str, Decision] = {}
    one_or_more: Iterable[Any] = [decisions] if isinstance(decisions, Decision) else decisions
    for given in one_or_more:
        if not isinstance(given, Decision | Mapping):
            raise ConfigError(f"{given!r:.80} is no decision. Give what `box.decide(request, Allow())` returned.")
        try:
            decision = given if isinstance(given, Decision) else Decision.from_dict(given)
        except ApprovalDenied:
            _log.warning("a decision is damaged, and counts for nothing")
            continue
        if box.signed(decision):
            found[decision.request.id] = decision
        else:
            _log.warning("a decision about %r is not signed with this toolbox's approval_key", decision.request.tool)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Resumed:
    """A run that waited, what its last turn came to so far, and what was decided, by request."""

    reply: Reply
    results: Sequence[ToolResult]
    decisions: Mapping[str, Decision]

    async def go_on(self, run: Run, turn: Turn) -> Turn | None:
        """Make the calls that were allowed; return the next turn, or `None` where the run waits still, or is over.

        Raises:
            ConfigError: the saved run has no calls that could wait.
        """
        asked = run.messages[-1] if run.messages else None
        if asked is None or not asked.calls:
            raise ConfigError("This saved run is damaged: its last turn has no calls. Save it again.")
        waiting = {request.call_id: request for request in self.reply.pending}
        run.turns = self.reply.turns
        self._recall(run)
        made = {r.call_id: r for r in await run.decided(run.turns, asked, waiting, self.decisions)}
        results = [made.get(result.call_id, result) for result in self.results]
        before = Turn(turn.request, run.turns, turn.conversation, run)
        return await run.answered(before, ModelReply(asked, asked.calls, "calls"), results)

    def _recall(self, run: Run) -> None:
        """Count what the run did before it waited: limits go on from there, and the reply tells of all of it."""
        mine = run.messages[run.said :]
        earlier = [result for message in mine for result in message.results]
        found = {result.call_id: result for result in (*earlier, *self.results)}
        run.calls = [call for message in mine for call in message.calls]
        run.results = earlier
        for call in run.calls:
            if call.id in found:
                run.plan.box.recall(call, found[call.id])
