"""Store recent events of each session, so that clients can resume a broken stream."""

from __future__ import annotations

import math
import secrets
from collections import OrderedDict, deque
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from mcp.server.streamable_http import EventMessage, EventStore, StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic_core import to_json
from typing_extensions import override

from toolmason._wire import UNLIMITED_PEERS, ByteBudget

MAX_STREAMS: Final = 1000
"""Maximum number of streams in total; the oldest are dropped first."""
MAX_STREAMS_PER_SESSION: Final = 100
"""Maximum number of streams per session."""
MAX_EVENTS_PER_STREAM: Final = 100
MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of the events of all streams."""
MAX_CLIENT_EVENT_BYTES: Final = 16 * 1024 * 1024
"""Maximum size of the events of one user or machine; on this machine, of one session."""
REQUESTING_CLIENT: Final = ContextVar("REQUESTING_CLIENT", default="")
"""User or machine that sends the current request."""


class SessionEventStore(EventStore):
    """Recent events of the streams of one session; the oldest are dropped first.

    A stream is named after a request id, which the client chooses, so the name is unique only within a session.
    `budget` holds the streams of all sessions, the least recently used first.
    """

    def __init__(self, budget: EventBudget, client: str = "") -> None:
        self._budget, self._client = budget, client
        self._streams: OrderedDict[str, deque[tuple[str, Any, int]]] = OrderedDict()
        """Ids, messages and sizes of the events of each stream, the least recently used first."""
        self._is_closed = False

    @override
    async def store_event(self, stream_id: str, message: Any) -> str:
        event = secrets.token_hex(16)
        if self._is_closed:
            return event
        budget, stream = self._budget, self._streams.setdefault(stream_id, deque())
        size = 0 if message is None else len(to_json(message, fallback=str))
        dropped_size = stream.popleft()[2] if len(stream) >= MAX_EVENTS_PER_STREAM else 0
        stream.append((event, message, size))
        self._streams.move_to_end(stream_id)
        budget.grow((self, stream_id), self._client, size - dropped_size)
        budget.move_to_end((self, stream_id))
        if len(self._streams) > MAX_STREAMS_PER_SESSION:
            self.drop(next(iter(self._streams)))
        if len(budget) > MAX_STREAMS:
            store, oldest = next(iter(budget))
            store.drop(oldest)
        while (excess := budget.find_excess(self._client)) is not None:
            excess[0].drop(excess[1])
        return event

    def drop(self, stream: str) -> None:
        """Drop the events of a stream."""
        del self._streams[stream]
        self._budget.release((self, stream))

    def close(self) -> None:
        """Drop all events, also later ones: the session has ended."""
        self._is_closed = True
        for stream in tuple(self._streams):
            self.drop(stream)

    @override
    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        for stream, events in self._streams.items():
            ids = [event for event, _, _ in events]
            if last_event_id in ids:
                for event, message, _ in list(events)[ids.index(last_event_id) + 1 :]:
                    if message is not None:
                        await send_callback(EventMessage(message, event))
                return stream
        return None


EventBudget: TypeAlias = ByteBudget[tuple[SessionEventStore, str]]


class SessionManager(StreamableHTTPSessionManager):
    """SDK session manager with a separate event store for each session."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.event_budget: EventBudget = ByteBudget(MAX_EVENT_BYTES, MAX_CLIENT_EVENT_BYTES)
        super().__init__(*args, **kwargs)

    def close_streams(self) -> None:
        """Close the streams for unsolicited messages; clients may reconnect."""
        for session in tuple(self._server_instances.values()):
            session.close_standalone_sse_stream()

    async def end_idle_session(self, session_id: str) -> bool:
        """End a session that no request is using. Return False if one is."""
        transport = self._server_instances.get(session_id)
        if transport is not None:
            if transport.idle_scope is None or transport.idle_scope.deadline == math.inf:
                return False
            await self._discard_session(session_id, transport)
        return True

    @override
    async def _discard_session(self, session_id: str, transport: StreamableHTTPServerTransport) -> None:
        try:
            await super()._discard_session(session_id, transport)
        finally:
            store: Any = vars(transport)["_event_store"]
            store.close()

    @property
    def event_store(self) -> EventStore:
        """Store for the next session: the SDK reads this property once per session."""
        client = REQUESTING_CLIENT.get()
        return SessionEventStore(self.event_budget, secrets.token_hex(8) if client in UNLIMITED_PEERS else client)

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        """Ignore the shared store that the SDK would set."""
