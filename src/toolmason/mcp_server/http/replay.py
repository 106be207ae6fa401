"""Store recent events of each session, so that clients can resume a broken stream."""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from typing import Any, Final

from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from typing_extensions import override

MAX_STREAMS: Final = 1000
"""Maximum number of streams in total; the oldest are dropped first."""
MAX_STREAMS_PER_SESSION: Final = 100
"""Maximum number of streams per session."""
MAX_EVENTS_PER_STREAM: Final = 100


class SessionEventStore(EventStore):
    """Recent events of the streams of one session; the oldest are dropped first.

    A stream is named after a request id, which the client chooses, so the name is unique only within a session.
    `recent_streams` holds the streams of all sessions, the least recently used first.
    """

    def __init__(self, recent_streams: OrderedDict[tuple[SessionEventStore, str], None]) -> None:
        self._recent_streams = recent_streams
        self._streams: OrderedDict[str, deque[tuple[str, Any]]] = OrderedDict()
        """Ids and messages of the events of each stream, the least recently used first."""

    @override
    async def store_event(self, stream_id: str, message: Any) -> str:
        event = secrets.token_hex(16)
        self._streams.setdefault(stream_id, deque(maxlen=MAX_EVENTS_PER_STREAM)).append((event, message))
        self._streams.move_to_end(stream_id)
        self._recent_streams[self, stream_id] = None
        self._recent_streams.move_to_end((self, stream_id))
        if len(self._streams) > MAX_STREAMS_PER_SESSION:
            self.drop(next(iter(self._streams)))
        if len(self._recent_streams) > MAX_STREAMS:
            store, oldest = next(iter(self._recent_streams))
            store.drop(oldest)
        return event

    def drop(self, stream: str) -> None:
        """Drop the events of a stream."""
        del self._streams[stream]
        del self._recent_streams[self, stream]

    @override
    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        for stream, events in self._streams.items():
            ids = [event for event, _ in events]
            if last_event_id in ids:
                for event, message in list(events)[ids.index(last_event_id) + 1 :]:
                    if message is not None:
                        await send_callback(EventMessage(message, event))
                return stream
        return None


class SessionManager(StreamableHTTPSessionManager):
    """SDK session manager with a separate event store for each session."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._recent_streams: OrderedDict[tuple[SessionEventStore, str], None] = OrderedDict()
        super().__init__(*args, **kwargs)

    def close_streams(self) -> None:
        """Close the streams for unsolicited messages; clients may reconnect."""
        for session in tuple(self._server_instances.values()):
            session.close_standalone_sse_stream()

    @property
    def event_store(self) -> EventStore:
        """Store for the next session: the SDK reads this property once per session."""
        return SessionEventStore(self._recent_streams)

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        """Ignore the shared store that the SDK would set."""
