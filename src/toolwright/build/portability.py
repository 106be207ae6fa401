"""A built definition → what each provider would make of it: accepted, lossy or rejected, strict or why not.

Lives here: the limits of the wire formats on names and schemas, looked up and not applied. The narrowing of the
provider adapters can take its place: `verdicts_on` is all that others use. Not here: findings (`loaded`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from toolwright._core.definition import JsonSchema, ToolDefinition
from toolwright.build.limits import PARAMETER_NAME, PROVIDERS, alias_of, refused_by

Status: TypeAlias = Literal["accepted", "lossy", "rejected"]

_ROOT_UNIONS: Final = ("anyOf", "oneOf", "allOf", "not", "enum")
_UNHELD_BY_GEMINI: Final = (
    "exclusiveMaximum",
    "exclusiveMinimum",
    "maxLength",
    "maxProperties",
    "minLength",
    "minProperties",
    "multipleOf",
    "pattern",
    "patternProperties",
    "uniqueItems",
)
_NEITHER: Final = ("contains", "if", "not", "patternProperties", "maxProperties", "minProperties")
_NOT_STRICT: Final[Mapping[str, tuple[str, ...]]] = {
    "openai": (*_NEITHER, "allOf", "maxLength", "minLength", "uniqueItems"),
    "anthropic": (
        *_NEITHER,
        *("pattern", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum", "multipleOf"),
        *("maxItems", "maxLength", "minLength", "uniqueItems"),
    ),
    "gemini": (),
}
"""Keywords that strict mode has no way to say."""
_MOST_PROPERTIES, _MOST_ENUM_VALUES, _DEEPEST = 5_000, 1_000, 10
_TYPES: Final = frozenset({"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one provider makes of one tool."""

    provider: str
    status: Status
    reasons: tuple[str, ...] = ()
    """Why it is lossy or rejected."""
    strict: bool = True
    not_strict: str = ""
    """Why strict mode is not possible without loss."""
    alias: str | None = None
    """The name that is sent instead, where its own is refused."""


@dataclass(frozen=True, slots=True)
class _Node:
    path: str
    schema: Mapping[str, Any]
    depth: int


def verdicts_on(definition: ToolDefinition) -> list[Verdict]:
    """Return what each provider makes of a definition."""
    nodes = list(_nodes(definition.input_schema))
    refusing = refused_by(definition.name)
    found: list[Verdict] = []
    for provider in PROVIDERS:
        rejected = list(_rejections(provider, definition.input_schema, nodes))
        lost = [] if rejected or provider != "gemini" else list(_lost(nodes))
        status: Status = "rejected" if rejected else "lossy" if lost else "accepted"
        why = "" if rejected else next(_loose(provider, nodes), "")
        alias = alias_of(definition.name) if provider in refusing else None
        found.append(Verdict(provider, status, tuple(rejected or lost), not rejected and not why, why, alias))
    return found


def _rejections(provider: str, root: JsonSchema, nodes: list[_Node]) -> Iterator[str]:
    if root.get("type") != "object":
        yield f"its schema is of type {root.get('type')!r}, not an object"
    if provider == "openai":
        yield from (f"its schema has `{keyword}` at the top" for keyword in _ROOT_UNIONS if keyword in root)
    for node in nodes:
        yield from _REJECTS[provider](node)


def _rejected_by_openai(node: _Node) -> Iterator[str]:
    if node.schema.get("type") == "array" and not node.schema.keys() & {"items", "prefixItems"}:
        yield f"the array at {node.path} does not say what its items are"


def _rejected_by_anthropic(node: _Node) -> Iterator[str]:
    for name in node.schema.get("properties", {}):
        if not re.fullmatch(PARAMETER_NAME, name):
            yield f"the property name {name!r} at {node.path} is refused"


def _rejected_by_gemini(node: _Node) -> Iterator[str]:
    if any(not isinstance(item, str | int | float) for item in node.schema.get("enum", ())):
        yield f"the enum at {node.path} has values that are neither texts nor numbers"


_REJECTS: Final[Mapping[str, Callable[[_Node], Iterator[str]]]] = {
    "openai": _rejected_by_openai,
    "anthropic": _rejected_by_anthropic,
    "gemini": _rejected_by_gemini,
}


def _lost(nodes: list[_Node]) -> Iterator[str]:
    for node in nodes:
        for keyword in _UNHELD_BY_GEMINI:
            if keyword in node.schema:
                yield f"`{keyword}` at {node.path} is not enforced"


def _loose(provider: str, nodes: list[_Node]) -> Iterator[str]:
    """Yield why a schema does not fit a provider's strict mode."""
    if provider == "gemini":
        return
    if sum(len(node.schema.get("properties", {})) for node in nodes) > _MOST_PROPERTIES:
        yield f"it has more than {_MOST_PROPERTIES:,} properties"
    if sum(len(node.schema.get("enum", ())) for node in nodes) > _MOST_ENUM_VALUES:
        yield f"it has more than {_MOST_ENUM_VALUES:,} enum values"
    for node in nodes:
        if node.depth > _DEEPEST:
            yield f"it is more than {_DEEPEST} levels deep at {node.path}"
        yield from _open(node.path, node.schema)
        yield from (
            f"`{word}` at {node.path} has no strict form" for word in _NOT_STRICT[provider] if word in node.schema
        )


def _open(path: str, schema: Mapping[str, Any]) -> Iterator[str]:
    if not schema.keys() & _TYPES:
        yield f"anything goes at {path}"
    elif schema.get("type") == "object" and schema.get("additionalProperties", "properties" not in schema) is not False:
        yield f"any key goes at {path}"
    elif schema.get("type") == "array" and not schema.keys() & {"items", "prefixItems"}:
        yield f"any item goes at {path}"


def _nodes(root: JsonSchema) -> Iterator[_Node]:
    """Yield every schema in a schema with its path, in the order of writing; references are not followed."""
    stack = [_Node("$", root, 0)]
    while stack:
        node = stack.pop()
        yield node
        inner = list(_inside(node))
        stack.extend(reversed(inner))


def _inside(node: _Node) -> Iterator[_Node]:
    deeper = node.depth + 1
    for key in ("properties", "$defs", "patternProperties"):
        held = node.schema.get(key, {})
        for name, part in held.items() if isinstance(held, Mapping) else ():
            if isinstance(part, Mapping):
                yield _Node(f"{node.path}.{name}", part, deeper)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for part in node.schema.get(key, ()):
            if isinstance(part, Mapping):
                yield _Node(node.path, part, node.depth)
    for key in ("items", "additionalProperties", "not", "contains"):
        part = node.schema.get(key)
        if isinstance(part, Mapping):
            yield _Node(f"{node.path}[*]" if key == "items" else f"{node.path}.*", part, deeper)
