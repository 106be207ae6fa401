"""Read an OpenAPI document, and follow the references in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from pydantic_core import from_json

from toolmason._core.define.schema_nodes import MAX_REFERENCES, resolve_pointer
from toolmason._wire import pause_garbage_collection
from toolmason.errors import ConfigError, clip

MAX_DOCUMENT_BYTES: Final = 64 * 1024 * 1024
"""Maximum size of an OpenAPI document."""
MAX_DOCUMENT_NODES: Final = 10_000_000
"""Maximum number of values in an OpenAPI document; an alias of YAML counts each time it is used."""
_FETCH_SECONDS: Final = 30.0


class UnusablePart(ValueError):
    """A part of a document cannot be used; the text says why."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ApiDocument:
    """A parsed OpenAPI document."""

    root: Mapping[str, Any]
    place: str
    """Path, URL or title, for messages."""
    url: str | None = None
    """Address that it was fetched from."""

    @property
    def is_3_0(self) -> bool:
        """True if its schemas are written in the dialect of OpenAPI 3.0."""
        return str(self.root["openapi"]).startswith("3.0")

    def find(self, reference: str) -> Any:
        """Return the value that a reference names, without following further ones.

        Raises:
            UnusablePart: it is in another document, or does not exist.
        """
        if not reference.startswith("#/"):
            raise UnusablePart(f"refers to {clip(reference)!r}; only references within the document are followed")
        if (found := resolve_pointer(self.root, reference)) is None:
            raise UnusablePart(f"refers to {clip(reference)!r}, which is not in the document")
        return found

    def follow(self, reference: str) -> tuple[str, Any]:
        """Return the last reference of a chain, and its value.

        Raises:
            UnusablePart: the chain does not end, or leaves the document.
        """
        for _ in range(MAX_REFERENCES):
            found = self.find(reference)
            if not (isinstance(found, Mapping) and isinstance(found.get("$ref"), str)):
                return reference, found
            reference = found["$ref"]
        raise UnusablePart(f"refers to {clip(reference)!r}, whose references form a circle")

    def resolve(self, node: Any, what: str) -> Mapping[str, Any]:
        """Return an object of the document, with its reference followed.

        Raises:
            UnusablePart: it is not an object, or its reference cannot be followed.
        """
        if isinstance(node, Mapping) and isinstance(node.get("$ref"), str):
            _, node = self.follow(node["$ref"])
        return expect_mapping(node, what)


def show(node: Any) -> str:
    """Return a value for a message. A list or an object may be too deep to be shown."""
    return clip(repr(node), 40) if isinstance(node, str | int | float | None) else f"of type {type(node).__name__}"


def expect_mapping(node: Any, what: str) -> Mapping[str, Any]:
    """Return an object of a document.

    Raises:
        UnusablePart: it is a value of another type.
    """
    if not isinstance(node, Mapping):
        raise UnusablePart(f"{what} is not an object but {show(node)}")
    return node


def expect_list(node: Any, what: str) -> list[Any]:
    """Return a list of a document; none is an empty one.

    Raises:
        UnusablePart: it is a value of another type.
    """
    if node is not None and not isinstance(node, list):
        raise UnusablePart(f"{what} is not a list but {show(node)}")
    return node or []


def load_document(spec: Mapping[str, Any] | str | Path | ApiDocument) -> ApiDocument:
    """Return the document at a path or URL, in JSON or YAML, or that of a mapping.

    Raises:
        ConfigError: it cannot be read, or is not a document of OpenAPI 3.0 or 3.1.
    """
    if isinstance(spec, ApiDocument):
        return spec
    if isinstance(spec, Mapping):
        _count_nodes(spec, "The mapping")
        return _check_version(ApiDocument(spec, "the mapping"))
    place = str(spec)
    if isinstance(spec, str) and spec.lower().startswith(("http://", "https://")):
        data, url = _fetch(spec), spec
        place = spec.partition("?")[0]
    else:
        try:
            path = Path(spec)
            if path.stat().st_size > MAX_DOCUMENT_BYTES:
                raise ConfigError(f"{place!r} has more than {MAX_DOCUMENT_BYTES:,} bytes. Pass a smaller document.")
            data, url = path.read_bytes(), None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"The OpenAPI document {clip(place)!r} cannot be read: {reason}. Pass a path, a URL or the parsed "
                "document."
            ) from error
    with pause_garbage_collection():
        root = _parse(data, place)
    return _check_version(ApiDocument(root, place, url))


