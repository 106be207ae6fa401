"""What a token stands for → context values, and whose the things are that are made with it.

Lives here: the name of an owner, which ties sessions, tasks and kept results to whoever began them.
Not here: checking tokens (`guard`).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from pydantic_core import to_json

_RENEWED: Final = frozenset({"exp", "iat", "nbf", "jti", "auth_time"})
"""Claims that another token of the same user has other values of."""


class Identity(dict[str, Any]):
    """Context values that authentication gave; of nobody, without authentication."""

    __slots__ = ("owner",)

    owner: str
    """Tells users apart. Empty for nobody."""

    def __init__(self, values: Mapping[str, Any], owner: str) -> None:
        super().__init__(values)
        self.owner = owner


NOBODY: Final = Identity({}, "")


def identity_of(found: Any, token: str) -> Identity:
    """Return who a token stands for, from what the application says of it: a name, or context values.

    Two identities that differ in anything are two owners: `user` alone may be the same in two tenants. Values that
    JSON cannot say, such as connections, tell nobody apart. Without a `user`, each token is an owner of its own.
    """
    if not isinstance(found, Mapping):
        return Identity({"user": str(found)}, f"user {found}")
    values = {str(key): value for key, value in found.items()}
    if len(values) == 1 and isinstance(user := values.get("user"), str) and user:
        return Identity(values, f"user {user}")
    known = {key: said for key, value in values.items() if key not in _RENEWED and (said := _said(value)) is not None}
    if values.get("user") in (None, "") or "user" not in known:
        known[""] = sha256(token.encode("utf-8", "replace")).hexdigest()
    return Identity(values, sha256(to_json(sorted(known.items()))).hexdigest())


def _said(value: Any) -> str | None:
    try:
        return to_json(value).decode()
    except ValueError:
        return None
