"""A call that a server turns into a task → its result, when the task is done.

Lives here: polling, what the task asks on its way, cancelling it when nobody waits any more, and those that nobody
waits for now and that go on. Not here: calls that are answered at once.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, ClassVar, Literal

from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict, Field, PrivateAttr, TypeAdapter

from toolmason.mcp_client.calls.forwarding import Passage, answered_here, parted
from toolmason.mcp_client.transport.http import LOST

IDENTIFIER = "io.modelcontextprotocol/tasks"
POLL_SECONDS = 1.0
SHORTEST, LONGEST = 0.05, 30.0
MISSES = 3
"""How many looks at a task may fail in a row, for want of a connection, before its call does."""
REMEMBERED = 256
"""How many tasks of a server may go on while nobody waits for them; beyond that the oldest are forgotten."""


class TaskResult(Result):
    """The answer of a server that will take its time."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str = "working"
    poll_interval_ms: float | None = Field(default=None, alias="pollIntervalMs")
    _answered: set[str] = PrivateAttr(default_factory=set)
    """What it has asked and was told: a server may go on showing a question for a while, and nobody is asked twice."""

    @property
    def answered(self) -> set[str]:
        """The keys of the questions that were answered."""
        return self._answered


class _TaskParams(RequestParams):
    model_config = ConfigDict(extra="allow", populate_by_name=True)
    task_id: str = Field(alias="taskId")


class _TaskRequest(Request[_TaskParams, str]):
    """`tasks/get`, `tasks/cancel`: about one task."""

    name_param: ClassVar[str | None] = "taskId"
    method: str
    params: _TaskParams


_ANY: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


class TasksExtension(ClientExtension):
    """Tells servers that we can wait for a task, and does so."""

    identifier = IDENTIFIER

    def __init__(self, wait: float | None = None) -> None:
        super().__init__()
        self._wait = wait

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the result that we know how to finish."""
        return (ResultClaim(result_type="task", model=TaskResult, resolve=self._finished),)

    async def _finished(self, task: TaskResult, context: ClaimContext) -> CallToolResult:
        return await finished(task, context, wait=self._wait)


class StillWorking(Exception):
    """A task was waited for as long as was agreed, and goes on."""

    def __init__(self, task: TaskResult) -> None:
        super().__init__(task.task_id)
        self.task = task


@dataclass(slots=True, eq=False)
class GoingOn:
    """The tasks of a server that nobody waits for now, by what was called, and in whose name."""

    wait: float
    _known: OrderedDict[tuple[str, str], tuple[TaskResult, float]] = field(default_factory=OrderedDict)

    def get(self, key: tuple[str, str]) -> TaskResult | None:
        """Return the task that a call has begun before."""
        found = self._known.get(key)
        return None if found is None else found[0]

    def keep(self, key: tuple[str, str], task: TaskResult, began: float) -> float:
        """Remember a task, and return for how many seconds it has been known."""
        _, since = self._known.setdefault(key, (task, began))
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return monotonic() - since

    def forget(self, key: tuple[str, str]) -> None:
        """Let go of a task that has come to its end."""
        self._known.pop(key, None)


async def finished(
    task: TaskResult,
    context: ClaimContext,
    passage: Passage | None = None,
    *,
    wait: float | None = None,
    at_once: bool = False,
) -> CallToolResult:
    """Wait for the end of a task; what it asks goes to the application, or to the client for whom it was begun.

    Raises:
        StillWorking: `wait` seconds were not enough.
    """
    ends = math.inf if wait is None else monotonic() + wait
    pause = 0.0 if at_once else _pause(task.poll_interval_ms)
    look = _Look(context, task.task_id)
    try:
        while True:
            await asyncio.sleep(min(pause, max(0.0, ends - monotonic())))
            state = await look()
            status = state.get("status")
            if status == "completed":
                return CallToolResult.model_validate(state.get("result") or {"content": []}, by_name=False)
            if status == "failed":
                raise _failure(state.get("error"))
            if status == "cancelled":
                raise MCPError(INTERNAL_ERROR, "the server cancelled the task")
            if status == "input_required":
                await _answer(context, task, state.get("inputRequests"), passage)
            if monotonic() >= ends:
                raise StillWorking(task)
            pause = _pause(state.get("pollIntervalMs"))
    except asyncio.CancelledError:
        with suppress(Exception):
            await asyncio.wait_for(_ask(context, "tasks/cancel", task.task_id), 1.0)
        raise


class _Look:
    """Looks at a task again and again; a look that is lost on the way costs that look, and not the task."""

    def __init__(self, context: ClaimContext, task_id: str) -> None:
        self._context, self._task_id, self._missed = context, task_id, 0

    async def __call__(self) -> dict[str, Any]:
        try:
            state = await _ask(self._context, "tasks/get", self._task_id)
        except MCPError as error:
            self._missed += 1
            if error.code != LOST or self._missed >= MISSES:
                raise
            return {}
        self._missed = 0
        return state


def _failure(error: Any) -> MCPError:
    """Return what a server says went wrong; it may say it in no form at all."""
    said = error if isinstance(error, dict) else {}
    code, message = said.get("code"), said.get("message")
    return MCPError(code if isinstance(code, int) else INTERNAL_ERROR, str(message or "the task failed"))


def _pause(milliseconds: Any) -> float:
    known = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    return min(max(milliseconds / 1000 if known else POLL_SECONDS, SHORTEST), LONGEST)


async def _ask(context: ClaimContext, method: str, task_id: str, **more: Any) -> dict[str, Any]:
    params = _TaskParams.model_validate({"taskId": task_id, **more})
    answer: dict[str, Any] = await context.session.send_request(_TaskRequest(method=method, params=params), _ANY)
    return answer


async def _answer(context: ClaimContext, task: TaskResult, requests: Any, passage: Passage | None) -> None:
    if not isinstance(requests, dict):
        raise MCPError(INTERNAL_ERROR, "the task wants input and does not say which")
    if not (new := {key: raw for key, raw in requests.items() if key not in task.answered}):
        return
    theirs, ours = ({}, new) if passage is None else parted(new, passage.own)
    found = dict(await passage.relay.forward(task.task_id, theirs, None)) if passage is not None and theirs else {}
    responses = {**found, **await answered_here(context.session, ours)}
    await _ask(context, "tasks/update", task.task_id, inputResponses=responses)
    task.answered.update(new)
