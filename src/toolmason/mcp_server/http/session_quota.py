"""Who opens sessions → how many each may have, so that one client cannot take the places of all.

Lives here: the count of sessions for each peer, and which peers are not counted. Not here: how many there may be in
all, which the SDK holds.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from toolmason.mcp_server.http.guard import Send
from toolmason.mcp_server.http.owner import Identity

UNLIMITED_PEERS: Final = frozenset({"127.0.0.1", "::1", "localhost", ""})
"""This machine: whoever is on it, or behind a proxy on it, cannot be told apart."""
_SESSION_HEADER: Final = b"mcp-session-id"


class SessionQuota:
    """The sessions of each peer."""

    def __init__(self, max_sessions: int, idle_seconds: float) -> None:
        self._max_sessions, self._idle_seconds = max_sessions, idle_seconds
        self._sessions: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        """Session → whose it is, and when it was last seen; the one not seen for longest comes first."""

    def get_peer(self, scope: Mapping[str, Any], principal: Identity) -> str:
        """Return who makes a request: the user where we know one, else the machine."""
        client = scope.get("client")
        return f"owner {principal.owner}" if principal.owner else str(client[0]) if client else ""

    def has_room(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Tell whether a request may go on: one in a session may, and one that opens a session while there is room."""
        names = {name for name, _ in headers}
        if peer in UNLIMITED_PEERS or _SESSION_HEADER in names or b"mcp-method" in names:
            return True
        expired_before = time.monotonic() - self._idle_seconds
        while self._sessions and next(iter(self._sessions.values()))[1] < expired_before:
            self._sessions.popitem(last=False)
        return sum(owner == peer for owner, _ in self._sessions.values()) < self._max_sessions

    def track_sessions(self, peer: str, scope: Mapping[str, Any], send: Send) -> Send:
        """Return a `send` that takes note of the sessions that are opened, used and ended."""
        if peer in UNLIMITED_PEERS:
            return send
        session_id = next((value for name, value in scope["headers"] if name == _SESSION_HEADER), b"")

        async def send_tracked(message: Any) -> None:
            if message["type"] == "http.response.start":
                # What a client calls its session may be none: only what the SDK says of itself is one.
                new_session_id = next((value for name, value in message["headers"] if name == _SESSION_HEADER), None)
                if scope["method"] == "DELETE" or message["status"] == 404:  # noqa: PLR2004 - no such session
                    self._sessions.pop(session_id, None)
                elif new_session_id is not None and message["status"] < 300:  # noqa: PLR2004 - one that was not opened is none
                    self._sessions.pop(new_session_id, None)
                    self._sessions[new_session_id] = (peer, time.monotonic())
            await send(message)

        return send_tracked
