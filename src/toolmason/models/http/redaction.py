"""Remove API keys from the errors of a provider; a provider or proxy may echo the request in any response."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from toolmason._secrets import mask_values
from toolmason.errors import ModelError

_PUBLIC_HEADERS: Final = frozenset(
    {"anthropic-version", "anthropic-beta", "content-type", "accept", "http-referer", "x-title"}
)
_SECRET_PARAMETER: Final = re.compile(r"key|token|sig", re.IGNORECASE)
_CLIENT_SECRET_ATTRIBUTES: Final = ("api_key", "auth_token", "admin_api_key", "_azure_ad_token", "aws_secret_key")


def find_secrets(url: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secret parts of a URL and of headers."""
    found: list[str] = []
    for name, value in headers.items():
        if name.lower() not in _PUBLIC_HEADERS:
            found += [value, value.partition(" ")[2] or value]
    parts = urlsplit(url)
    if parts.password:
        found += [parts.password, unquote(parts.password)]
    found += [value for name, value in parse_qsl(parts.query) if _SECRET_PARAMETER.search(name)]
    return tuple(found)


def find_client_secrets(client: Any) -> tuple[str, ...]:
    """Return the keys that an SDK client holds now; it may rotate them."""
    holders = (client, getattr(client, "_api_client", None))
    found = (getattr(holder, name, None) for holder in holders for name in _CLIENT_SECRET_ATTRIBUTES)
    return tuple(value for value in found if isinstance(value, str))


def redact_error(error: ModelError, secrets: Iterable[str]) -> None:
    """Remove secrets from an error, and drop its cause and context if they contain one."""
    known = tuple(secrets)
    error.args = tuple(mask_values(part, known) if isinstance(part, str) else part for part in error.args)
    for name, value in vars(error).items():
        if isinstance(value, str):
            setattr(error, name, mask_values(value, known))
    if any(text != mask_values(text, known) for text in map(_describe_error, _iterate_causes(error))):
        error.__cause__ = error.__context__ = None


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    pending = [error.__cause__, error.__context__]
    seen = {id(error)}
    while pending:
        cause = pending.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            pending += [cause.__cause__, cause.__context__]
            yield cause


def _describe_error(error: BaseException) -> str:
    return f"{error} {error!r} {vars(error)}"
