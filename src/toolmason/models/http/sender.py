"""Protocol of senders, endpoints and retries; importing no HTTP library keeps creating a model cheap."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from toolmason._services import Service
from toolmason.errors import ModelError

_FIRST_DELAY: Final = 0.5
_MAX_DELAY: Final = 8.0
_MAX_RETRY_AFTER: Final = 60.0
"""Longest delay in seconds that a provider may request."""


def get_retry_delay(attempt: int, retry_after: float | None = None) -> float | None:
    """Return the seconds to wait before the attempt after this one, or None if the provider asks for too long.

    A delay requested by the provider is honoured up to one minute; a longer one is left to the caller.
    """
    if retry_after is not None and retry_after > _MAX_RETRY_AFTER:
        return None
    import random  # noqa: PLC0415 - 2 ms at start-up, needed only for failed requests

    max_delay = min(_MAX_DELAY, _FIRST_DELAY * 2.0**attempt)
    # Jitter, so that clients that failed together do not retry together.
    return max(retry_after or 0.0, max_delay * (0.75 + random.random() / 4))  # noqa: S311 - not a secret


def get_origin(url: str) -> str:
    """Return the part of a URL that errors may show: path, query and user may hold a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def join_headers(headers: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return headers with more of them. Two values of one name are joined by a comma, as beta flags are."""
    names = {name.lower(): name for name in headers}
    joined = dict(headers)
    for name, value in more.items():
        known = names.get(name.lower(), name)
        joined[known] = f"{joined[known]},{value}" if known in joined else value
    return joined


class Sender(Protocol):
    """Sender of request bodies to a provider."""

    @property
    def secrets(self) -> Sequence[str]:
        """Strings that errors must not contain."""
        ...

    def post(self, body: Mapping[str, Any], *, count: bool = False) -> Coroutine[Any, Any, Any]:
        """Return the response; with `count`, that of the API that counts the tokens of a request. Raises ModelError."""
        ...

    def events(self, body: Mapping[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the events of the response, without retries. Raises ModelError."""
        ...

    async def wait_for_retry(self, error: ModelError, attempt: int) -> bool:
        """Wait before the next attempt to stream. Return False if there is none."""
        ...

    async def aclose(self) -> None:
        """Close open connections."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """URLs and headers of a provider."""

    provider: str
    service: Service
    """Service that the server belongs to."""
    url: str
    stream_url: str
    count_url: str = ""
    """URL that counts the tokens of a request; empty if the provider has none."""
    headers: Mapping[str, str] = field(repr=False)
    secret: str = field(default="", repr=False)
    """Redacted from all text that the provider returns."""
    field_headers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Headers that a field of the body requires, such as beta flags, by the name of the field."""
