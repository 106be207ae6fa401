"""A call that was interrupted → who can say what became of it.

Lives here: `reconcile=` of a tool, asked with the arguments of the call. Not here: when it is asked (`journal`).
"""

from __future__ import annotations

import inspect
import logging
from typing import Any

from toolmason._core.context import ToolContext
from toolmason._core.definition import ToolOptions
from toolmason._core.govern import plain_arguments
from toolmason._core.values import ToolCall
from toolmason.chat.effects import Ask, NotDone, Reconciled, WasDone
from toolmason.chat.journal import result_with

_log = logging.getLogger("toolmason")


def asker(call: ToolCall, options: ToolOptions | None, context: ToolContext[Any] | None) -> Ask | None:
    """Return what finds out about a call, where its tool has a way to."""
    reconcile = None if options is None else options.reconcile
    if reconcile is None:
        return None

    async def ask() -> Reconciled | None:
        try:
            given = (plain_arguments(call), context or ToolContext[Any]())
            said = reconcile(*given[: len(inspect.signature(reconcile).parameters)])
            said = await said if inspect.isawaitable(said) else said
        except Exception as error:  # noqa: BLE001 - foreign code; what it cannot tell is not known
            _log.warning("reconcile= of %s failed: %s", call.name, type(error).__name__)
            return None
        if isinstance(said, WasDone):
            return WasDone(result_with(call.name, said.value, call.id))
        return said if isinstance(said, NotDone) else None

    return ask
