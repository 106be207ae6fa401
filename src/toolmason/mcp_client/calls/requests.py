"""Send calls, prompts, reads and raw requests on a session, for the application or on behalf of its client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from mcp.client.extension import ClaimContext
from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND, CallToolResult, EmptyResult, PingRequest
from pydantic import BaseModel

from toolmason._core.define.context import ToolContext
from toolmason._core.run.tracing import inject_context
from toolmason._core.values.mcp_client import UpstreamCaller
from toolmason.errors import RemoteError
from toolmason.mcp_client.calls.forwarding import forward, make_request_key
from toolmason.mcp_client.calls.tasks import PendingTasks, TaskPending, TaskResult, wait_for_task
from toolmason.mcp_client.remote_errors import find_connection_loss, get_http_status
from toolmason.mcp_client.server_options import make_identity_key
from toolmason.mcp_client.session import UpstreamSession


@dataclass(slots=True)
class ToolRequest:
    """A tool call to send."""

    name: str
    arguments: dict[str, Any]
    context: ToolContext[Any]
    meta: Mapping[str, Any] | None = None
    caller: UpstreamCaller | None = None
    pending_tasks: PendingTasks | None = None
    """Store for tasks that outlive their call, or None if the call waits for its task."""

    async def __call__(self, client: Any, session: UpstreamSession) -> CallToolResult:
        """Send the call."""
        with session.forwarded.track(self.caller) as forwarded:
            meta = inject_context(dict(self.meta or {})) or None
            if forwarded is None:
                if self.pending_tasks is not None:
                    return await self._call_or_wait(client, session, meta, self.pending_tasks)
                return await self._call(client, meta)
            params = {"name": self.name, "arguments": self.arguments, "_meta": meta}
            answer = await forward(client, forwarded, ("tools/call", params), self._report_progress, session.forwarded)
            if answer.get("resultType") == "task":
                forwarded.caller.defer(forwarded.request_key, answer)
                task = TaskResult.model_validate(answer, by_name=False)
                result = await wait_for_task(task, self._make_claim_context(client), forwarded)
                forwarded.caller.record_answer("tools/call", self.name, result.model_dump(by_alias=True, mode="json"))
                return result
            return CallToolResult.model_validate(answer, by_name=False)

    async def _call(self, client: Any, meta: Any) -> CallToolResult:
        # A server that is asked for progress must send it, so ask only if it is used.
        progress = self._report_progress if self.context.__followed__ else None
        found: CallToolResult = await client.call_tool(self.name, self.arguments, progress_callback=progress, meta=meta)
        return found

    async def _call_or_wait(
        self, client: Any, session: UpstreamSession, meta: Any, pending_tasks: PendingTasks
    ) -> CallToolResult:
        """Send a call whose task may outlive it, or wait for the task that it started before.

        Raises:
            RemoteError: the task is still running; the same call waits for it again.
        """
        key = (
            make_identity_key(session.headers),
            make_request_key("tools/call", {"name": self.name, "arguments": self.arguments}),
        )
        task = pending_tasks.get(key)
        started = monotonic()
        try:
            if task is None:
                return await self._call(client, meta)
            found = await wait_for_task(task, self._make_claim_context(client), wait=pending_tasks.wait, poll_now=True)
        except TaskPending as pending:
            seconds = pending_tasks.remember(key, pending.task, started)
            reason = (
                f"task {pending.task.task_id!r} is still running after {seconds:.1f} s. "
                "Repeat the call with the same arguments to keep waiting; no new task is started"
            )
            raise RemoteError(session.server.name, "task", reason, tool=self.name, retryable=True) from None
        except BaseException as error:
            if find_connection_loss(error) is None:  # after a lost connection the task may still be running
                pending_tasks.forget(key)
            raise
        pending_tasks.forget(key)
        return found

    def _make_claim_context(self, client: Any) -> ClaimContext:
        return ClaimContext(session=client.session, tool_name=self.name, read_timeout_seconds=None)

    async def _report_progress(self, done: float, total: float | None, message: str | None) -> None:
        await self.context.progress(done, total, message)


@dataclass(frozen=True, slots=True)
class ForwardableRequest:
    """A prompt, a read or a completion, sent for the application or on behalf of its client."""

    method: str
    params: Mapping[str, Any]
    caller: UpstreamCaller | None
    send: Callable[[Any], Awaitable[Any]]
    """Function of the SDK's client that sends the request for the application."""
    result_type: type[BaseModel] | None = None
    """Type of the result; None for raw data."""

    async def __call__(self, client: Any, session: UpstreamSession) -> Any:
        """Send the request."""
        with session.forwarded.track(self.caller) as forwarded:
            if forwarded is None:
                return await self.send(client)
            answer = await forward(client, forwarded, (self.method, self.params), None, session.forwarded)
            return answer if self.result_type is None else self.result_type.model_validate(answer, by_name=False)


async def ping(client: Any, session: UpstreamSession) -> None:
    """Make a round trip to the server. It may answer that it does not know the request."""
    del session
    try:
        if client.protocol_version >= "2026":
            await client.session.send_discover(client.protocol_version)
        else:
            await client.session.send_request(PingRequest(), EmptyResult)
    except MCPError as error:
        if error.code != METHOD_NOT_FOUND or get_http_status(error) is not None:
            raise
