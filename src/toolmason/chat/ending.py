"""How a run stands → whether it goes on, and which of its limits is used up.

Lives here: telling pauses and naming limits. Not here: ending the run (`run`), or limits of calls (`_core.limits`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolmason._core.exchange import ModelReply
from toolmason._core.policy import Limits
from toolmason._core.values import ToolCall, ToolResult
from toolmason.errors import LimitExceeded, ToolCancelled


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
