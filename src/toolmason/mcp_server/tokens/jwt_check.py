"""Check JSON Web Tokens: signature, issuer, audience and time."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError
from toolmason.mcp_server.tokens.key_set import KEY_OF_ALGORITHM, KeySet

_log = logging.getLogger("toolmason.mcp_server")

MAX_TOKEN_CHARS: Final = 16 * 1024
MAX_LEEWAY_SECONDS: Final = 300.0
_RESERVED: Final = frozenset({"user", "scope", "scopes"})


class ClaimNames:
    """Names of the claims that become the context of a call.

    Raises:
        ConfigError: they are not lists, or a claim would replace the user or the scopes.
    """

    def __init__(self, user: str, others: Sequence[str], scopes: Sequence[str]) -> None:
        if isinstance(others, str) or not _RESERVED.isdisjoint(others) or isinstance(scopes, str):
            raise ConfigError("claims= and scope_claims= must be lists, and claims= must not name user or scopes.")
        self.user, self._others, self._scopes = user, tuple(others), tuple(scopes)

    def select(self, claims: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the context values for the claims of a valid token, or None if it names no user."""
        user = claims.get(self.user)
        if not isinstance(user, str) or not user:
            return None
        scopes = {scope for name in self._scopes for scope in _split_scopes(claims.get(name))}
        others = {name: claims[name] for name in self._others if name in claims}
        return {**others, "user": user, "scopes": tuple(sorted(scopes))}


def _split_scopes(value: Any) -> list[str]:
    """Return the scopes of a claim: a list, or text with spaces."""
    if isinstance(value, str):
        return value.split()
    return [scope for scope in value if isinstance(scope, str)] if isinstance(value, Sequence) else []


class Jwt:
    """Check of JSON Web Tokens for `auth=`: `Jwt(issuer=..., audience=..., jwks="https://.../jwks.json")`.

    `jwks` has the issuer's public keys: a mapping, a file, or an https address, which is read again if a token names an
    unknown key. The context of a call gets the claim `user` as `user`, the scopes as `scopes`, and the claims in
    `claims`. Calls belong to the user with these claims, whatever the scopes of the token.

    Raises:
        ConfigError: an option is invalid, or a file has no keys.
        ImportError: PyJWT is not installed.
    """

    @explain_arguments
    def __init__(  # noqa: PLR0913 - one parameter for each option
        self,
        *,
        issuer: str,
        audience: str | Sequence[str],
        jwks: Mapping[str, Any] | str | Path,
        algorithms: Sequence[str] = tuple(KEY_OF_ALGORITHM),
        user: str = "sub",
        claims: Sequence[str] = (),
        scope_claims: Sequence[str] = ("scope", "scp"),
        leeway: float = 30.0,
    ) -> None:
        audiences = [audience] if isinstance(audience, str) else list(audience)
        if not issuer or not audiences or not all(audiences):
            raise ConfigError(f"Jwt(issuer={issuer!r}, audience={audience!r}): neither may be empty.")
        if isinstance(algorithms, str) or not algorithms or not set(algorithms) <= KEY_OF_ALGORITHM.keys():
            raise ConfigError(f"Jwt(algorithms={algorithms!r}): must be a list of {', '.join(KEY_OF_ALGORITHM)}.")
        self._names = ClaimNames(user, claims, scope_claims)
        if not 0 <= leeway <= MAX_LEEWAY_SECONDS:
            raise ConfigError(f"Jwt(leeway={leeway!r}): must be from 0 to {MAX_LEEWAY_SECONDS:g} seconds.")
        try:
            self._jwt: Any = import_module("jwt")
            import_module("cryptography")
        except ImportError as missing:
            raise ImportError("Jwt needs PyJWT with cryptography: pip install 'toolmason[auth]'") from missing
        self.issuer, self.audience = issuer, tuple(audiences)
        self._algorithms, self._leeway = frozenset(algorithms), leeway
        self._keys = KeySet(jwks)

    def __repr__(self) -> str:
        return f"Jwt(issuer={self.issuer!r}, audience={self.audience!r})"

    async def __call__(self, token: str) -> dict[str, Any] | None:
        """Return the user, the scopes and the claims of a token, or None if it is not valid.

        Raises:
            RemoteError: the keys of the issuer cannot be read.
        """
        if len(token) > MAX_TOKEN_CHARS:
            return None
        try:
            header = self._jwt.get_unverified_header(token)
            # Fields that name a key or its address (`jwk`, `jku`, `x5u`) come from the sender: only `kid` is read.
            algorithm = header.get("alg")
            if algorithm not in self._algorithms or "crit" in header:
                return None
            key = await self._keys.find(header.get("kid"), algorithm)
            if key is None:
                return None
            claims: dict[str, Any] = self._jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self.audience,
                issuer=self.issuer,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud", self._names.user]},
            )
        except (self._jwt.PyJWTError, ValueError, TypeError, RecursionError, OverflowError) as error:
            _log.debug("bearer token rejected: %s", type(error).__name__)
            return None
        return self._names.select(claims)
