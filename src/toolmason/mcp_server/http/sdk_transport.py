"""Let the SDK carry the requests that need a session or a stream over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from toolmason._http.caller import get_peer
from toolmason._http.guard import ErrorResponse, Receive, Send
from toolmason.mcp_server.call_tool import make_replica_error
from toolmason.mcp_server.client_requests import ORIGIN_KEY, Origin
from toolmason.mcp_server.dispatch import InFlight
from toolmason.mcp_server.handlers import Handlers
from toolmason.mcp_server.http.replay import REQUESTING_CLIENT, SessionManager
from toolmason.mcp_server.http.session_table import SESSION_HEADER, SESSION_IDLE_SECONDS, SessionTable
from toolmason.mcp_server.sdk_server import make_server

_SESSION_HEADERS: Final = frozenset({SESSION_HEADER, b"mcp-method"})
"""Headers of a request that opens no session."""


class SdkTransport:
    """The SDK's server and session manager. It starts on the first request."""

    def __init__(
        self, handlers: Handlers, sessions: SessionTable, in_flight: InFlight, max_body_bytes: int, max_sessions: int
    ) -> None:
        self.server = make_server(handlers)
        self._handlers, self._sessions, self._in_flight = handlers, sessions, in_flight
        self._max_body_bytes, self._max_sessions = max_body_bytes, max_sessions
        self.manager = self._make_manager()
        self._stop: asyncio.Event | None = None
        self._ready: asyncio.Future[None] | None = None
        self._lifecycle_task: asyncio.Task[None] | None = None

    async def handle(self, scope: Any, origin: Origin, receive: Receive, send: Send) -> None:
        """Answer one request whose headers have been checked."""
        await self._open()
        identity = origin.identity
        if self._handlers.replicated and scope["method"] != "POST":
            # A stream, its replay and the end of a session need the process that opened the session.
            error = make_replica_error("Sessions are")
            await ErrorResponse(405, error.message)(send)
            return
        peer = get_peer(scope, identity)
        opens_session = scope["method"] == "POST" and not any(name in _SESSION_HEADERS for name, _ in scope["headers"])
        if opens_session and not await self._sessions.make_room(peer, self._end_session):
            await ErrorResponse(503, "All sessions are in use. End some, or try again later.")(send)
            return
        scope = {**scope, ORIGIN_KEY: origin}
        if identity:
            # The SDK binds the session to this user, so that other users cannot use it.
            scope["user"] = AuthenticatedUser(AccessToken(token="-", client_id=identity.owner, scopes=[]))  # noqa: S106 - not a password
        REQUESTING_CLIENT.set(peer)
        await self.manager.handle_request(scope, receive, self._sessions.track(peer, identity.owner, scope, send))

    async def _end_session(self, session_id: bytes) -> bool:
        """End a session that nothing is using. Return False if something is."""
        is_used = any(isinstance(key, tuple) and key[0] == session_id for key in self._in_flight)
        return not is_used and await self.manager.end_idle_session(session_id.decode("latin-1"))

    # --- lifecycle ---------------------------------------------------------------------------------

    def _make_manager(self) -> SessionManager:
        """Return a new session manager; the SDK's can run only once."""
        return SessionManager(
            self.server,
            retry_interval=1000,
            session_idle_timeout=SESSION_IDLE_SECONDS,
            max_request_body_size=self._max_body_bytes,
            max_sessions=self._max_sessions,
            stateless=self._handlers.replicated,
        )

    async def _open(self) -> None:
        """Start the session manager, unless it is running.

        After a stop, or if its event loop is gone, it starts again without sessions.
        """
        task = self._lifecycle_task
        if task is not None and (task.done() or task.get_loop() is not asyncio.get_running_loop()):
            self._reset()
        if self._ready is None:
            self._stop = asyncio.Event()
            self._ready = asyncio.get_running_loop().create_future()
            self._lifecycle_task = asyncio.create_task(
                self._run_lifecycle(self._stop, self._ready), name="toolmason-serving"
            )
        await asyncio.shield(self._ready)

    async def _run_lifecycle(self, stop: asyncio.Event, ready: asyncio.Future[None]) -> None:
        try:
            async with self.manager.run():
                self._handlers.subscriptions.open()
                ready.set_result(None)
                await stop.wait()
                self.server.listen_handler.close()
                await self._handlers.close()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)
            raise

    def close_streams(self) -> None:
        """Close the streams of clients that only listen; calls continue."""
        self.server.listen_handler.close()
        self.manager.close_streams()

    async def aclose(self) -> None:
        """Stop the session manager and all tasks."""
        if self._stop is not None and self._lifecycle_task is not None:
            self._stop.set()
            await asyncio.wait((self._lifecycle_task,), timeout=5)
            self._reset()

    def _reset(self) -> None:
        """Reset the state, so that nothing carries over to the next start."""
        self._stop = self._ready = self._lifecycle_task = None
        self.manager = self._make_manager()
        self._sessions.clear()
        self._handlers.subscriptions.close()
