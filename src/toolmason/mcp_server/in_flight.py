"""Requests of sessions that are being answered → one answer for each id, and a way to call one off.

Lives here: which ids of which session are taken, and the task that answers on the short way. Not here: the answers;
what the SDK answers, the SDK calls off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

RequestKey: TypeAlias = tuple[bytes, str, int | str]
"""The session, whose it is, and the id that the client chose."""
DUPLICATE_ID_MESSAGE: Final = "A request with this id is under way. Give each request an id of its own."


class RequestCancelled(Exception):
    """The client wants no answer any more."""


class InFlight:
    """The requests of all sessions of a server."""

    def __init__(self) -> None:
        self._tasks: dict[RequestKey, asyncio.Task[Any] | None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def claim(self, request: RequestKey) -> Generator[bool]:
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

    async def wait(self, request: RequestKey, suspended: Any) -> Any:
        """Wait for the rest of a call.

        Raises:
            CalledOff: the client has called it off.
        """
        task = self._tasks[request] = asyncio.current_task()
        try:
            return await suspended
        except asyncio.CancelledError:
            if self._tasks[request] is None and task is not None and task.uncancel() == 0:
                raise RequestCancelled from None
            raise
        finally:
            self._tasks[request] = None

    def cancel(self, request: RequestKey) -> None:
        """Cancel a call that somebody waits for here; others are not ours to cancel."""
        task = self._tasks.get(request)
        if task is not None:
            self._tasks[request] = None
            task.cancel()


def get_request_id(data: Any) -> int | str | None:
    """Return the id of a message that wants an answer."""
    request_id = data.get("id") if isinstance(data, Mapping) and "method" in data else None
    return request_id if type(request_id) is int or type(request_id) is str else None


def get_cancelled_id(data: Any) -> int | str | None:
    """Return the id of the request that a message calls off."""
    if not isinstance(data, Mapping) or data.get("method") != "notifications/cancelled":
        return None
    params = data.get("params")
    request_id = params.get("requestId") if isinstance(params, Mapping) else None
    return request_id if type(request_id) is int or type(request_id) is str else None
