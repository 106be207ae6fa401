"""Convert errors of the SDK, sockets and processes into one `RemoteError` that names the root cause."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import anyio
import httpx2
from mcp.client import InputRequiredRoundsExceededError
from mcp.shared.exceptions import MCPError
from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT
from pydantic import ValidationError

from toolmason._text import split_url
from toolmason.errors import RemoteError, ToolmasonError, clip
from toolmason.mcp_client.specification import CONNECTION_LOST_CODE, HTTP_STATUS_KEY

_CONNECTION_ERRORS: Final = (
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
    OSError,
    httpx2.HTTPError,
)


_NO_BACK_CHANNEL: Final = "has no back-channel for server-initiated requests"
"""Error message of the SDK's servers if a tool sends a request to the client on a stateless-era connection."""


_UNSUPPORTED_VERSION: Final = "Unsupported protocol version from the server: "
"""Start of the SDK's message about a server of an unknown protocol version."""


_NOT_CONNECTED: Final = "ConnectError: "
"""Start of the reason if nothing listens at an address; the transport passes only the message on."""
_NOT_AN_ENDPOINT: Final = frozenset({404, 405, 501})
_NOT_A_STREAM: Final = ("Unexpected content type", "text/event-stream")
"""Parts of the SDK's messages about a response that is not of the protocol."""


class ConnectionLost(Exception):
    """The connection broke or was closed before a response arrived."""

    def __init__(self, reason: str, *, delivered: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.delivered = delivered
        """True if the server may have received the request, and so may have acted on it."""


def find_root_cause(error: BaseException) -> BaseException:
    """Return the first real failure inside nested exception groups."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        inner = [item for item in error.exceptions if not isinstance(item, asyncio.CancelledError)]
        error = inner[0] if inner else error.exceptions[0]
    return error


def format_reason(error: BaseException) -> str:
    """Return a readable reason for an error, without internals of the SDK."""
    error = find_root_cause(error)
    if isinstance(error, RemoteError):
        return error.reason
    if isinstance(error, ToolmasonError):
        return str(error)
    if isinstance(error, MCPError):
        if _NO_BACK_CHANNEL in error.message:
            return f"{clip(error.message, 200).rstrip('.')}. Use McpServer with era='legacy' to allow them"
        return clip(error.message or f"error {error.code}", 300)
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, problem["loc"]))
        return clip(f"the response does not match the protocol at {path or 'the top'}: {problem['msg']}", 300)
    if isinstance(error, TimeoutError):
        return "the request timed out"
    if isinstance(error, InputRequiredRoundsExceededError):
        return f"the server asked for input more than {error.max_rounds} times"
    if isinstance(error, RuntimeError) and str(error).startswith(_UNSUPPORTED_VERSION):
        return f"unsupported protocol version '{clip(str(error).removeprefix(_UNSUPPORTED_VERSION))}'"
    if isinstance(error, httpx2.HTTPStatusError):
        return f"the server returned HTTP {error.response.status_code}"
    return clip(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 300)


def add_address(reason: str, status: int | None, url: str) -> str:
    """Return the reason why a server cannot be reached over HTTP, with its address but without secrets in the URL."""
    parts = split_url(url)
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if reason.startswith(_NOT_CONNECTED):
        return f"cannot connect to {address}: {reason.removeprefix(_NOT_CONNECTED)}"
    if status in _NOT_AN_ENDPOINT or any(word in reason for word in _NOT_A_STREAM):
        return f"{address} answered, but it is not an MCP endpoint ({reason}). Check the path, which is often /mcp"
    return reason


def format_reason_with_stderr(error: BaseException) -> str:
    """Return the reason for an error with the server's last stderr line, for the operator."""
    stderr = error.stderr if isinstance(error, RemoteError) else ""
    return f"{format_reason(error)}. Last stderr line: {clip(stderr, 200)}" if stderr else format_reason(error)


def get_http_status(error: BaseException) -> int | None:
    """Return the HTTP status that a request failed with, or None."""
    data: Any = error.data if isinstance(error, MCPError) else None
    return data.get(HTTP_STATUS_KEY) if isinstance(data, dict) else None


def find_connection_loss(error: BaseException) -> ConnectionLost | None:
    """Return the connection loss behind an error, or None if the server responded."""
    error = find_root_cause(error)
    if isinstance(error, ConnectionLost):
        return error
    if isinstance(error, MCPError):
        if error.code == CONNECTION_LOST_CODE:
            data: Any = error.data
            return ConnectionLost(error.message, delivered=not isinstance(data, dict) or data.get("seen") is not False)
        # Servers use these two codes freely; only the SDK's own messages mean a lost connection.
        if error.code == CONNECTION_CLOSED and error.message == "Connection closed":
            return ConnectionLost("the connection was closed", delivered=True)
        if error.code == REQUEST_TIMEOUT and error.message.endswith("timed out"):
            return ConnectionLost("the request timed out", delivered=True)
        return None
    if isinstance(error, _CONNECTION_ERRORS):
        return ConnectionLost(format_reason(error), delivered=True)
    return None
