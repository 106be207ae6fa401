"""Identify the owner of a request from its token, and limit the sessions of each client."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, TypeAlias

from pydantic_core import to_json

_TOKEN_SPECIFIC_CLAIMS: Final = frozenset({"exp", "iat", "nbf", "jti", "auth_time"})
"""Claims that differ between tokens of the same user."""
UNLIMITED_PEERS: Final = frozenset({"127.0.0.1", "::1", "localhost", ""})
"""Addresses of this machine: clients on it, or behind a proxy on it, cannot be distinguished."""
_SESSION_HEADER: Final = b"mcp-session-id"
Send: TypeAlias = Callable[[Any], Awaitable[None]]


class Identity(dict[str, Any]):
    """Context values from authentication; empty if anonymous."""

    __slots__ = ("owner",)

    owner: str
    """Key that identifies the user; empty if anonymous."""

    def __init__(self, values: Mapping[str, Any], owner: str) -> None:
        super().__init__(values)
        self.owner = owner


ANONYMOUS: Final = Identity({}, "")


def make_identity(verified: Any, token: str) -> Identity:
    """Return the identity for a token, from the result of `verify`: a name, or context values.

    Identities that differ in any value are different owners, since two tenants may share a `user`. Values that JSON
    cannot represent, such as connections, are ignored. Without a `user`, each token is its own owner.
    """
    if not isinstance(verified, Mapping):
        return Identity({"user": str(verified)}, f"user {verified}")
    values = {str(key): value for key, value in verified.items()}
    if len(values) == 1 and isinstance(user := values.get("user"), str) and user:
        return Identity(values, f"user {user}")
    claims = {
        key: text
        for key, value in values.items()
        if key not in _TOKEN_SPECIFIC_CLAIMS and (text := _to_json_text(value)) is not None
    }
    if values.get("user") in (None, "") or "user" not in claims:
        claims[""] = sha256(token.encode("utf-8", "replace")).hexdigest()
    return Identity(values, sha256(to_json(sorted(claims.items()))).hexdigest())


def _to_json_text(value: Any) -> str | None:
    try:
        return to_json(value).decode()
    except ValueError:
        return None


class SessionQuota:
    """Limit on the sessions of each peer: a user, or the machine of an anonymous client."""

    def __init__(self, max_sessions: int, idle_seconds: float) -> None:
        self._max_sessions, self._idle_seconds = max_sessions, idle_seconds
        self._sessions: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        """Peer and time of last use of each session; the least recently used comes first."""

    def get_peer(self, scope: Mapping[str, Any], principal: Identity) -> str:
        """Return the peer of a request: the user if authenticated, else the machine."""
        if principal.owner:
            return f"owner {principal.owner}"
        client = scope.get("client")
        return str(client[0]) if client else ""

    def has_room(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Return True if a request belongs to a session, or may open a new one."""
        names = {name for name, _ in headers}
        if peer in UNLIMITED_PEERS or _SESSION_HEADER in names or b"mcp-method" in names:
            return True
        expired_before = time.monotonic() - self._idle_seconds
        while self._sessions and next(iter(self._sessions.values()))[1] < expired_before:
            self._sessions.popitem(last=False)
        return sum(owner == peer for owner, _ in self._sessions.values()) < self._max_sessions

    def track_sessions(self, peer: str, scope: Mapping[str, Any], send: Send) -> Send:
        """Return a `send` that records the sessions that are opened, used and ended."""
        if peer in UNLIMITED_PEERS:
            return send
        session_id = next((value for name, value in scope["headers"] if name == _SESSION_HEADER), b"")

        async def send_tracked(message: Any) -> None:
            if message["type"] == "http.response.start":
                # Trust only the session id in the SDK's response: the client's header may be made up.
                new_session_id = next((value for name, value in message["headers"] if name == _SESSION_HEADER), None)
                if scope["method"] == "DELETE" or message["status"] == 404:  # noqa: PLR2004 - no such session
                    self._sessions.pop(session_id, None)
                elif new_session_id is not None and message["status"] < 300:  # noqa: PLR2004 - success
                    self._sessions.pop(new_session_id, None)
                    self._sessions[new_session_id] = (peer, time.monotonic())
            await send(message)

        return send_tracked
