"""Names, numbers and the error of the MCP specification, without the SDK, which takes most of a second to import."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

MODERN_VERSION: Final = "2026-07-28"
"""Protocol version of the stateless era."""
SESSION_VERSIONS: Final = frozenset({"2025-06-18", "2025-11-25"})
"""Session protocol versions whose results need no filtering."""

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
REQUEST_CANCELLED: Final = -32800
CONNECTION_LOST_CODE: Final = -32099
"""Internal error code for a request without a response; `data` shows whether the server may have received it."""
HTTP_STATUS_KEY: Final = f"httpStatus-{os.urandom(8).hex()}"
"""Key of the HTTP status in the `data` of an error that stands for a response. No server knows it."""
_LOCAL_CODES: Final = frozenset({CONNECTION_LOST_CODE, -32000, -32001})
"""Codes of errors that no server sent: a lost connection, and the SDK's for a closed one and a timeout."""
HTTP_STATUS_BY_CODE: Final[Mapping[int, int]] = {
    **dict.fromkeys((-32700, INVALID_REQUEST, INVALID_PARAMS, HEADER_MISMATCH, MISSING_CAPABILITY, -32022), 400),
    METHOD_NOT_FOUND: 404,
}
"""HTTP status of an error in the stateless era; 200 for others."""

_META_PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION_META_KEY: Final = _META_PREFIX + "protocolVersion"
CLIENT_CAPABILITIES_META_KEY: Final = _META_PREFIX + "clientCapabilities"
CLIENT_INFO_META_KEY: Final = _META_PREFIX + "clientInfo"
SERVER_INFO_META_KEY: Final = _META_PREFIX + "serverInfo"
LOG_LEVEL_META_KEY: Final = _META_PREFIX + "logLevel"
TASKS_EXTENSION: Final = _META_PREFIX + "tasks"
"""Id of the tasks extension."""

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
CAPABILITY_BY_METHOD: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
"""Capability that a client needs for a request of a server."""
HINT_KEYS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
"""Keys of a tool's annotations, by the names of our options."""


class RpcError(Exception):
    """Error that answers a request itself, with a code of JSON-RPC or MCP."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def get_server_error(error: Any) -> RpcError | None:
    """Return the error that an upstream server sent, or None if this one is not from a server."""
    sdk: Any = sys.modules.get("mcp.shared.exceptions")  # loaded if one of its errors exists
    if sdk is None or not isinstance(error, sdk.MCPError) or error.code in _LOCAL_CODES:
        return None
    data = error.data
    if isinstance(data, dict) and HTTP_STATUS_KEY in data:
        data = {key: value for key, value in data.items() if key != HTTP_STATUS_KEY} or None
    return RpcError(error.code, error.message, data)
