"""A call that a server turns into a task → its result, when the task is done.

Lives here: polling, what the task asks on its way, cancelling it when nobody waits any more.
Not here: calls that are answered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Literal

from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, CallToolResult, Request, RequestParams, Result
from pydantic import ConfigDict, Field, TypeAdapter

from toolwright._core.clients import Relay

IDENTIFIER = "io.modelcontextprotocol/tasks"
POLL_SECONDS = 1.0
SHORTEST, LONGEST = 0.05, 30.0


class TaskResult(Result):
    """The answer of a server that will take its time."""

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    result_type: Literal["task"] = Field(default="task", alias="resultType")
    task_id: str = Field(alias="taskId")
    status: str = "working"
    poll_interval_ms: float | None = Field(default=None, alias="pollIntervalMs")


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

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the result that we know how to finish."""
        return (ResultClaim(result_type="task", model=TaskResult, resolve=finished),)


async def finished(task: TaskResult, context: ClaimContext, relay: Relay | None = None) -> CallToolResult:
    """Wait for the end of a task; what it asks goes to the application, or to the client for whom it was begun."""
    wait = _pause(task.poll_interval_ms)
    try:
        while True:
            await asyncio.sleep(wait)
            state = await _ask(context, "tasks/get", task.task_id)
            status = state.get("status")
            if status == "completed":
                return CallToolResult.model_validate(state.get("result") or {"content": []}, by_name=False)
            if status == "failed":
                raise _failure(state.get("error"))
            if status == "cancelled":
                raise MCPError(INTERNAL_ERROR, "the server cancelled the task")
            if status == "input_required":
                await _answer(context, task.task_id, state.get("inputRequests"), relay)
            wait = _pause(state.get("pollIntervalMs"))
    except asyncio.CancelledError:
        with suppress(Exception):
            await asyncio.wait_for(_ask(context, "tasks/cancel", task.task_id), 1.0)
        raise


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


async def _answer(context: ClaimContext, task_id: str, requests: Any, relay: Relay | None) -> None:
    from mcp.client.session import ClientRequestContext  # noqa: PLC0415 - only for tasks that ask
    from mcp_types import ErrorData, InputRequest  # noqa: PLC0415 - as above

    if not isinstance(requests, dict):
        raise MCPError(INTERNAL_ERROR, "the task wants input and does not say which")
    if relay is not None:
        await _ask(context, "tasks/update", task_id, inputResponses=dict(await relay.forward(task_id, requests, None)))
        return
    adapter: TypeAdapter[Any] = TypeAdapter(InputRequest)
    responses: dict[str, Any] = {}
    for key, raw in requests.items():
        asked = adapter.validate_python(raw, by_name=False)
        about = ClientRequestContext(session=context.session, request_id=key)
        answer = await context.session.dispatch_input_request(about, asked)
        if isinstance(answer, ErrorData):
            raise MCPError(answer.code, answer.message)
        responses[key] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    await _ask(context, "tasks/update", task_id, inputResponses=responses)
