"""Pass messages of one client over stdio to the SDK's server, and its messages back."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

from toolmason.mcp_server.client_requests import Origin
from toolmason.mcp_server.sdk_server import ToolboxServer

SendLine = Callable[[bytes | None, int | str | None], Awaitable[None]]
"""Function of a line, or None if it cannot be written, and the id of the request that it answers."""


class SdkStream:
    """The SDK's loop for one client."""

    def __init__(self, server: ToolboxServer, send: SendLine) -> None:
        self._server, self._send_line = server, send
        self._to_sdk, self._sdk_input = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)

    @property
    def queued(self) -> int:
        """Number of messages that the SDK has not read."""
        return self._to_sdk.statistics().current_buffer_used

    def send(self, message: dict[str, Any], origin: Origin) -> bool:
        """Send a message to the SDK. Return False if it is not valid JSON-RPC."""
        try:
            parsed = jsonrpc_message_adapter.validate_python(message, by_name=False)
        except ValidationError:
            return False
        self._to_sdk.send_nowait(SessionMessage(parsed, ServerMessageMetadata(request_context=origin)))
        return True

    async def run(self) -> None:
        """Run the SDK's loop until it is cancelled."""
        sdk_output, from_sdk = anyio.create_memory_object_stream[SessionMessage](0)
        async with self._to_sdk, self._sdk_input, sdk_output, from_sdk, anyio.create_task_group() as group:
            group.start_soon(self._forward, from_sdk)
            try:
                await self._server.run(self._sdk_input, sdk_output, self._server.create_initialization_options())
            finally:
                group.cancel_scope.cancel()

    async def _forward(self, from_sdk: Any) -> None:
        async for item in from_sdk:
            message = item.message
            try:
                line = message.model_dump_json(by_alias=True, exclude_none=True).encode()
            except (ValueError, UnicodeEncodeError):
                line = None
            is_answer = isinstance(message, JSONRPCResponse | JSONRPCError)
            await self._send_line(line, message.id if is_answer else None)
