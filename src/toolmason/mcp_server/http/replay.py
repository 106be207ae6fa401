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

STREAMS: Final = 1000
"""How many streams are kept in all; the oldest go first."""
SHARE: Final = 100
"""How many of them may be of one session."""
EVENTS: Final = 100


class Events:
    """The last events of each stream of each session; the oldest go first."""

    def __init__(self) -> None:
        self._streams: OrderedDict[tuple[SessionEvents, str], deque[tuple[str, Any]]] = OrderedDict()

    def of_session(self) -> SessionEvents:
        """Return a place for the events of one session, which no other session can look into."""
        return SessionEvents(self)

    def keep(self, owner: SessionEvents, stream: str, event: str, message: Any) -> None:
        """Keep one event."""
        held = self._streams.setdefault((owner, stream), deque())
        self._streams.move_to_end((owner, stream))
        held.append((event, message))
        if len(held) > EVENTS:
            owner.forget(held.popleft()[0])
        own = [key for key in self._streams if key[0] is owner] if len(owner) > SHARE else []
        if len(own) > SHARE:
            self._drop(own[0])
        while len(self._streams) > STREAMS:
            self._drop(next(iter(self._streams)))

    def _drop(self, key: tuple[SessionEvents, str]) -> None:
        for event, _ in self._streams.pop(key):
            key[0].forget(event)

    def after(self, owner: SessionEvents, stream: str, event: str) -> list[tuple[str, Any]]:
        """Return what came on a stream after an event."""
        held = list(self._streams.get((owner, stream), ()))
        place = next((index for index, (known, _) in enumerate(held) if known == event), len(held))
        return held[place + 1 :]


class SessionEvents(EventStore):
    """The events of one session.

    The name of a stream is the id of a request, which a client chooses: it tells streams apart within a session alone.
    """

    def __init__(self, everyones: Events) -> None:
        self._all = everyones
        self._home: dict[str, str] = {}
        """Event → the stream it was on."""

    def __len__(self) -> int:
        return len(self._home)

    def __bool__(self) -> bool:
        # The SDK asks whether there is a store by its truth.
        return True

    def forget(self, event: str) -> None:
        """Forget where an event was."""
        self._home.pop(event, None)

    @override
    async def store_event(self, stream_id: str, message: Any) -> str:
        event = secrets.token_hex(16)
        self._home[event] = stream_id
        self._all.keep(self, stream_id, event, message)
        return event

    @override
    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        stream = self._home.get(last_event_id)
        if stream is None:
            return None
        for event, message in self._all.after(self, stream, last_event_id):
            if message is not None:
                await send_callback(EventMessage(message, event))
        return stream


class Sessions(StreamableHTTPSessionManager):
    """The SDK's manager of sessions, which gives each of them events of its own."""

    def __init__(self, *given: Any, **more: Any) -> None:
        self._events = Events()
        super().__init__(*given, **more)

    def hang_up(self) -> None:
        """End the streams on which sessions listen for what nobody asked for; a client may come back for the rest."""
        for session in tuple(self._server_instances.values()):
            session.close_standalone_sse_stream()

    @property
    def event_store(self) -> EventStore:
        """A store for the session that is about to begin: the SDK takes it once for each."""
        return self._events.of_session()

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        """Ignore the one store for all that the SDK would keep."""
