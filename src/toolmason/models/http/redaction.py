"""An error of a provider → the same error without the key that was sent to it.

Lives here: what is secret of an address, of headers and of an SDK's client, and striking it out of every text of an
error. A provider, or a proxy before it, may say in any answer what it was sent. Not here: who raises errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from toolmason.errors import ModelError

_MIN_SECRET_CHARS: Final = 4
"""A shorter key is none, and would be found in the midst of words."""
_MIN_PREFIX_CHARS: Final = 8
"""So much of the beginning of a key is struck out too: a text may have been cut within it."""
_PUBLIC_HEADERS: Final = frozenset({"anthropic-version", "anthropic-beta", "content-type", "accept"})
_CLIENT_SECRET_ATTRIBUTES: Final = ("api_key", "auth_token", "admin_api_key", "_azure_ad_token", "aws_secret_key")


def find_secrets(url: str, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return what must not be shown of an address and of headers."""
    return tuple(_iterate_secrets(url, headers))


def _iterate_secrets(url: str, headers: Mapping[str, str]) -> Iterator[str]:
    for name, value in headers.items():
        if name.lower() not in _PUBLIC_HEADERS:
            yield value
            yield value.partition(" ")[2] or value
    parts = urlsplit(url)
    if parts.password:
        yield parts.password
        yield unquote(parts.password)
    for name, value in parse_qsl(parts.query):
        if "key" in name.lower() or "token" in name.lower() or "sig" in name.lower():
            yield value


def find_client_secrets(client: Any) -> tuple[str, ...]:
    """Return the keys that an SDK's client holds now: it may change them."""
    holders = (client, getattr(client, "_api_client", None))
    found = (getattr(holder, name, None) for holder in holders for name in _CLIENT_SECRET_ATTRIBUTES)
    return tuple(value for value in found if isinstance(value, str))


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return a text without secrets, and without the beginning of one at which a text was cut."""
    for secret in sorted({*secrets}, key=len, reverse=True):
        if len(secret) < _MIN_SECRET_CHARS:
            continue
        text = text.replace(secret, "…")
        if len(secret) > _MIN_PREFIX_CHARS and secret[:_MIN_PREFIX_CHARS] in text:
            for length in range(len(secret) - 1, _MIN_PREFIX_CHARS - 1, -1):
                text = text.replace(secret[:length], "…")
    return text


def redact_error(error: ModelError, secrets: Iterable[str]) -> None:
    """Take secrets out of an error, and what led to it away where that shows one."""
    known = tuple(secrets)
    error.args = tuple(redact(part, known) if isinstance(part, str) else part for part in error.args)
    for name, value in vars(error).items():
        if isinstance(value, str):
            setattr(error, name, redact(value, known))
    if any(text != redact(text, known) for text in map(_describe_error, _iterate_causes(error))):
        error.__cause__ = error.__context__ = None


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    pending, seen = [error.__cause__, error.__context__], {id(error)}
    while pending:
        cause = pending.pop()
        if cause is not None and id(cause) not in seen:
            seen.add(id(cause))
            pending += [cause.__cause__, cause.__context__]
            yield cause


def _describe_error(error: BaseException) -> str:
    return f"{error} {error!r} {vars(error)}"