def _parse(data: bytes, place: str) -> Any:
    try:
        return from_json(data)
    except ValueError as error:
        if data.lstrip()[:1] in (b"{", b"["):
            raise ConfigError(f"{place!r} is not valid JSON: {clip(str(error), 200)}. Correct it.") from error
    try:
        import yaml  # noqa: PLC0415 - only for documents in YAML
    except ImportError as missing:
        raise ImportError("OpenAPI documents in YAML need PyYAML: pip install 'toolmason[yaml]'") from missing
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    # A date is text in JSON; YAML would make an object of it.
    resolvers = {
        first: [(tag, pattern) for tag, pattern in entries if tag != "tag:yaml.org,2002:timestamp"]
        for first, entries in base.yaml_implicit_resolvers.items()
    }
    loader = type("_Loader", (base,), {"yaml_implicit_resolvers": resolvers})
    try:
        root = yaml.load(data, Loader=loader)  # noqa: S506 - a safe loader, without dates
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{place!r} is neither JSON nor YAML: {clip(str(error), 200)}. Correct it.") from error
    _count_nodes(root, repr(place))
    return root


def _count_nodes(root: Any, place: str) -> None:
    """Raise if a document has too many values: aliases of YAML may multiply them, or contain themselves."""
    count, found = 0, [root]
    while found:
        node = found.pop()
        inner = node.values() if isinstance(node, Mapping) else node if isinstance(node, list) else ()
        count += 1 + len(inner)
        if count > MAX_DOCUMENT_NODES:
            raise ConfigError(f"{place} has more than {MAX_DOCUMENT_NODES:,} values. Pass a smaller document.")
        found += (item for item in inner if isinstance(item, Mapping | list))


def _check_version(document: ApiDocument) -> ApiDocument:
    root, place = document.root, document.place
    if not isinstance(root, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a file may hold any JSON
        raise ConfigError(f"{place!r} is not an OpenAPI document: it holds {show(root)}, not an object.")
    if "swagger" in root:
        raise ConfigError(f"{place!r} is a document of Swagger {show(root['swagger'])}. Convert it to OpenAPI 3.")
    version = found if isinstance(found := root.get("openapi", ""), str) else show(found)
    if not version.startswith(("3.0", "3.1")):
        raise ConfigError(f"{place!r} has openapi={clip(version, 20)!r}. Pass a document of OpenAPI 3.0 or 3.1.")
    for key in ("paths", "components"):
        if not isinstance(root.get(key, {}), Mapping):
            raise ConfigError(f"{place!r}: its {key!r} is not an object but {show(root[key])}. Correct it.")
    return document


def _fetch(url: str) -> bytes:
    """Return the document at a URL, without credentials and without following redirects."""
    from toolmason.models.http.transport import httpx2  # noqa: PLC0415 - only for documents at a URL

    content, place = bytearray(), url.partition("?")[0]
    try:
        with httpx2.Client(timeout=_FETCH_SECONDS) as client, client.stream("GET", url) as response:
            if response.status_code != HTTPStatus.OK:
                raise ConfigError(f"{place!r} answered {response.status_code}. Pass the address of the document.")
            for piece in response.iter_bytes():
                content += piece
                if len(content) > MAX_DOCUMENT_BYTES:
                    raise ConfigError(f"{place!r} has more than {MAX_DOCUMENT_BYTES:,} bytes. Pass a smaller document.")
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:  # a host name that is not valid in DNS
        raise ConfigError(f"{place!r} cannot be fetched: {type(error).__name__}. Check the address.") from error
    return bytes(content)
