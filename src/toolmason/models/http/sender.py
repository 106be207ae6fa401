"""What brings a body to a provider, and where the provider is.

Lives here: the protocol of senders, the address as a value, a sender that is made with the first request.
Not here: any connection (`transport`). Nothing here loads an HTTP library, which costs more than a whole model.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from toolmason.errors import ModelError


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
