"""What was sent on a stream that broke → what is sent again: the streams of sessions, within bounds.

Lives here: a store for the SDK's sessions, in memory. Not here: when a client comes back for it.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict, deque
from typing import Any, Final

from mcp.server.streamable_http import EventMessage, EventStore
from typing_extensions import override

STREAMS: Final = 1000
EVENTS: Final = 100


class Events(EventStore):
    """The last events of each stream; the oldest go first."""

    def __init__(self) -> None:
        self._streams: OrderedDict[str, deque[tuple[str, Any]]] = OrderedDict()
        self._home: dict[str, str] = {}

    @override
    async def store_event(self, stream_id: str, message: Any) -> str:
        held = self._streams.setdefault(stream_id, deque())
        self._streams.move_to_end(stream_id)
        event = secrets.token_hex(16)
        held.append((event, message))
        self._home[event] = stream_id
        if len(held) > EVENTS:
            self._home.pop(held.popleft()[0], None)
        while len(self._streams) > STREAMS:
            for old, _ in self._streams.popitem(last=False)[1]:
                self._home.pop(old, None)
        return event

    @override
    async def replay_events_after(self, last_event_id: str, send_callback: Any) -> str | None:
        stream = self._home.get(last_event_id)
        if stream is None:
            return None
        found = False
        for event, message in list(self._streams.get(stream, ())):
            if found and message is not None:
                await send_callback(EventMessage(message, event))
            found = found or event == last_event_id
        return stream
