"""Whatever an SDK, a socket or a process raises → one `RemoteError` that says what is at the root of it.

Lives here: the reason in words, and whether the server can have seen the request. No exception group, and no error of
another library, leaves this package. Not here: what is done about it (`connection`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import anyio
import httpx2
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from pydantic import ValidationError

from toolmason.errors import RemoteError, ToolmasonError, clip
from toolmason.mcp_client.transport.http import CONNECTION_LOST_CODE

_CONNECTION_ERRORS: Final = (
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
    OSError,
    httpx2.HTTPError,
)


_NO_BACK_CHANNEL: Final = "has no back-channel for server-initiated requests"
"""What the SDK's servers say when a tool asks back, and the connection is of the stateless era."""


class ConnectionLost(Exception):
    """No answer came: the connection broke, or is no more."""

    def __init__(self, reason: str, *, delivered: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delivered = delivered
        """Whether the server can have seen the request, and so may have done what it asks."""


def find_root_cause(error: BaseException) -> BaseException:
    """Return the first real failure inside of groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        inner = [item for item in error.exceptions if not isinstance(item, asyncio.CancelledError)]
        error = inner[0] if inner else error.exceptions[0]
    return error


def format_reason(error: BaseException) -> str:
    """Return what went wrong, in words for people; nothing of ours or of the SDK's inside."""
    error = find_root_cause(error)
    if isinstance(error, RemoteError):
        return error.reason
    if isinstance(error, ToolmasonError):
        return str(error)
    if isinstance(error, MCPError):
        if _NO_BACK_CHANNEL in error.message:
            return f"{clip(error.message, 200).rstrip('.')}. It can ask where McpServer has era='legacy'"
        return clip(error.message or f"error {error.code}", 300)
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, problem["loc"]))
        return clip(f"the answer does not fit the protocol at {path or 'the top'}: {problem['msg']}", 300)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, httpx2.HTTPStatusError):
        return f"the server answered {error.response.status_code}"
    return clip(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 300)


def format_reason_with_stderr(error: BaseException) -> str:
    """Return what went wrong, for whoever looks after the server: with what it wrote last to its standard error."""
    stderr = error.stderr if isinstance(error, RemoteError) else ""
    return f"{format_reason(error)}. Its last words: {clip(stderr, 200)}" if stderr else format_reason(error)


def is_from_server(error: MCPError) -> bool:
    """Tell whether a server said so itself; a lost connection or a timeout is told by us, in its form."""
    return error.code not in (CONNECTION_LOST_CODE, CONNECTION_CLOSED, REQUEST_TIMEOUT)


def find_connection_loss(error: BaseException) -> ConnectionLost | None:
    """Return the loss that an error is; `None` where the server answered."""
    error = find_root_cause(error)
    if isinstance(error, ConnectionLost):
        return error
    if isinstance(error, MCPError):
        if error.code == CONNECTION_LOST_CODE:
            data: Any = error.data
            return ConnectionLost(error.message, delivered=not isinstance(data, dict) or data.get("seen") is not False)
        # Servers use these two codes for whatever they like; the SDK's own words tell them apart.
        if error.code == CONNECTION_CLOSED and error.message == "Connection closed":
            return ConnectionLost("the connection was closed", delivered=True)
        if error.code == REQUEST_TIMEOUT and error.message.endswith("timed out"):
            return ConnectionLost("no answer in time", delivered=True)
        return None
    if isinstance(error, _CONNECTION_ERRORS):
        return ConnectionLost(format_reason(error), delivered=True)
    return None
