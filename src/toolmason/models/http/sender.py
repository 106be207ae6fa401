"""What brings a body to a provider, and where the provider is.

Lives here: the protocol of senders, the address as a value, a sender that is made with the first request.
Not here: any connection (`transport`). Nothing here loads an HTTP library, which costs more than a whole model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from toolmason.errors import ModelError

_RETRY_STATUSES: Final = frozenset({408, 409, 429})
_SERVER_ERROR: Final = 500
_FIRST_DELAY, _MAX_DELAY, _MAX_RETRY_AFTER = 0.5, 8.0, 60.0


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent again, and how long to wait before."""

    max_retries: int = 2
    """Beside the first attempt."""

    def get_delay(self, attempt: int, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait before another attempt; `None` where there is none.

        A wait that the provider asks for is kept to, up to a minute: more is for the caller to decide.
        """
        if attempt >= self.max_retries or (retry_after is not None and retry_after > _MAX_RETRY_AFTER):
            return None
        import random  # noqa: PLC0415 - 2 ms at start-up, for requests that failed

        max_delay = min(_MAX_DELAY, _FIRST_DELAY * 2.0**attempt)
        # Clients that failed together must not come back together.
        return max(retry_after or 0.0, max_delay * (0.75 + random.random() / 4))  # noqa: S311 - no secret


def is_retryable_status(status: int) -> bool:
    """Tell whether a failure of this status may go away by itself."""
    return status in _RETRY_STATUSES or status >= _SERVER_ERROR


class Sender(Protocol):
    """Something that brings a body to a provider."""

    @property
    def secrets(self) -> Sequence[str]:
        """What no error may show."""
        ...

    async def post(self, body: Mapping[str, Any]) -> Any:
        """Return the answer. Raises ModelError."""
        ...

    def events(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the events of the answer, asked for once. Raises ModelError."""
        ...

    async def wait_for_retry(self, error: ModelError, attempt: int) -> bool:
        """Wait before another attempt to stream, and tell whether there is one."""
        ...

    async def aclose(self) -> None:
        """Close what was opened."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a provider is, and what it wants to see in every request."""

    provider: str
    url: str
    stream_url: str
    headers: Mapping[str, str] = field(repr=False)
    secret: str = field(default="", repr=False)
    """Struck out of whatever the provider writes."""
    make_headers: Callable[[Mapping[str, Any]], Mapping[str, str]] | None = None
    """Headers that follow from a body, such as the names of betas."""


class LazySender:
    """A sender that is made with the first request."""

    def __init__(self, make: Callable[[], Sender]) -> None:
        self._make = make
        self._instances: tuple[Sender, ...] = ()

    @property
    def _sender(self) -> Sender:
        if not self._instances:
            self._instances = (self._make(),)
        return self._instances[0]

    @property
    def secrets(self) -> Sequence[str]:
        """What no error may show."""
        return self._instances[0].secrets if self._instances else ()

    async def post(self, body: Mapping[str, Any]) -> Any:
        """Return the answer."""
        return await self._sender.post(body)

    def events(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the events of the answer."""
        return self._sender.events(body)

    async def wait_for_retry(self, error: ModelError, attempt: int) -> bool:
        """Wait before another attempt, and tell whether there is one."""
        return await self._sender.wait_for_retry(error, attempt)

    async def aclose(self) -> None:
        """Close what was opened."""
        if self._instances:
            await self._instances[0].aclose()
