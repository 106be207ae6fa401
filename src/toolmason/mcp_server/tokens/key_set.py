"""Find the public key of a token in a JSON Web Key Set."""

from __future__ import annotations

import asyncio
import logging
import math
import time
import weakref
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic_core import from_json

from toolmason._text import is_safe_endpoint, split_url
from toolmason.errors import ConfigError, RemoteError, clip

if TYPE_CHECKING:
    from jwt import PyJWK

_log = logging.getLogger("toolmason.mcp_server")

MAX_ANSWER_BYTES: Final = 256 * 1024
"""Maximum size of a set of keys, or of another answer of an authorization server."""
ANSWER_SECONDS: Final = 5.0
_PUBLIC_MEMBERS: Final = frozenset({"kty", "kid", "use", "key_ops", "alg", "n", "e", "crv", "x", "y"})
MAX_KEYS: Final = 100
_MIN_RSA_BITS: Final = 2048
KEY_REFRESH_SECONDS: Final = 30.0
"""Time between two reads of the keys, however many tokens name an unknown one."""
KEY_FRESH_SECONDS: Final = 3600.0
KEY_STALE_SECONDS: Final = 86_400.0
"""Ages at which the keys are read again, and up to which they are used while they cannot be read."""
KEY_OF_ALGORITHM: Final[Mapping[str, tuple[str, tuple[str | None, ...]]]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", (None,))),
    "ES256": ("EC", ("P-256",)),
    "ES384": ("EC", ("P-384",)),
    "ES512": ("EC", ("P-521",)),
    "EdDSA": ("OKP", ("Ed25519", "Ed448")),
}
"""Type and curves of the key of each algorithm. All are asymmetric: a public key must never verify an HMAC."""


