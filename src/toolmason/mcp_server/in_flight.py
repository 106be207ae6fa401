"""Requests of sessions that are being answered → one answer for each id, and a way to call one off.

Lives here: which ids of which session are taken, and the task that answers on the short way. Not here: the answers;
what the SDK answers, the SDK calls off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

Request: TypeAlias = tuple[bytes, str, int | str]
"""The session, whose it is, and the id that the client chose."""
TAKEN: Final = "A request with this id is under way. Give each request an id of its own."


class CalledOff(Exception):
    """The client wants no answer any more."""


class Underway:
    """The requests of all sessions of a server."""

    def __init__(self) -> None:
        self._tasks: dict[Request, asyncio.Task[Any] | None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def one(self, request: Request) -> Generator[bool]:
        """Hold the id of a request for as long as the block lasts; `False` where it is taken."""
        if request in self._tasks:
            # Two answers with one id: the client could not tell which is which, and the SDK loses the first.
            yield False
            return
        self._tasks[request] = None
        try:
            yield True
        finally:
            del self._tasks[request]

    async def waited(self, request: Request, rest: Any) -> Any:
        """Wait for the rest of a call.

        Raises:
            CalledOff: the client has called it off.
        """
        me = self._tasks[request] = asyncio.current_task()
        try:
            return await rest
        except asyncio.CancelledError:
            if self._tasks[request] is None and me is not None and me.uncancel() == 0:
                raise CalledOff from None
            raise
        finally:
            self._tasks[request] = None

    def call_off(self, request: Request) -> None:
        """Cancel a call that somebody waits for here; others are not ours to cancel."""
        task = self._tasks.get(request)
        if task is not None:
            self._tasks[request] = None
            task.cancel()


def id_of(data: Any) -> int | str | None:
    """Return the id of a message that wants an answer."""
    asked = data.get("id") if isinstance(data, Mapping) and "method" in data else None
    return asked if type(asked) is int or type(asked) is str else None


def called_off_by(data: Any) -> int | str | None:
    """Return the id of the request that a message calls off."""
    if not isinstance(data, Mapping) or data.get("method") != "notifications/cancelled":
        return None
    params = data.get("params")
    asked = params.get("requestId") if isinstance(params, Mapping) else None
    return asked if type(asked) is int or type(asked) is str else None
