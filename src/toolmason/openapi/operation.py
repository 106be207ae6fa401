"""Read the operations of an OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urljoin

from toolmason._core.values.definition import JsonSchema
from toolmason._text import split_url
from toolmason._value import Value
from toolmason.errors import clip
from toolmason.openapi.document import ApiDocument, UnusablePart, expect_list, expect_mapping, show
from toolmason.openapi.styles import STYLES, ApiParameter

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_SET_BY_CLIENT: Final = frozenset(
    {
        *("accept", "accept-encoding", "authorization", "connection", "content-encoding", "content-length"),
        *("content-type", "cookie", "expect", "host", "proxy-authorization", "te", "trailer", "transfer-encoding"),
        "upgrade",
    }
)
"""Headers that the client or the application sets. OpenAPI ignores three of them; the others could alter a request."""
_JSON_TYPE: Final = re.compile(r"application/json|application/merge-patch\+json|[\w.+*-]+/[\w.*-]+\+json|\*/\*")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Operation(Value):
    """An operation of an API: what rules for names and selections see."""

    method: str
    """In upper case."""
    path: str
    id: str | None = None
    """Its `operationId`."""
    tags: tuple[str, ...] = ()
    summary: str = ""
    description: str = ""
    deprecated: bool = False
    node: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The operation as it stands in the document."""
    shared: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The path item that it stands in."""

    @property
    def label(self) -> str:
        """Method and path, as in `GET /pets/{id}`."""
        return f"{self.method} {self.path}"

    @property
    def default_name(self) -> str:
        """The name of its tool, unless a rule says otherwise: its id, or method and path."""
        return to_tool_name(self.id or self.path_name)

    @property
    def path_name(self) -> str:
        """A name from method and path: `get_pets_by_id`."""
        words = re.sub(r"\{([^{}]*)\}", r"by_\1", self.path.strip("/"))
        return to_tool_name(f"{self.method.lower()}_{words}")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ApiBody:
    """The body of an operation's request, in the media type that is used."""

    media_type: str
    kind: str
    """`json`, `form`, `multipart`, `text` or `binary`."""
    required: bool
    schema: Any
    encoding: Mapping[str, Any] = field(default_factory=dict)
    """How the fields of a form are written."""


