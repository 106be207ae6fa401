"""Encode effects as JSON for the journal, and reconcile calls that were interrupted."""

from __future__ import annotations

import inspect
import logging
from typing import Any, Final

from toolmason._core.call.admission import parse_arguments
from toolmason._core.define.context import ToolContext
from toolmason._core.toolbox.exchange import ModelReply
from toolmason._core.values.definition import ToolOptions
from toolmason._core.values.messages import dump_result, load_result
from toolmason._core.values.results import ToolCall, ToolResult
from toolmason.chat.durable.effects import Completed, NotExecuted, ReconciledOutcome, Reconciler
from toolmason.chat.durable.journal import make_result
from toolmason.chat.durable.runtime import OutcomeSerializer
from toolmason.errors import ApprovalRequired


def _dump_result(result: ToolResult) -> dict[str, Any] | None:
    # A call that waits for a human was not made. It is asked about again, with a request that this process signs.
    return None if isinstance(result.error, ApprovalRequired) else dump_result(result)


REPLY_SERIALIZER: Final = OutcomeSerializer(ModelReply.to_dict, ModelReply.from_dict)
RESULT_SERIALIZER: Final = OutcomeSerializer(_dump_result, load_result)

_log = logging.getLogger("toolmason")


def make_reconciler(call: ToolCall, options: ToolOptions | None, context: ToolContext[Any] | None) -> Reconciler | None:
    """Return what finds out about a call, where its tool has a way to."""
    reconcile = None if options is None else options.reconcile
    if reconcile is None:
        return None

    async def reconcile_call() -> ReconciledOutcome | None:
        try:
            arguments = (parse_arguments(call), context or ToolContext[Any]())
            answer = reconcile(*arguments[: len(inspect.signature(reconcile).parameters)])
            answer = await answer if inspect.isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001 - foreign code; what it cannot tell is not known
            _log.warning("reconcile= of %s failed: %s", call.name, type(error).__name__)
            return None
        if isinstance(answer, Completed):
            return Completed(make_result(call.name, answer.value, call.id))
        return answer if isinstance(answer, NotExecuted) else None

    return reconcile_call
