"""What a token stands for → context values, and whose the things are that are made with it.

Lives here: the name of an owner, which ties sessions, tasks and kept results to whoever began them.
Not here: checking tokens (`guard`).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from pydantic_core import to_json

_TOKEN_SPECIFIC_CLAIMS: Final = frozenset({"exp", "iat", "nbf", "jti", "auth_time"})
"""Claims that another token of the same user has other values of."""


class Identity(dict[str, Any]):
    """Context values that authentication gave; of nobody, without authentication."""

    __slots__ = ("owner",)

    owner: str
    """Tells users apart. Empty for nobody."""

    def __init__(self, values: Mapping[str, Any], owner: str) -> None:
        super().__init__(values)
        self.owner = owner


ANONYMOUS: Final = Identity({}, "")


def make_identity(verified: Any, token: str) -> Identity:
    """Return who a token stands for, from what the application says of it: a name, or context values.

    Two identities that differ in anything are two owners: `user` alone may be the same in two tenants. Values that
    JSON cannot say, such as connections, tell nobody apart. Without a `user`, each token is an owner of its own.
    """
    if not isinstance(verified, Mapping):
        return Identity({"user": str(verified)}, f"user {verified}")
    values = {str(key): value for key, value in verified.items()}
    if len(values) == 1 and isinstance(user := values.get("user"), str) and user:
        return Identity(values, f"user {user}")
    claims = {
        key: text
        for key, value in values.items()
        if key not in _TOKEN_SPECIFIC_CLAIMS and (text := _to_json_text(value)) is not None
    }
    if values.get("user") in (None, "") or "user" not in claims:
        claims[""] = sha256(token.encode("utf-8", "replace")).hexdigest()
    return Identity(values, sha256(to_json(sorted(claims.items()))).hexdigest())


def _to_json_text(value: Any) -> str | None:
    try:
        return to_json(value).decode()
    except ValueError:
        return None