def to_tool_name(text: str) -> str:
    """Return a name that every provider accepts."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")
    if len(name) <= 64:  # noqa: PLR2004 - the longest that every provider accepts
        return name or "operation"
    import hashlib  # noqa: PLC0415 - 2 ms at start-up, needed only for long names

    return f"{name[:55]}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def iter_operations(document: ApiDocument) -> Iterator[Operation | tuple[str, str]]:
    """Yield each operation of a document, or its label and the reason why it cannot be read."""
    for path, item in document.root.get("paths", {}).items():
        if str(path).startswith("x-"):
            continue
        try:
            shared = document.resolve(item, "the path item")
        except UnusablePart as problem:
            yield str(path), str(problem)
            continue
        for method in METHODS:
            if method in shared:
                label = f"{method.upper()} {path}"
                node = shared[method]
                if not isinstance(node, Mapping):
                    yield label, f"is not an object but {show(node)}"
                elif not str(path).startswith("/"):
                    yield label, "its path does not start with '/'"
                else:
                    yield _read_operation(method.upper(), str(path), node, shared)


def _read_operation(method: str, path: str, node: Mapping[str, Any], shared: Mapping[str, Any]) -> Operation:
    def read(key: str) -> str:
        return value.strip() if isinstance(value := node.get(key), str) else ""

    tags = node.get("tags")
    return Operation(
        method,
        path,
        read("operationId") or None,
        tuple(tag for tag in tags if isinstance(tag, str)) if isinstance(tags, list) else (),
        read("summary") or (text if isinstance(text := shared.get("summary"), str) else ""),
        read("description") or (text if isinstance(text := shared.get("description"), str) else ""),
        node.get("deprecated") is True,
        node,
        shared,
    )


# --- parameters --------------------------------------------------------------------------------


def read_parameters(
    document: ApiDocument, operation: Operation, secret: Sequence[tuple[str, str]]
) -> list[tuple[ApiParameter, Mapping[str, Any]]]:
    """Return the parameters that the model fills, each with its object in the document.

    `secret` has location and name of those that the application fills.

    Raises:
        UnusablePart: one of them cannot be used, or the path has one that is not declared.
    """
    nodes: dict[tuple[str, str], Mapping[str, Any]] = {}
    for source in (operation.shared, operation.node):
        for entry in expect_list(source.get("parameters"), "'parameters'"):
            node = document.resolve(entry, "a parameter")
            nodes[str(node.get("in")), str(node.get("name"))] = node
    found: list[tuple[ApiParameter, Mapping[str, Any]]] = []
    keys: set[str] = set()
    for (location, name), node in nodes.items():
        if location not in STYLES or not isinstance(node.get("name"), str):
            raise UnusablePart(f"its parameter {clip(name)!r} is in {clip(location)!r}")
        is_header = location == "header"
        if (location, name.lower() if is_header else name) in secret or (is_header and name.lower() in _SET_BY_CLIENT):
            continue
        if is_header and not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
            raise UnusablePart(f"its header {clip(name)!r} has a name that HTTP does not allow")
        found.append((_read_parameter(node, _make_key(name, location, keys)), node))
    declared = {parameter.name for parameter, _ in found if parameter.location == "path"}
    for name in re.findall(r"\{([^{}]+)\}", operation.path):
        if name not in declared:
            raise UnusablePart(f"its path has the parameter {clip(name)!r}, which is not declared")
    if "{" in re.sub(r"\{[^{}]+\}", "", operation.path):
        raise UnusablePart("its path has a brace that is not closed")
    return found


def _make_key(name: str, location: str, keys: set[str]) -> str:
    """Return the name of a parameter in the schema: its own, without characters that a provider refuses."""
    key = stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")[:56] or location
    for suffix in (location, *map(str, range(2, len(keys) + 3))):
        if key not in keys:
            break
        key = f"{stem}_{suffix}"
    keys.add(key)
    return key


def _read_parameter(node: Mapping[str, Any], key: str) -> ApiParameter:
    name, location = node["name"], node["in"]
    content = expect_mapping(node.get("content") or {}, f"'content' of the parameter {clip(name)!r}")
    style = node.get("style", STYLES[location][0])
    if style not in STYLES[location]:
        raise UnusablePart(f"its parameter {clip(name)!r} has the style {clip(str(style))!r}")
    return ApiParameter(
        name=name,
        location=location,
        key=key,
        required=node.get("required") is True or location == "path",
        style=style,
        explode=bool(node.get("explode", style == "form")),
        is_json=bool(content),
        allow_reserved=node.get("allowReserved") is True,
        has_segments=node.get("x-multi-segment") is True,
    )


def get_parameter_schema(node: Mapping[str, Any]) -> Any:
    """Return the schema of a parameter, which may stand in its content."""
    content = node.get("content") or {}
    for media in content.values():
        if isinstance(media, Mapping):
            return media.get("schema", {})
    return node.get("schema", {})


# --- bodies ------------------------------------------------------------------------------------


def read_body(document: ApiDocument, operation: Operation) -> ApiBody | None:
    """Return the body of a request in the media type that suits a model best, or None if there is none.

    Raises:
        UnusablePart: it has no media type that can be written.
    """
    if "requestBody" not in operation.node:
        return None
    node = document.resolve(operation.node["requestBody"], "its request body")
    content = expect_mapping(node.get("content"), "'content' of its request body")
    ranked = sorted((rank, media) for media in content if (rank := _rank_media(str(media))) is not None)
    if not ranked:
        raise UnusablePart(f"its request body has no media type that can be written: {clip(', '.join(content), 120)}")
    (_, kind), media_type = ranked[0]
    media = document.resolve(content[media_type], "the content of its request body")
    encoding = expect_mapping(media.get("encoding") or {}, "'encoding' of its request body")
    is_required = node.get("required") is True
    sent_type = "application/json" if media_type == "*/*" else media_type
    return ApiBody(sent_type, kind, is_required, media.get("schema", {}), encoding)


def _rank_media(media_type: str) -> tuple[int, str] | None:
    """Return the rank of a media type, lowest first, and how it is written; None if it cannot be written."""
    name = media_type.partition(";")[0].strip().lower()
    if name == "application/json":
        return 0, "json"
    if name == "application/merge-patch+json":
        return 1, "json"
    if _JSON_TYPE.fullmatch(name):
        return 2, "json"
    if name == "application/x-www-form-urlencoded":
        return 3, "form"
    if name == "multipart/form-data":
        return 4, "multipart"
    if "*" in name:
        return None
    if name.startswith("text/") or re.fullmatch(r"application/([\w.+-]+\+)?(xml|yaml|x-yaml|x-ndjson)", name):
        return 5, "text"
    return 6, "binary"


# --- responses and servers ---------------------------------------------------------------------


def read_output(document: ApiDocument, operation: Operation) -> list[Any]:
    """Return the JSON schemas of the successful responses; none if one of them has another form.

    Raises:
        UnusablePart: the responses are not objects.
    """
    responses = expect_mapping(operation.node.get("responses") or {}, "'responses'")
    successful = [node for status, node in responses.items() if str(status).upper()[:1] == "2"]
    schemas: list[Any] = []
    for entry in successful or ([responses["default"]] if "default" in responses else []):
        node = document.resolve(entry, "a response")
        content = expect_mapping(node.get("content") or {}, "'content' of a response")
        found = [media for name, media in content.items() if _JSON_TYPE.fullmatch(str(name).partition(";")[0].strip())]
        if len(found) != len(content) or not found:
            return []
        media = document.resolve(found[0], "the content of a response")
        if "schema" not in media:
            return []
        if media["schema"] not in schemas:
            schemas.append(media["schema"])
    return schemas


def read_servers(document: ApiDocument, node: Mapping[str, Any]) -> list[str]:
    """Return the addresses of an object's servers, with the defaults of their variables."""
    servers = node.get("servers")
    found: list[str] = []
    for server in servers if isinstance(servers, list) else ():
        if not isinstance(server, Mapping) or not isinstance(server.get("url"), str):
            continue
        variables = server.get("variables")
        entries = variables.items() if isinstance(variables, Mapping) else ()
        url = server["url"]
        for name, entry in entries:
            if isinstance(entry, Mapping):
                url = url.replace(f"{{{name}}}", str(entry.get("default", "")))
        with suppress(ValueError):  # a malformed URL
            found.append(urljoin(document.url or "https:", url).rstrip("/"))
    return [url for url in found if split_url(url).scheme in ("http", "https")]