class TokenEndpoint:
    """Address of an authorization server, set by the developer. Redirects to other servers are not followed."""

    def __init__(self, option: str, address: str) -> None:
        parts = split_url(address)
        if not is_safe_endpoint(parts) or not parts.hostname or parts.username or parts.fragment:
            raise ConfigError(f"{option}={clip(address)!r}: must be an https address without a user or a fragment.")
        try:
            from toolmason.openapi import http_calls  # noqa: PLC0415 - needs an extra, and keys may come from a file
        except ImportError as missing:
            raise ImportError(f"{option}= as an address needs httpx2: pip install 'toolmason[auth]'") from missing
        query = [(name, value) for name, _, value in (p.partition("=") for p in parts.query.split("&")) if name]
        self._make_request = partial(http_calls.ApiRequest, path=parts.path or "/", query=query)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self._client = http_calls.ApiClient(self.origin, max_bytes=MAX_ANSWER_BYTES, timeout=ANSWER_SECONDS)

    async def fetch(
        self, method: str = "GET", content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """Return the body of the response.

        Raises:
            RemoteError: the server cannot be reached, or its status is not 200.
        """
        request = self._make_request(method=method, headers=dict(headers or {}), content=content)
        response = await self._client.send(request)
        if response.status != HTTPStatus.OK:
            raise RemoteError(self.origin, "call", f"it answered with status {response.status}")
        return response.content


class KeySet:
    """Public keys from data, from a file, or from an address. The last two are read again if a key is unknown."""

    def __init__(self, jwks: Mapping[str, Any] | str | Path) -> None:
        self._keys: list[dict[str, Any]] = []
        self._found: dict[tuple[str | None, str], PyJWK] = {}
        self._read_at = self._tried_at = -math.inf
        # A lock belongs to one event loop.
        self._locks: weakref.WeakKeyDictionary[Any, asyncio.Lock] = weakref.WeakKeyDictionary()
        self._endpoint: TokenEndpoint | None = None
        self._path: Path | None = None
        if isinstance(jwks, Mapping):
            self._replace(_parse_keys("data", jwks))
        elif isinstance(jwks, str) and "://" in jwks:
            self._endpoint = TokenEndpoint("jwks", jwks)
        else:
            self._path = Path(jwks)
            self._replace(self._read_file(self._path))

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Return the key with this id for this algorithm, or None. Without an id, only one key may fit.

        Raises:
            RemoteError: the keys cannot be read.
        """
        key = self._look_up(kid, algorithm)
        is_fixed = self._endpoint is None and self._path is None
        if is_fixed or (key is not None and time.monotonic() - self._read_at < KEY_FRESH_SECONDS):
            return key
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if time.monotonic() - self._tried_at >= KEY_REFRESH_SECONDS:
                await self._refresh()
        if not self._keys:
            raise RemoteError(self._source, "read", "its keys are not available")
        return self._look_up(kid, algorithm)

    @property
    def _source(self) -> str:
        return str(self._path) if self._endpoint is None else self._endpoint.origin

    async def _refresh(self) -> None:
        try:
            if self._endpoint is not None:
                keys = _parse_keys(self._source, _parse_json(self._source, await self._endpoint.fetch()))
            else:
                keys = await asyncio.to_thread(self._read_file, self._path or Path())
        except (ConfigError, RemoteError) as error:
            _log.warning("cannot read the keys of tokens: %s", error)
            if time.monotonic() - self._read_at > KEY_STALE_SECONDS:
                self._keys = []
                self._found = {}
        else:
            self._replace(keys)
        self._tried_at = time.monotonic()

    def _replace(self, keys: list[dict[str, Any]]) -> None:
        # A new dict: the key of a token that is being checked may have been withdrawn.
        self._keys, self._found = keys, {}
        self._read_at = time.monotonic()

    def _look_up(self, kid: str | None, algorithm: str) -> PyJWK | None:
        found = self._found
        if (key := found.get((kid, algorithm))) is not None:
            return key
        fitting = [key for key in self._keys if _fits(key, kid, algorithm)]
        if not fitting or (kid is None and len(fitting) > 1):
            return None
        from jwt import PyJWK  # noqa: PLC0415 - an extra, which `Jwt` has found
        from jwt.exceptions import PyJWTError  # noqa: PLC0415 - the same

        try:
            key = PyJWK(fitting[0], algorithm)
        except PyJWTError:
            return None  # its numbers are not those of a key
        if getattr(key.key, "key_size", _MIN_RSA_BITS) < _MIN_RSA_BITS and key.key_type == "RSA":
            return None
        found[kid, algorithm] = key
        return key

    @staticmethod
    def _read_file(path: Path) -> list[dict[str, Any]]:
        try:
            with path.open("rb") as file:
                content = file.read(MAX_ANSWER_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"jwks={str(path)!r} cannot be read: {type(error).__name__}. Check the path.") from None
        if len(content) > MAX_ANSWER_BYTES:
            raise ConfigError(f"jwks={str(path)!r} is larger than {MAX_ANSWER_BYTES:,} bytes. Remove old keys.")
        return _parse_keys(str(path), _parse_json(str(path), content))


def _parse_json(source: str, content: bytes) -> Any:
    try:
        return from_json(content)
    except ValueError:
        raise ConfigError(f"jwks={source!r} is not JSON. Pass a JSON Web Key Set.") from None


def _parse_keys(source: str, document: Any) -> list[dict[str, Any]]:
    """Return the public parts of the keys that can verify a signature."""
    keys = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise ConfigError(
            f"jwks={source!r} is not a JSON Web Key Set of at most {MAX_KEYS} keys: 'keys' must be a list."
        )
    types = {kind for kind, _ in KEY_OF_ALGORITHM.values()}
    usable = [
        {name: value for name, value in key.items() if name in _PUBLIC_MEMBERS}
        for key in keys
        if isinstance(key, Mapping)
        and key.get("kty") in types
        and key.get("use", "sig") == "sig"
        and "verify" in key.get("key_ops", ("verify",))
    ]
    if not usable:
        raise ConfigError(f"jwks={source!r} has no public key for signatures (RSA, EC or OKP). Pass the issuer's keys.")
    return usable


def _fits(key: Mapping[str, Any], kid: str | None, algorithm: str) -> bool:
    kind, curves = KEY_OF_ALGORITHM[algorithm]
    return (
        (kid is None or key.get("kid") == kid)
        and key["kty"] == kind
        and key.get("crv") in curves
        and key.get("alg", algorithm) == algorithm
    )
