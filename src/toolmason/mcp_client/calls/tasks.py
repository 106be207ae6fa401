"""Wait for calls that a server runs as tasks: poll them, answer their questions, cancel them."""

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
from mcp_types import INTERNAL_ERROR, CallToolResult, Result
from pydantic import ConfigDict, Field, PrivateAttr

from toolmason.mcp_client.calls.forwarding import (
    RAW_RESULT,
    ForwardedRequest,
    RawParams,
    RawRequest,
    answer_with_handlers,
    split_by_handler,
)
from toolmason.mcp_client.specification import CONNECTION_LOST_CODE, TASKS_EXTENSION

DEFAULT_POLL_SECONDS = 1.0
MIN_POLL_SECONDS = 0.05
MAX_POLL_SECONDS = 30.0
MAX_FAILED_POLLS = 3
"""Maximum number of consecutive polls that may fail on a lost connection before the call fails."""
MAX_PENDING_TASKS = 256
"""Maximum number of tasks per server that run while no call waits for them; the oldest are forgotten first."""


class TaskResult(Result):
    """Response of a server that runs the call as a task."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str = "working"
    poll_interval_ms: float | None = Field(default=None, alias="pollIntervalMs")
    _answered_keys: set[str] = PrivateAttr(default_factory=set)
    """Keys of answered questions: a server may keep listing a question for a while, and it must not be asked twice."""

    @property
    def answered_keys(self) -> set[str]:
        """Keys of the questions that were answered."""
        return self._answered_keys


class _TaskRequest(RawRequest):
    """`tasks/get`, `tasks/update` or `tasks/cancel` for one task."""

    name_param: ClassVar[str | None] = "taskId"


class TasksExtension(ClientExtension):
    """Client extension that advertises tasks and waits for them."""

    identifier = TASKS_EXTENSION

    def __init__(self, wait: float | None = None) -> None:
        super().__init__()
        self._wait = wait

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the result type that this extension resolves."""
        return (ResultClaim(result_type="task", model=TaskResult, resolve=self._resolve),)

    async def _resolve(self, task: TaskResult, context: ClaimContext) -> CallToolResult:
        return await wait_for_task(task, context, wait=self._wait)


class TaskPending(Exception):
    """A task is still running after the agreed waiting time."""

    def __init__(self, task: TaskResult) -> None:
        super().__init__(task.task_id)
        self.task = task


@dataclass(slots=True, eq=False)
class PendingTasks:
    """Tasks of a server that no call is waiting for, by identity and request."""

    wait: float
    _tasks: OrderedDict[tuple[str, str], tuple[TaskResult, float]] = field(default_factory=OrderedDict)

    def get(self, key: tuple[str, str]) -> TaskResult | None:
        """Return the task that an earlier call started, or None."""
        found = self._tasks.get(key)
        return None if found is None else found[0]

    def remember(self, key: tuple[str, str], task: TaskResult, started: float) -> float:
        """Store a task, and return the seconds since it was started."""
        _, since = self._tasks.setdefault(key, (task, started))
        if len(self._tasks) > MAX_PENDING_TASKS:
            self._tasks.popitem(last=False)
        return monotonic() - since

    def forget(self, key: tuple[str, str]) -> None:
        """Remove a finished task."""
        self._tasks.pop(key, None)


async def wait_for_task(
    task: TaskResult,
    context: ClaimContext,
    forwarded: ForwardedRequest | None = None,
    *,
    wait: float | None = None,
    poll_now: bool = False,
) -> CallToolResult:
    """Wait for a task to finish. Its questions go to the application, or to the client it was started for.

    Raises:
        TaskPending: the task did not finish within `wait` seconds.
    """
    deadline = math.inf if wait is None else monotonic() + wait
    delay = 0.0 if poll_now else _get_poll_delay(task.poll_interval_ms)
    failed_polls = 0
    try:
        while True:
            await asyncio.sleep(min(delay, max(0.0, deadline - monotonic())))
            try:
                state = await _send_task_request(context, "tasks/get", task.task_id)
                failed_polls = 0
            except MCPError as error:
                failed_polls += 1
                if error.code != CONNECTION_LOST_CODE or failed_polls >= MAX_FAILED_POLLS:
                    raise
                state = {}  # the task continues
            status = state.get("status")
            if status == "completed":
                return CallToolResult.model_validate(state.get("result") or {"content": []}, by_name=False)
            if status == "failed":
                raise _make_task_error(state.get("error"))
            if status == "cancelled":
                raise MCPError(INTERNAL_ERROR, "the server cancelled the task")
            if status == "input_required":
                await _answer_questions(context, task, state.get("inputRequests"), forwarded)
            if monotonic() >= deadline:
                raise TaskPending(task)
            delay = _get_poll_delay(state.get("pollIntervalMs"))
    except asyncio.CancelledError:
        with suppress(Exception):
            await asyncio.wait_for(_send_task_request(context, "tasks/cancel", task.task_id), 1.0)
        raise


def _make_task_error(error: Any) -> MCPError:
    """Return the server's error, which may have any form."""
    details = error if isinstance(error, dict) else {}
    code, message = details.get("code"), details.get("message")
    return MCPError(code if isinstance(code, int) else INTERNAL_ERROR, str(message or "the task failed"))


def _get_poll_delay(milliseconds: Any) -> float:
    is_number = isinstance(milliseconds, int | float) and not isinstance(milliseconds, bool)
    seconds = milliseconds / 1000 if is_number else DEFAULT_POLL_SECONDS
    return min(max(seconds, MIN_POLL_SECONDS), MAX_POLL_SECONDS)


async def _send_task_request(context: ClaimContext, method: str, task_id: str, **fields: Any) -> dict[str, Any]:
    params = RawParams.model_validate({"taskId": task_id, **fields})
    answer: dict[str, Any] = await context.session.send_request(_TaskRequest(method=method, params=params), RAW_RESULT)
    return answer


async def _answer_questions(
    context: ClaimContext, task: TaskResult, questions: Any, forwarded: ForwardedRequest | None
) -> None:
    if not isinstance(questions, dict):
        raise MCPError(INTERNAL_ERROR, "the task requires input but does not list it")
    if not (unanswered := {key: raw for key, raw in questions.items() if key not in task.answered_keys}):
        return
    own_questions = unanswered
    responses: dict[str, Any] = {}
    if forwarded is not None:
        client_questions, own_questions = split_by_handler(unanswered, forwarded.handled)
        if client_questions:
            responses.update(await forwarded.caller.forward(task.task_id, client_questions, None))
    responses.update(await answer_with_handlers(context.session, own_questions))
    await _send_task_request(context, "tasks/update", task.task_id, inputResponses=responses)
    task.answered_keys.update(unanswered)
