"""A toolbox that changes → clients that are told: who listens, and to what.

Lives here: the sessions and subscriptions of a server, within bounds. The stateless era listens by a request of its
own, which the SDK serves; sessions are told by us. Not here: what a list holds (`lists`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)

from toolmason.errors import ToolmasonError
from toolmason.mcp_server.lists import ToolboxLists

_log = logging.getLogger("toolmason.mcp_server")

MAX_SESSIONS: Final = 1000
MAX_SUBSCRIPTIONS: Final = 1000
MAX_PER_OWNER: Final = 100
"""How many of them one user may have, or one session of nobody's; beyond it, those of the user's oldest session go."""
_EVENTS: Final[dict[str, Any]] = {
    "tools": ToolsListChanged,
    "prompts": PromptsListChanged,
    "resources": ResourcesListChanged,
}


class Subscriptions:
    """Tells clients of what has changed."""

    def __init__(self, lists: ToolboxLists) -> None:
        self.lists, self.bus = lists, InMemorySubscriptionBus()
        self.sessions: OrderedDict[str, Any] = OrderedDict()
        self.log_levels: OrderedDict[str, str] = OrderedDict()
        """The log level that each session asked for."""
        self.subscribers: dict[str, dict[str, Any]] = {}
        """Address → session → whom to tell."""
        self._owners: dict[str, str] = {}
        """Session → whose subscriptions its are."""
        self._listened_uris: Counter[str] = Counter()
        """Addresses that requests of the stateless era listen to."""
        self._last_snapshot: dict[str, Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._notify_tasks: set[asyncio.Task[None]] = set()
        self._stop_watching: Callable[[], None] | None = None

    def open(self) -> None:
        """Begin to watch the toolbox; once is enough."""
        if self._stop_watching is None:
            self._loop = asyncio.get_running_loop()
            self._last_snapshot = self.lists.take_snapshot()
            self._stop_watching = self.lists.box.watch(self._on_change)

    def close(self) -> None:
        """Watch no more."""
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
            # A server behind us that says its lists have changed is asked for them before anybody is told.
            await self.lists.box.list()
        before, after = self._last_snapshot or {}, self.lists.take_snapshot()
        self._last_snapshot = after
        for kind in [kind for kind in after if before.get(kind) != after[kind]]:
            await self.bus.publish(_EVENTS[kind]())
            singular = {"tools": "tool", "prompts": "prompt", "resources": "resource"}[kind]
            for session_id, session in tuple(self.sessions.items()):
                await self._send(session_id, getattr(session, f"send_{singular}_list_changed")())

    async def _notify_updated(self, uri: str) -> None:
        await self.bus.publish(ResourceUpdated(uri=uri))
        for session_id, session in tuple(self.subscribers.get(uri, {}).items()):
            await self._send(session_id, session.send_resource_updated(uri))

    async def _send(self, session_id: str, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(5):
                await sending
        except Exception as error:  # noqa: BLE001 - a client that is gone costs itself, not the others
            _log.debug("a session could not be told: %s", type(error).__name__)
            self.remove_session(session_id)

    def add_session(self, session_id: str, session: Any) -> None:
        """Take note of a session."""
        self.open()
        self.sessions[session_id] = session
        while len(self.sessions) > MAX_SESSIONS:
            self.remove_session(next(iter(self.sessions)))

    def remove_session(self, session_id: str) -> None:
        """Forget a session."""
        self.sessions.pop(session_id, None)
        self.log_levels.pop(session_id, None)
        self._owners.pop(session_id, None)
        for listeners in self.subscribers.values():
            listeners.pop(session_id, None)

    def subscribe(self, uri: str, session_id: str, session: Any, owner: str = "") -> bool:
        """Have a session told of a resource; `False` where there is no room, for all or for this one."""
        self.open()
        if session_id not in self.subscribers.get(uri, {}) and not self._has_quota(session_id, owner or session_id):
            return False
        if uri not in self.subscribers and len(self.subscribers) >= MAX_SUBSCRIPTIONS:
            for unused in [known for known, listeners in self.subscribers.items() if not listeners]:
                del self.subscribers[unused]
            if len(self.subscribers) >= MAX_SUBSCRIPTIONS:
                return False
        self.subscribers.setdefault(uri, {})[session_id] = session
        self._owners.setdefault(session_id, owner or session_id)
        return True

    def _has_quota(self, session_id: str, owner: str) -> bool:
        """Tell whether a session may have one more; sessions that have ended are the oldest of their owner."""
        if not owner:
            return True  # over stdio there is one client
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
        """Have the servers behind us tell of what somebody here has subscribed to, and of nothing else."""
        own_uris = {item.uri for item in self.lists.box.own_resources}
        wanted_uris = {uri for uri, listeners in self.subscribers.items() if listeners} | {*self._listened_uris}
        await self.lists.box.__gateway__().subscribe(frozenset(wanted_uris - own_uris))

    @asynccontextmanager
    async def listen(self, uris: Iterable[str]) -> AsyncGenerator[None]:
        """Follow resources for as long as the block lasts."""
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
        """Tell a session no more of a resource."""
        listeners = self.subscribers.get(uri, {})
        listeners.pop(session_id, None)
        if not listeners:
            self.subscribers.pop(uri, None)