def describe(operation: Operation, parameters: Sequence[ApiParameter], output: JsonSchema | None) -> str:
    """Return the description of an operation's tool, with a hint about pages."""
    parts = [operation.summary, operation.description if operation.description != operation.summary else ""]
    text = clip_paragraph("\n\n".join(part for part in parts if part) or operation.label)
    if operation.deprecated:
        text += "\n\nDeprecated."
    names = {re.sub(r"\W|_", "", parameter.name).lower(): parameter.key for parameter in parameters}
    turning = next((names[name] for name in _PAGE_PARAMETERS if name in names), None)
    if turning is not None and operation.method == "GET":
        fields = (output or {}).get("properties", {})
        hint = next((name for name in fields if re.sub(r"\W|_", "", name).lower() in _PAGE_FIELDS), None)
        source = f"; `{hint}` of a result says if there are more" if hint else ""
        text += f"\n\nResults come in pages. Pass `{turning}` for the next page{source}."
    return text


_PAGE_PARAMETERS: Final = (
    *("cursor", "pagetoken", "nextpagetoken", "nexttoken", "startingafter", "after", "continue", "continuationtoken"),
    *("page", "pagenumber", "offset", "skip"),
)
_PAGE_FIELDS: Final = frozenset({"next", "nextcursor", "nextpage", "nextpagetoken", "nexttoken", "hasmore", "cursor"})
_MAX_DESCRIPTION_CHARS: Final = 1000


def clip_paragraph(text: str) -> str:
    """Return a description that is not too long, cut after a sentence or a word."""
    if len(text) <= _MAX_DESCRIPTION_CHARS:
        return text
    start = text[:_MAX_DESCRIPTION_CHARS]
    end = max(start.rfind(". ") + 1, start.rfind(".\n") + 1)
    if end < _MAX_DESCRIPTION_CHARS // 2:
        end = max(start.rfind(" "), _MAX_DESCRIPTION_CHARS // 2)
    return f"{start[:end].rstrip()} …"
