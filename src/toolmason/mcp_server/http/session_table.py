"""Limit the sessions of each client."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from toolmason._wire import UNLIMITED_PEERS

SESSION_HEADER: Final = b"mcp-session-id"
SESSION_IDLE_SECONDS: Final = 30 * 60.0
Send: TypeAlias = Callable[[Any], Awaitable[None]]


@dataclass(slots=True, eq=False)
class Session:
    """A session that the SDK has opened."""

    peer: str = ""
    owner: str = ""
    last_used: float = 0.0
    """When the SDK last handled a request of the session."""
    is_used: bool = False
    """True if the SDK has handled a request after the one that opened the session."""
    version: str | None = None
    """Protocol version; None until the SDK has handled a request after `initialize`."""
    capabilities: Mapping[str, Any] = field(default_factory=dict)
    """Capabilities of the client."""


class SessionTable(OrderedDict[bytes, Session]):
    """The sessions by id, the least recently used first, with a limit for each peer.

    A peer is a user, or the machine of an anonymous client.
    """

    def __init__(self, max_sessions: int, idle_seconds: float) -> None:
        super().__init__()
        self._max_sessions, self._idle_seconds = max_sessions, idle_seconds
        # Half of all sessions, so that one client cannot lock out the others.
        self._max_per_peer = max(1, max_sessions // 2)

    async def make_room(self, peer: str, end_session: Callable[[bytes], Awaitable[bool]]) -> bool:
        """Make room for a new session of a peer. Return False if there is none.

        If the peer is over its share, an idle session of its own gives way; if the table is full, one of the
        peer with the most sessions. `end_session` returns False for a session that is in use.
        """
        expired_before = time.monotonic() - self._idle_seconds
        while self and next(iter(self.values())).last_used < expired_before:
            self.popitem(last=False)
        counts = Counter(session.peer for session in self.values())
        holder = peer
        if peer in UNLIMITED_PEERS or counts[peer] < self._max_per_peer:
            if len(self) < self._max_sessions:
                return True
            holder = max(counts, key=counts.__getitem__)
        # Sessions that were opened and never used go first: those of a flood.
        candidates = [session_id for session_id, session in self.items() if session.peer == holder]
        for session_id in sorted(candidates, key=lambda candidate: self[candidate].is_used):
            if await end_session(session_id):
                self.pop(session_id, None)
                return True
        return False

    def track(self, peer: str, owner: str, scope: Mapping[str, Any], send: Send) -> Send:
        """Return a `send` that records the sessions that are opened, used and ended."""
        session_id = next((value for name, value in scope["headers"] if name == SESSION_HEADER), b"")

        async def send_tracked(message: Any) -> None:
            if message["type"] == "http.response.start":
                # Trust only the session id in the SDK's response: the client's header may be made up.
                used_id = next((value for name, value in message["headers"] if name == SESSION_HEADER), None)
                if scope["method"] == "DELETE" or message["status"] == 404:  # noqa: PLR2004 - no such session
                    self.pop(session_id, None)
                elif used_id is not None and message["status"] < 300:  # noqa: PLR2004 - success
                    self._record(used_id, peer, owner)
                if message["status"] >= 400:  # noqa: PLR2004 - an error opens no session, though the SDK names one
                    kept = [(name, value) for name, value in message["headers"] if name != SESSION_HEADER]
                    message = {**message, "headers": kept}
            await send(message)

        return send_tracked

    def _record(self, session_id: bytes, peer: str, owner: str) -> None:
        session = self.get(session_id)
        if session is None:
            session = self[session_id] = Session(peer, owner)
        else:
            session.is_used = True
        session.last_used = time.monotonic()
        self.move_to_end(session_id)
        if len(self) > self._max_sessions:
            self.popitem(last=False)
