"""Track the requests in progress of each session, to reject duplicate ids and to cancel calls."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

RequestKey: TypeAlias = tuple[bytes, str, int | str]
"""Session id, owner, and the request id chosen by the client."""
DUPLICATE_ID_MESSAGE: Final = "A request with this id is in progress. Use a unique id for each request."


class RequestCancelled(Exception):
    """The client cancelled the request."""


class InFlight:
    """Requests in progress in all sessions of a server."""

    def __init__(self) -> None:
        self._tasks: dict[RequestKey, asyncio.Task[Any] | None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    @contextmanager
    def claim(self, request: RequestKey) -> Generator[bool]:
        """Claim the id of a request during the block. Yield False if the id is in use."""
        if request in self._tasks:
            # The client could not distinguish two responses with one id, and the SDK loses the first.
            yield False
            return
        self._tasks[request] = None
        try:
            yield True
        finally:
            del self._tasks[request]

    async def wait(self, request: RequestKey, suspended: Any) -> Any:
        """Wait for a suspended call.

        Raises:
            RequestCancelled: the client cancelled the request.
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
        """Cancel a call on the fast path. The SDK cancels its own calls."""
        task = self._tasks.get(request)
        if task is not None:
            self._tasks[request] = None
            task.cancel()


def get_request_id(data: Any) -> int | str | None:
    """Return the id of a message that expects a response, or None."""
    request_id = data.get("id") if isinstance(data, Mapping) and "method" in data else None
    return request_id if type(request_id) is int or type(request_id) is str else None


def get_cancelled_id(data: Any) -> int | str | None:
    """Return the id of the request that a message cancels, or None."""
    if not isinstance(data, Mapping) or data.get("method") != "notifications/cancelled":
        return None
    params = data.get("params")
    request_id = params.get("requestId") if isinstance(params, Mapping) else None
    return request_id if type(request_id) is int or type(request_id) is str else None
