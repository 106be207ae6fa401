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


class ReplayBuffer:
    """Recent events of each stream of each session; the oldest are dropped first."""

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[SessionEventStore, str], deque[tuple[str, Any]]] = OrderedDict()

    def make_store(self) -> SessionEventStore:
        """Return an event store for one session, isolated from other sessions."""
        return SessionEventStore(self)

    def add(self, owner: SessionEventStore, stream: str, event: str, message: Any) -> None:
        """Store an event of a stream, by its id. Drop the oldest events and streams if there are too many."""
        events = self._streams.setdefault((owner, stream), deque())
        self._streams.move_to_end((owner, stream))
        events.append((event, message))
        if len(events) > MAX_EVENTS_PER_STREAM:
            owner.forget(events.popleft()[0])
        # Every stream has at least one event, so the streams are counted only if the session has many events.
        if len(owner) > MAX_STREAMS_PER_SESSION:
            own_streams = [key for key in self._streams if key[0] is owner]
            if len(own_streams) > MAX_STREAMS_PER_SESSION:
                self._drop(own_streams[0])
        while len(self._streams) > MAX_STREAMS:
            self._drop(next(iter(self._streams)))

    def _drop(self, key: tuple[SessionEventStore, str]) -> None:
        for event, _ in self._streams.pop(key):
            key[0].forget(event)

    def get_after(self, owner: SessionEventStore, stream: str, event: str) -> list[tuple[str, Any]]:
        """Return the events of a stream after a given event."""
        events = list(self._streams.get((owner, stream), ()))
        position = next((index for index, (event_id, _) in enumerate(events) if event_id == event), len(events))
        return events[position + 1 :]


class SessionEventStore(EventStore):
    """The events of one session.

    A stream is named after a request id, which the client chooses, so the name is unique only within a session.
    """

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer
        self._stream_by_event: dict[str, str] = {}
        """Stream of each event, by event id."""

    def __len__(self) -> int:
        return len(self._stream_by_event)

    def __bool__(self) -> bool:
        # The SDK checks for a store by its truth value.
        return True

    def forget(self, event: str) -> None:
        """Remove an event."""
        self._stream_by_event.pop(event, None)

    @override
    async def store_event(self, stream_id: str, message: Any) -> str:
        event = secrets.token_hex(16)
        self._stream_by_event[event] = stream_id
        self._buffer.add(self, stream_id, event, message)
        return event

    @override
    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        stream = self._stream_by_event.get(last_event_id)
        if stream is None:
            return None
        for event, message in self._buffer.get_after(self, stream, last_event_id):
            if message is not None:
                await send_callback(EventMessage(message, event))
        return stream


class SessionManager(StreamableHTTPSessionManager):
    """SDK session manager with a separate event store for each session."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._replay_buffer = ReplayBuffer()
        super().__init__(*args, **kwargs)

    def close_streams(self) -> None:
        """Close the streams for unsolicited messages; clients may reconnect."""
        for session in tuple(self._server_instances.values()):
            session.close_standalone_sse_stream()

    @property
    def event_store(self) -> EventStore:
        """Store for the next session: the SDK reads this property once per session."""
        return self._replay_buffer.make_store()

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        """Ignore the shared store that the SDK would set."""
