"""Identify the owner of a request from its token."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from pydantic_core import to_json

_TOKEN_SPECIFIC_CLAIMS: Final = frozenset({"exp", "iat", "nbf", "jti", "auth_time", "scope", "scopes"})
"""Claims that differ between tokens of the same user."""


class Identity(dict[str, Any]):
    """Context values from authentication; empty if anonymous."""

    __slots__ = ("owner",)

    owner: str
    """Key that identifies the user; empty if anonymous."""

    def __init__(self, values: Mapping[str, Any], owner: str) -> None:
        super().__init__(values)
        self.owner = owner


ANONYMOUS: Final = Identity({}, "")


def make_identity(verified: Any, token: str) -> Identity:
    """Return the identity for a token, from the result of `verify`: a name, or context values.

    Identities that differ in any value are different owners, since two tenants may share a `user`. Values that JSON
    cannot represent, such as connections, are ignored. Without a `user`, each token is its own owner. A token without
    scopes has none, whatever the context of the toolbox says.
    """
    if not isinstance(verified, Mapping):
        return Identity({"user": str(verified), "scopes": ()}, f"user {verified}")
    values = {"scopes": (), **{str(key): value for key, value in verified.items()}}
    if values.keys() == {"scopes", "user"} and isinstance(user := values["user"], str) and user:
        return Identity(values, f"user {user}")
    claims = {
        key: text
        for key, value in values.items()
        if key not in _TOKEN_SPECIFIC_CLAIMS and (text := _to_json_text(value)) is not None
    }
    if values.get("user") in (None, "") or "user" not in claims:
        claims[""] = sha256(token.encode("utf-8", "replace")).hexdigest()
    return Identity(values, sha256(to_json(sorted(claims.items()))).hexdigest())


def get_peer(scope: Mapping[str, Any], identity: Identity) -> str:
    """Return the peer of a request: the user if authenticated, else the machine."""
    if identity.owner:
        return f"owner {identity.owner}"
    client = scope.get("client")
    return str(client[0]) if client else ""


def _to_json_text(value: Any) -> str | None:
    try:
        return to_json(value).decode()
    except ValueError:
        return None
