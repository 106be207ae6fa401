"""Fill the security schemes of an API with credentials of the application."""

from __future__ import annotations

import inspect
import logging
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from toolmason._core.define.context import ToolContext
from toolmason._secrets import make_record_safe, remember_secrets
from toolmason.errors import ConfigError, clip
from toolmason.openapi.document import ApiDocument, UnusablePart
from toolmason.openapi.styles import encode

Credential: TypeAlias = str | tuple[str, str] | Callable[[ToolContext[Any]], Any]
"""A key or token, user and password, or a function of the context that returns one of them, sync or async."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SecurityScheme:
    """A security scheme: where its secret is sent."""

    name: str
    location: str
    """`header`, `query` or `cookie`."""
    field_name: str
    prefix: str = ""
    """`Basic`, `Bearer` or another scheme of the header `Authorization`."""


@dataclass(slots=True, eq=False, repr=False)
class Secrets:
    """Fields that the credentials add to one request."""

    headers: dict[str, str] = field(default_factory=dict)
    query: list[tuple[str, str]] = field(default_factory=list)
    cookies: list[tuple[str, str]] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    """Strings that no message may show."""


class Credentials:
    """The security schemes of a document, with the credentials of the application. The model fills none of them."""

    def __init__(self, document: ApiDocument, given: Mapping[str, Credential]) -> None:
        self._schemes = _read_schemes(document)
        self._required = document.root.get("security")
        self._given = dict(given)
        if unknown := sorted(self._given.keys() - self._schemes.keys()):
            known = ", ".join(map(repr, self._schemes)) or "none"
            raise ConfigError(
                f"auth={{{clip(unknown[0])!r}: …}}: the document has no such security scheme. Its schemes: {known}."
            )
        for name, credential in self._given.items():
            if not (isinstance(credential, str | tuple) or callable(credential)):
                raise ConfigError(
                    f"auth={{{name!r}: …}}: must be text, a tuple of user and password, or a function of the context, "
                    f"not {type(credential).__name__}."
                )
        if any(scheme.location == "query" for scheme in self._schemes.values()):
            # It logs the address of each request at the level INFO.
            logging.getLogger("httpx2").addFilter(make_record_safe)

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Location and name of every field that a scheme uses; headers in lower case."""
        return [
            (scheme.location, scheme.field_name.lower() if scheme.location == "header" else scheme.field_name)
            for scheme in self._schemes.values()
        ]

    def choose(self, node: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Return the schemes to use for an operation, and those that the application has to fill first."""
        alternatives = node.get("security", self._required)
        entries = alternatives if isinstance(alternatives, list) else []
        names = [list(entry) for entry in entries if isinstance(entry, Mapping)]
        if not names:
            return [], []
        filled = [entry for entry in names if all(name in self._given for name in entry)]
        if any(filled):
            return max(filled, key=bool), []
        return [], [] if filled else names[0]

    async def make(self, names: Sequence[str], context: ToolContext[Any]) -> Secrets:
        """Return the fields that the credentials of these schemes add to a request.

        Raises:
            ConfigError: a function returned something else than a credential.
        """
        secrets = Secrets()
        for name in names:
            credential: Any = self._given[name]
            if callable(credential):
                credential = credential(context)
                if inspect.isawaitable(credential):
                    credential = await credential
            _add(secrets, self._schemes[name], credential)
        return secrets


def _add(secrets: Secrets, scheme: SecurityScheme, credential: Any) -> None:
    if isinstance(credential, tuple) and len(credential) == 2 and all(isinstance(part, str) for part in credential):  # noqa: PLR2004 - user and password
        secrets.values.append(credential[1])
        text = b64encode(":".join(credential).encode()).decode()
    elif isinstance(credential, str) and credential.isprintable() and credential.isascii() and credential:
        text = credential
    else:
        kind = "text that a header cannot carry" if isinstance(credential, str) else type(credential).__name__
        raise ConfigError(f"The credential for {scheme.name!r} is {kind}. Use ASCII text, or user and password.")
    secrets.values.append(text)
    remember_secrets({"token": secrets.values})
    if scheme.location == "header":
        secrets.headers[scheme.field_name] = f"{scheme.prefix} {text}".strip()
    else:
        target = secrets.query if scheme.location == "query" else secrets.cookies
        target.append((encode(scheme.field_name), encode(text)))
        secrets.values.append(encode(text))


def _read_schemes(document: ApiDocument) -> dict[str, SecurityScheme]:
    components = document.root.get("components", {}).get("securitySchemes") or {}
    found: dict[str, SecurityScheme] = {}
    for name, entry in components.items() if isinstance(components, Mapping) else ():
        try:
            node = document.resolve(entry, "a security scheme")
        except UnusablePart as problem:
            raise ConfigError(f"{document.place!r}: the security scheme {clip(str(name))!r} {problem}.") from None
        kind, location = node.get("type"), node.get("in")
        if kind == "apiKey" and location in ("header", "query", "cookie") and isinstance(node.get("name"), str):
            found[name] = SecurityScheme(name, location, node["name"])
        elif kind == "http":
            found[name] = SecurityScheme(name, "header", "Authorization", str(node.get("scheme", "bearer")).title())
        elif kind in ("oauth2", "openIdConnect"):
            found[name] = SecurityScheme(name, "header", "Authorization", "Bearer")
    return found
