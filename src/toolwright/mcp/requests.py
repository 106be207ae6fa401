"""What a toolbox wants of a server → a request on a connection: for the application, or for a client of ours.

Lives here: calls, prompts, resources and completions, each in both ways. Not here: which connection, and what is tried
again (`connection`); what goes through for a client (`passing`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp.client.extension import ClaimContext
from mcp_types import CallToolResult, EmptyResult, GetPromptResult, PingRequest, ReadResourceResult

from toolwright._core.clients import Relay
from toolwright._core.context import ToolContext
from toolwright.mcp.link import Link
from toolwright.mcp.passing import passed, sent
from toolwright.mcp.tasks import TaskResult, finished


@dataclass(slots=True)
class ToolRequest:
    """A call to make."""

    name: str
    arguments: dict[str, Any]
    context: ToolContext[Any]
    meta: Mapping[str, Any] | None = None
    relay: Relay | None = None

    async def __call__(self, client: Any, link: Link) -> CallToolResult:
        """Make it."""
        with link.passages.opened(self.relay) as passage:
            meta = None if self.meta is None else dict(self.meta)
            found: CallToolResult
            if passage is None:
                # A server that is asked for progress has to send it, also where nobody listens.
                progress = self._progress if self.context.__followed__ else None
                found = await client.call_tool(self.name, self.arguments, progress_callback=progress, meta=meta)
                return found
            params = {"name": self.name, "arguments": self.arguments, "_meta": meta}
            answer = await passed(client, passage, ("tools/call", params), self._progress, link.passages)
            if answer.get("resultType") == "task":
                passage.relay.defer(passage.about, answer)
                task = TaskResult.model_validate(answer, by_name=False)
                about = ClaimContext(session=client.session, tool_name=self.name, read_timeout_seconds=None)
                found = await finished(task, about, passage.relay)
                passage.relay.answered("tools/call", self.name, found.model_dump(by_alias=True, mode="json"))
                return found
            return CallToolResult.model_validate(answer, by_name=False)

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
