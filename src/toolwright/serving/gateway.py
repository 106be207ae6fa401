"""What a server behind a gateway asks → the client in front of it.

Lives here: handlers for a toolbox that serves other servers on. Not here: their tools, which a toolbox has anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from toolwright.serving.asking import Caller

CALLER: ContextVar[Caller | None] = ContextVar("toolwright_caller", default=None)
"""The client of the call that is being answered."""


def forwarding() -> dict[str, Any]:
    """Return the handlers that pass questions on: `Toolbox(McpServer.http(...), **forwarding())`.

    A question that comes while no call of ours is being answered is declined.
    """
    return {"on_elicit": _elicit, "on_sample": _sample}


async def _elicit(question: Any) -> Any:
    caller = CALLER.get()
    if caller is None or question.url is not None:
        return None
    answer = await caller.elicit(question.message, question.schema)
    return dict(answer.content) if answer else None


async def _sample(question: Any) -> Any:
    caller = CALLER.get()
    if caller is None:
        raise LookupError("no client to ask")
    messages: list[Mapping[str, Any]] = list(question.messages)
    return await caller.sample(messages, max_tokens=question.max_tokens or 1000, system=question.system)
