"""Connections that come in → requests: uvicorn, with limits for slow and many senders.

Lives here: how long a header may take, how many connections there may be, and the server that runs the application.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from typing_extensions import override

try:
    import uvicorn
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError as missing:
    raise ImportError("Serving over HTTP needs its server: pip install 'toolwright[serve]'") from missing

from toolwright.serving.app import McpApp
from toolwright.serving.peers import UNCOUNTED
from toolwright.serving.stdio import GRACE_SECONDS

HEADER_SECONDS: Final = 10.0
HEADER_BYTES: Final = 64 * 1024
READ_SECONDS: Final = 60.0
"""How long a client may leave an answer unread."""
CONNECTIONS: Final = 512
PEER_CONNECTIONS: Final = 256
"""How many of them may come from one other machine."""
KEEP_ALIVE_SECONDS: Final = 30


class _Patient(HttpToolsProtocol):
    """A connection that has to say what it wants, soon and in few words."""

    _due: float | None = None
    """Until when the head of a request has to be here; `None` while one is answered."""
    _look: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _in_head = False
    _chunk = _size = 0

    @override
    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait()
        if len(self.connections) <= PEER_CONNECTIONS:
            return
        ours = [other for other in self.connections if isinstance(other, _Patient)]
        if len(ours) > CONNECTIONS:
            self._make_room(ours)
        elif self.machine not in UNCOUNTED:
            same = [other for other in ours if other.machine == self.machine]
            if len(same) > PEER_CONNECTIONS:
                self._make_room(same)

    def _make_room(self, among: list[_Patient]) -> None:
        """Cut off whoever has waited longest without a request; the newcomer, where all are busy."""
        next((other for other in among if other.is_idle and other is not self), self).transport.abort()

    @property
    def machine(self) -> str:
        """Where the connection comes from."""
        return self.client[0] if self.client else ""

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered here."""
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def _wait(self) -> None:
        # One timer that looks now and then: to set and cancel one for each request costs more than the rest of this.
        self._due = self.loop.time() + HEADER_SECONDS
        if self._look is None:
            self._look = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._look = None
        if self._due is None:
            return
        left = self._due - self.loop.time()
        if left <= 0:
            self.transport.abort()
        else:
            self._look = self.loop.call_later(left, self._give_up)

    @override
    def data_received(self, data: bytes) -> None:
        self._chunk = len(data)
        self._size += self._chunk
        super().data_received(data)
        if self._in_head and self._size > HEADER_BYTES:
            self.transport.abort()
        # The rest of a body that was refused unread, or no request at all: it ends the wait for the next request, and
        # must not end the patience with it. To close at once would lose the answer on its way.
        if self._due is None and self.is_idle and not self.transport.is_closing():
            self._wait()

    @override
    def on_message_begin(self) -> None:
        self._in_head, self._size = True, self._chunk
        self._wait()
        super().on_message_begin()

    @override
    def on_headers_complete(self) -> None:
        self._in_head, self._due = False, None
        headers = self.headers
        size = (
            len(self.url) + sum(len(name) + len(value) for name, value in headers) if self._size > HEADER_BYTES else 0
        )
        if size > HEADER_BYTES:
            self.transport.abort()
        if any(value[-1:] in b" \t" for _, value in headers):
            # The space around a value is not part of it; the parser leaves it at the end.
            headers[:] = [(name, value.strip(b" \t")) for name, value in headers]
        if not self.transport.is_closing():
            super().on_headers_complete()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(READ_SECONDS, self.transport.abort)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    @override
    def timeout_keep_alive_handler(self) -> None:
        # To close would wait until the rest is read, which may be never.
        self.transport.abort()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._look, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)


class _Announced(uvicorn.Server):
    """A server that says where it listens."""

    started_at: Callable[[int], None] | None = None
    """Called with the port, when connections come in."""

    @override
    async def startup(self, sockets: list[Any] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.started_at is not None:
            self.started_at(self.servers[0].sockets[0].getsockname()[1])


def server_for(
    app: McpApp, host: str, port: int, grace: float = GRACE_SECONDS, started: Callable[[int], None] | None = None
) -> uvicorn.Server:
    """Return the server that runs an application; `started` is told the port, which is another where it was 0."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_Patient,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=1024,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=int(grace),
    )
    server = _Announced(config)
    server.started_at = started
    return server
