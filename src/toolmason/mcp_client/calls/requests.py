"""What a toolbox wants of a server → a request on a connection: for the application, or for a client of ours.

Lives here: calls, prompts, resources and completions, each in both ways. Not here: which connection, and what is tried
again (`connection`); what goes through for a client (`passing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from mcp.client.extension import ClaimContext
from mcp_types import CallToolResult, EmptyResult, GetPromptResult, PingRequest, ReadResourceResult

from toolmason._core.define.context import ToolContext
from toolmason._core.define.mcp_client import Relay
from toolmason.errors import RemoteError
from toolmason.mcp_client.calls.forwarding import about_of, passed, sent
from toolmason.mcp_client.calls.tasks import GoingOn, StillWorking, TaskResult, finished
from toolmason.mcp_client.identity import key_of
from toolmason.mcp_client.remote_errors import loss_in
from toolmason.mcp_client.session import Link


@dataclass(slots=True)
class ToolRequest:
    """A call to make."""

    name: str
    arguments: dict[str, Any]
    context: ToolContext[Any]
    meta: Mapping[str, Any] | None = None
    relay: Relay | None = None
    going_on: GoingOn | None = None
    """Where tasks may go on without whoever made the call."""

    async def __call__(self, client: Any, link: Link) -> CallToolResult:
        """Make it."""
        with link.passages.opened(self.relay) as passage:
            meta = None if self.meta is None else dict(self.meta)
            if passage is None:
                if self.going_on is not None:
                    return await self._pending(client, link, meta, self.going_on)
                return await self._called(client, meta)
            params = {"name": self.name, "arguments": self.arguments, "_meta": meta}
            answer = await passed(client, passage, ("tools/call", params), self._progress, link.passages)
            if answer.get("resultType") == "task":
                found: CallToolResult
                passage.relay.defer(passage.about, answer)
                task = TaskResult.model_validate(answer, by_name=False)
                found = await finished(task, self._about(client), passage)
                passage.relay.answered("tools/call", self.name, found.model_dump(by_alias=True, mode="json"))
                return found
            return CallToolResult.model_validate(answer, by_name=False)

    async def _called(self, client: Any, meta: Any) -> CallToolResult:
        # A server that is asked for progress has to send it, also where nobody listens.
        progress = self._progress if self.context.__followed__ else None
        found: CallToolResult = await client.call_tool(self.name, self.arguments, progress_callback=progress, meta=meta)
        return found

    async def _pending(self, client: Any, link: Link, meta: Any, going_on: GoingOn) -> CallToolResult:
        """Make a call whose task may go on alone, or wait for the task that it has begun before.

        Raises:
            RemoteError: the task is not done yet; the same call waits on.
        """
        key = (key_of(link.headers), about_of("tools/call", {"name": self.name, "arguments": self.arguments}))
        task, began = going_on.get(key), monotonic()
        try:
            if task is None:
                return await self._called(client, meta)
            found = await finished(task, self._about(client), wait=going_on.wait, at_once=True)
        except StillWorking as working:
            seconds = going_on.keep(key, working.task, began)
            reason = (
                f"the server has worked on task {working.task.task_id!r} for {seconds:.1f} s and is not done. "
                "The same call with the same arguments waits on and begins nothing anew"
            )
            raise RemoteError(link.server.name, "task", reason, tool=self.name, retryable=True) from None
        except BaseException as error:
            if loss_in(error) is None:  # a connection that is lost says nothing about the task
                going_on.forget(key)
            raise
        going_on.forget(key)
        return found

    def _about(self, client: Any) -> ClaimContext:
        return ClaimContext(session=client.session, tool_name=self.name, read_timeout_seconds=None)

    async def _progress(self, done: float, total: float | None, message: str | None) -> None:
        await self.context.progress(done, total, message)


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A prompt to fetch."""

    name: str
    arguments: dict[str, str]
    relay: Relay | None = None

    async def __call__(self, client: Any, link: Link) -> GetPromptResult:
        """Fetch it."""
        with link.passages.opened(self.relay) as passage:
            if passage is None:
                found: GetPromptResult = await client.get_prompt(self.name, self.arguments)
                return found
            params = {"name": self.name, "arguments": self.arguments}
            answer = await passed(client, passage, ("prompts/get", params), None, link.passages)
            return GetPromptResult.model_validate(answer, by_name=False)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A resource to read."""

    uri: str
    relay: Relay | None = None

    async def __call__(self, client: Any, link: Link) -> ReadResourceResult:
        """Read it."""
        with link.passages.opened(self.relay) as passage:
            if passage is None:
                found: ReadResourceResult = await client.read_resource(self.uri)
                return found
            answer = await passed(client, passage, ("resources/read", {"uri": self.uri}), None, link.passages)
            return ReadResourceResult.model_validate(answer, by_name=False)


@dataclass(frozen=True, slots=True)
class RawRequest:
    """A request as the wire has it, to pass on."""

    method: str
    params: Mapping[str, Any]
    relay: Relay | None = None

    async def __call__(self, client: Any, link: Link) -> dict[str, Any]:
        """Send it."""
        with link.passages.opened(self.relay) as passage:
            if passage is None:
                return await sent(client, self.method, self.params)
            return await passed(client, passage, (self.method, self.params), None, link.passages)


async def pinged(client: Any, link: Link) -> None:
    """Make a round trip."""
    del link
    if client.protocol_version >= "2026":
        await client.session.send_discover(client.protocol_version)
    else:
        await client.session.send_request(PingRequest(), EmptyResult)
