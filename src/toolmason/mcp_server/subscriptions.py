"""Notify clients of changed lists and resources, with bounded sessions and subscriptions.

Stateless-era clients listen through the SDK's bus; sessions are notified directly.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from toolmason._core.remote.gateway import Gateway
from toolmason._core.toolbox.toolbox import get_state
from toolmason.errors import ToolmasonError
from toolmason.mcp_server.lists import ToolboxLists

_log = logging.getLogger("toolmason.mcp_server")

Notify = Callable[[str, str | None], Awaitable[None]]
"""Function that notifies a client of a changed list, by its kind, or of a changed resource, by its URI."""
MAX_SESSIONS: Final = 1000
MAX_SUBSCRIPTIONS: Final = 1000
MAX_PER_OWNER: Final = 100
"""Maximum number of subscriptions per user or anonymous session; those of the oldest session are dropped first."""


class Subscriptions:
    """Sessions and subscriptions of a served toolbox."""

    def __init__(self, lists: ToolboxLists) -> None:
        self.lists = lists
        self.publish: Notify | None = None
        """Notifies the SDK's bus; None if no client listens."""
        self.sessions: OrderedDict[str, Notify] = OrderedDict()
        self.log_levels: OrderedDict[str, str] = OrderedDict()
        """Log level that each session requested."""
        self.subscribers: dict[str, dict[str, Notify]] = {}
        """Sessions to notify, by URI and session id."""
        self._owners: dict[str, str] = {}
        """Owner of the subscriptions of each session, by session id."""
        self._listened_uris: Counter[str] = Counter()
        """URIs that stateless-era requests listen to."""
        self._last_snapshot: dict[str, Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notify_tasks: set[asyncio.Task[None]] = set()
        self._stop_watching: Callable[[], None] | None = None

    def open(self) -> None:
        """Start watching the toolbox, unless already started."""
        if self._stop_watching is None:
            self._loop = asyncio.get_running_loop()
            self._last_snapshot = self.lists.take_snapshot()
            self._stop_watching = self.lists.box.servers.watch(self._on_change)

    async def follow(self) -> None:
        """Watch the toolbox that the lists have now, and notify the clients of what differs."""
        self.lists.stale = True
        if self._stop_watching is not None:
            self._stop_watching()
            self._stop_watching = self.lists.box.servers.watch(self._on_change)
            await self.sync_upstream()
            self._on_change(None)

    def close(self) -> None:
        """Stop watching the toolbox."""
        if self._stop_watching is not None:
            self._stop_watching()
            self._stop_watching = None
        for task in self._notify_tasks:
            task.cancel()

    def _on_change(self, uri: str | None) -> None:
        if uri is None:
            self.lists.stale = True
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._notify, uri)

    def _notify(self, uri: str | None) -> None:
        if self._stop_watching is None:
            return
        work = self._notify_updated(uri) if uri is not None else self._notify_lists()
        task = asyncio.get_running_loop().create_task(work)
        self._notify_tasks.add(task)
        task.add_done_callback(self._notify_tasks.discard)

    async def _notify_lists(self) -> None:
        with suppress(ToolmasonError):
            # Refetch the lists of upstream servers before notifying clients that they changed.
            await self.lists.box.list()
        before = self._last_snapshot or {}
        after = self._last_snapshot = self.lists.take_snapshot()
        for kind in [kind for kind in after if before.get(kind) != after[kind]]:
            if self.publish is not None:
                await self.publish(kind, None)
            for session_id, notify in tuple(self.sessions.items()):
                await self._send(session_id, notify(kind, None))

    async def _notify_updated(self, uri: str) -> None:
        if self.publish is not None:
            await self.publish("resources", uri)
        for session_id, notify in tuple(self.subscribers.get(uri, {}).items()):
            await self._send(session_id, notify("resources", uri))

    async def _send(self, session_id: str, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(5):
                await sending
        except Exception as error:  # noqa: BLE001 - a client that is gone must not affect the others
            _log.debug("failed to notify a session: %s", type(error).__name__)
            self.remove_session(session_id)

    def add_session(self, session_id: str, notify: Notify) -> None:
        """Add a session."""
        self.open()
        self.sessions[session_id] = notify
        while len(self.sessions) > MAX_SESSIONS:
            self.remove_session(next(iter(self.sessions)))

    def remove_session(self, session_id: str) -> None:
        """Remove a session and its subscriptions."""
        self.sessions.pop(session_id, None)
        self.log_levels.pop(session_id, None)
        self._owners.pop(session_id, None)
        for listeners in self.subscribers.values():
            listeners.pop(session_id, None)

    def subscribe(self, uri: str, session_id: str, notify: Notify, owner: str = "") -> bool:
        """Subscribe a session to a resource. Return False if a quota is exhausted."""
        self.open()
        if session_id not in self.subscribers.get(uri, {}) and not self._make_room(session_id, owner or session_id):
            return False
        if uri not in self.subscribers and len(self.subscribers) >= MAX_SUBSCRIPTIONS:
            for unused in [known for known, listeners in self.subscribers.items() if not listeners]:
                del self.subscribers[unused]
            if len(self.subscribers) >= MAX_SUBSCRIPTIONS:
                return False
        self.subscribers.setdefault(uri, {})[session_id] = notify
        self._owners.setdefault(session_id, owner or session_id)
        return True

    def _make_room(self, session_id: str, owner: str) -> bool:
        """Make room for a subscription by dropping those of the owner's oldest sessions. Return True if it succeeds."""
        if not owner:
            return True  # stdio has a single client
        others = [known for known, known_owner in self._owners.items() if known_owner == owner and known != session_id]
        while (
            sum(len(listeners.keys() & {session_id, *others}) for listeners in self.subscribers.values())
            >= MAX_PER_OWNER
        ):
            if not others:
                return False
            self._owners.pop(others[0])
            for listeners in self.subscribers.values():
                listeners.pop(others[0], None)
            del others[0]
        return True

    async def sync_upstream(self) -> None:
        """Subscribe, on the upstream servers, to exactly the resources that clients listen to."""
        own_uris = {item.uri for item in get_state(self.lists.box).catalog.resources.values()}
        wanted_uris = {uri for uri, listeners in self.subscribers.items() if listeners} | {*self._listened_uris}
        await Gateway(get_state(self.lists.box).remotes).subscribe(frozenset(wanted_uris - own_uris))

    @asynccontextmanager
    async def listen(self, uris: Iterable[str]) -> AsyncGenerator[None]:
        """Listen to resources during the block."""
        counts = Counter(map(str, uris))
        self._listened_uris += counts
        if counts:
            await self.sync_upstream()
        try:
            yield
        finally:
            self._listened_uris -= counts
            if counts:
                await self.sync_upstream()

    def unsubscribe(self, uri: str, session_id: str) -> None:
        """Unsubscribe a session from a resource."""
        listeners = self.subscribers.get(uri, {})
        listeners.pop(session_id, None)
        if not listeners:
            self.subscribers.pop(uri, None)
