"""What was sent on a stream that broke → what is sent again: the streams of sessions, within bounds.

Lives here: a store for the SDK's sessions, in memory, and the SDK's manager with one such store for each session.
Not here: when a client comes back for it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from typing import Any, Final

from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from typing_extensions import override

MAX_STREAMS: Final = 1000
"""How many streams are kept in all; the oldest go first."""
MAX_STREAMS_PER_SESSION: Final = 100
"""How many of them may be of one session."""
MAX_EVENTS_PER_STREAM: Final = 100


class ReplayBuffer:
    """The last events of each stream of each session; the oldest go first."""

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[SessionEventStore, str], deque[tuple[str, Any]]] = OrderedDict()

    def make_store(self) -> SessionEventStore:
        """Return a place for the events of one session, which no other session can look into."""
        return SessionEventStore(self)

    def add(self, owner: SessionEventStore, stream: str, event: str, message: Any) -> None:
        """Keep one event."""
        events = self._streams.setdefault((owner, stream), deque())
        self._streams.move_to_end((owner, stream))
        events.append((event, message))
        if len(events) > MAX_EVENTS_PER_STREAM:
            owner.forget(events.popleft()[0])
        own_streams = [key for key in self._streams if key[0] is owner] if len(owner) > MAX_STREAMS_PER_SESSION else []
        if len(own_streams) > MAX_STREAMS_PER_SESSION:
            self._drop(own_streams[0])
        while len(self._streams) > MAX_STREAMS:
            self._drop(next(iter(self._streams)))

    def _drop(self, key: tuple[SessionEventStore, str]) -> None:
        for event, _ in self._streams.pop(key):
            key[0].forget(event)

    def get_after(self, owner: SessionEventStore, stream: str, event: str) -> list[tuple[str, Any]]:
        """Return what came on a stream after an event."""
        events = list(self._streams.get((owner, stream), ()))
        position = next((index for index, (event_id, _) in enumerate(events) if event_id == event), len(events))
        return events[position + 1 :]


class SessionEventStore(EventStore):
    """The events of one session.

    The name of a stream is the id of a request, which a client chooses: it tells streams apart within a session alone.
    """

    def __init__(self, buffer: ReplayBuffer) -> None:
        self._buffer = buffer
        self._stream_by_event: dict[str, str] = {}
        """Event → the stream it was on."""

    def __len__(self) -> int:
        return len(self._stream_by_event)

    def __bool__(self) -> bool:
        # The SDK asks whether there is a store by its truth.
        return True

    def forget(self, event: str) -> None:
        """Forget where an event was."""
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
    """The SDK's manager of sessions, which gives each of them events of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._replay_buffer = ReplayBuffer()
        super().__init__(*args, **kwargs)

    def close_streams(self) -> None:
        """End the streams on which sessions listen for what nobody asked for; a client may come back for the rest."""
        for session in tuple(self._server_instances.values()):
            session.close_standalone_sse_stream()

    @property
    def event_store(self) -> EventStore:
        """A store for the session that is about to begin: the SDK takes it once for each."""
        return self._replay_buffer.make_store()

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        """Ignore the one store for all that the SDK would keep."""
