"""How a run stands → which of its limits is used up.

Lives here: telling and naming the limit. Not here: ending the run (`run`), or limits of calls (`_core.limits`).
"""

from __future__ import annotations

from collections.abc import Sequence

from toolwright._core.policy import Limits
from toolwright._core.values import ToolResult
from toolwright.errors import LimitExceeded


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
