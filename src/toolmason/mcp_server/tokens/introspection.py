"""Ask the authorization server whether a token is valid (RFC 7662)."""

from __future__ import annotations

import time
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final
from urllib.parse import quote, urlencode

from pydantic_core import from_json

from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError, RemoteError
from toolmason.mcp_server.tokens.jwt_check import MAX_TOKEN_CHARS, ClaimNames
from toolmason.mcp_server.tokens.key_set import TokenEndpoint

MAX_CACHED_TOKENS: Final = 10_000
MAX_CACHE_SECONDS: Final = 300.0


class Introspection:
    """Check of any token for `auth=`, by a request to the authorization server: `Introspection(url, id, secret, ...)`.

    The token must be active and issued for `audience`. An answer is used again for `cache` seconds, and never after the
    token expires, so a revoked token may be accepted for that time. The context of a call gets the same values as from
    `Jwt`.

    Raises:
        ConfigError: an option is invalid.
        ImportError: httpx2 is not installed.
    """

    @explain_arguments
    def __init__(  # noqa: PLR0913 - one parameter for each option
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        audience: str | Sequence[str],
        user: str = "sub",
        claims: Sequence[str] = (),
        scope_claims: Sequence[str] = ("scope",),
        cache: float = 30.0,
    ) -> None:
        self._names = ClaimNames(user, claims, scope_claims)
        self.audience = (audience,) if isinstance(audience, str) else tuple(audience)
        if not client_id or not client_secret or not self.audience or not all(self.audience):
            raise ConfigError("Introspection(client_id=, client_secret=, audience=): none may be empty.")
        if not 0 <= cache <= MAX_CACHE_SECONDS:
            raise ConfigError(f"Introspection(cache={cache!r}): must be from 0 to {MAX_CACHE_SECONDS:g} seconds.")
        self._endpoint = TokenEndpoint("url", url)
        # RFC 6749, section 2.3.1: both parts are form-encoded before they are joined.
        credentials = b64encode(f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}".encode()).decode()
        form_type = "application/x-www-form-urlencoded"
        self._headers = {"Authorization": f"Basic {credentials}", "Content-Type": form_type}
        self._cache_seconds = cache
        self._cached: OrderedDict[bytes, tuple[float, dict[str, Any] | None]] = OrderedDict()

    def __repr__(self) -> str:
        return f"Introspection({self._endpoint.origin!r}, audience={self.audience!r})"

    async def __call__(self, token: str) -> dict[str, Any] | None:
        """Return the user, the scopes and the claims of a token, or None if it is not valid.

        Raises:
            RemoteError: the authorization server cannot be reached, or its answer is not that of RFC 7662.
        """
        if len(token) > MAX_TOKEN_CHARS or not token.isascii():
            return None
        # The hash: a dump of the memory must not show tokens that are valid.
        key = sha256(token.encode()).digest()
        until, values = self._cached.get(key, (0.0, None))
        if time.time() < until:
            return values
        form = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        answer = _parse_answer(self._endpoint.origin, await self._endpoint.fetch("POST", form, self._headers))
        now = time.time()
        values, until = self._judge(answer, now), now + self._cache_seconds
        # `_judge` has checked that the expiry of a valid token is a number.
        self._cached[key] = until if values is None else min(until, answer.get("exp", until)), values
        self._cached.move_to_end(key)
        if len(self._cached) > MAX_CACHED_TOKENS:
            self._cached.popitem(last=False)
        return values

    def _judge(self, answer: Mapping[str, Any], now: float) -> dict[str, Any] | None:
        if answer.get("active") is not True:
            return None
        found, expiry, start = answer.get("aud"), answer.get("exp", now + 1), answer.get("nbf", now)
        audiences = [found] if isinstance(found, str) else found
        if not isinstance(audiences, list) or not any(name in audiences for name in self.audience):
            return None
        if not isinstance(expiry, int | float) or not isinstance(start, int | float) or not start <= now < expiry:
            return None
        return self._names.select(answer)


def _parse_answer(origin: str, content: bytes) -> Mapping[str, Any]:
    try:
        answer = from_json(content, allow_inf_nan=False)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or not isinstance(answer.get("active"), bool):
        raise RemoteError(origin, "call", "it answered without 'active', so it is not an introspection endpoint")
    return answer
