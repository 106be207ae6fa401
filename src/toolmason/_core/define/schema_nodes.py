"""Data types and traversals for JSON Schemas, without importing pydantic's schema generation, the slowest import."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from pydantic_core import (
    PydanticSerializationError,
    SchemaSerializer,
    SchemaValidator,
    core_schema,
    to_json,
    to_jsonable_python,
)

from toolmason._core.values.definition import JsonSchema

MAX_REFERENCES: Final = 64
"""Maximum length of a chain of references; no useful schema has a longer one."""
JSON_TYPES: Final[Mapping[str, type]] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
"""Python type of each JSON Schema type, as JSON is parsed. A number may also be an int."""
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")
_TYPE_NAMES: Final = {kind: name for name, kind in JSON_TYPES.items()}
EnumNames: TypeAlias = dict[int, dict[str, Any]]
"""Member names to values of each enum, keyed by the id of its schema node, so that a model may send either."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TypeSchema:
    """A compiled type."""

    schema: JsonSchema
    validator: SchemaValidator
    serializer: SchemaSerializer
    enum_names: EnumNames = field(default_factory=dict)
    has_aliases: bool = False
    """True if a field is serialized under a name other than Python's."""
    has_decimals: bool = False
    """True if the type contains a decimal, which pydantic also parses from a string."""
    validate_strict: Callable[[str], dict[str, Any]] | None = None
    """Strict validator of an object that silently drops unknown keys."""
    writes_nan: bool = False
    """True if NaN is serialized as such instead of as null."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class FieldSpec:
    """One field of an object: its name in the schema, its type and its schema keywords."""

    label: str
    hint: Any
    required: bool
    keywords: Mapping[str, Any]
    """`description`, `examples` and `default`, as shown in the schema."""
    schema: Mapping[str, Any] | None = None
    """Schema that replaces the one derived from the type."""


class SchemaMismatch(ValueError):
    """Arguments violate a hand-written schema; `errors` are jsonschema's."""

    def __init__(self, errors: Sequence[Any], schema: Mapping[str, Any]) -> None:
        super().__init__("the arguments do not match the schema")
        self.errors, self.schema = tuple(errors), schema


def get_json_type(value: Any) -> str:
    """Return the JSON Schema type of a JSON value."""
    return _TYPE_NAMES.get(type(value), "object")


def resolve_pointer(root: Any, ref: Any) -> Any:
    """Return the part of a document that a local reference such as `#/$defs/A` points to, or None if there is none."""
    if not isinstance(ref, str) or not ref.startswith("#/"):
        return root if ref == "#" else None
    for step in unquote(ref[2:]).split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(root, Mapping) and key in root:
            root = root[key]
        elif isinstance(root, list) and _INDEX.fullmatch(key) and int(key) < len(root):
            root = root[int(key)]
        else:
            return None
    return root


def resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow the references of a schema; return an empty schema if they lead nowhere or in a circle."""
    for _ in range(MAX_REFERENCES):
        if not isinstance(schema, Mapping):
            return {}
        if "$ref" not in schema:
            return schema
        schema = resolve_pointer(root, schema["$ref"])
    return {}


def iter_alternatives(schema: Any, root: Mapping[str, Any], unions: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """Yield a schema and the alternatives behind its references and unions, each once."""
    queue, seen = [schema], set[int]()
    while queue:
        node = resolve(queue.pop(), root)
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            branches = next(filter(None, map(node.get, unions)), ())
            queue.extend(reversed(branches) if isinstance(branches, list) else ())


def get_own_types(schema: Mapping[str, Any]) -> Sequence[str]:
    """Return the JSON types that a schema names itself: one, several, or none."""
    kinds = schema.get("type") or ()
    return (kinds,) if isinstance(kinds, str) else kinds


def get_json_types(schema: Any, root: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a schema names, in itself or in its alternatives."""
    return {kind for node in iter_alternatives(schema, root, ("anyOf", "oneOf")) for kind in get_own_types(node)}


_MAX_ALTERNATIVES: Final = 5_000
"""Alternatives of all parts of a schema, besides eight for each part."""


def has_few_alternatives(schema: JsonSchema) -> bool:
    """Return True if the references and unions of a schema, written out, are not much larger than the schema itself."""
    counts: dict[int, float] = {}

    def count(node: Any, depth: int = 0) -> float:
        if not isinstance(node, Mapping):
            return 1
        if id(node) not in counts:
            counts[id(node)] = math.inf  # a circle
            if depth < MAX_REFERENCES:
                target = [resolve_pointer(schema, node["$ref"])] if "$ref" in node else []
                branches = map(node.get, UNION_KEYWORDS)
                inner = chain(target, *(found for found in branches if isinstance(found, list)))
                counts[id(node)] = 1.0 + sum(count(part, depth + 1) for part in inner)
        return counts[id(node)]

    try:
        nodes = list(iter_subschemas(schema))
        if all(map(BRANCH_KEYWORDS.isdisjoint, nodes)):
            return True
        total = sum(map(count, nodes))
    except (AttributeError, TypeError):  # not a schema, which others report
        return True
    return total <= _MAX_ALTERNATIVES + 8 * len(counts)


def resolve_root(schema: JsonSchema) -> JsonSchema:
    """Return a schema with an inline root, because the root of a recursive type is a reference."""
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].removeprefix("#/$defs/")
    return {**schema["$defs"][name], "$defs": schema["$defs"]}


UNION_KEYWORDS: Final = ("anyOf", "oneOf", "allOf")
BRANCH_KEYWORDS: Final = frozenset({"$ref", *UNION_KEYWORDS})
MAPPING_KEYWORDS: Final = ("properties", "$defs", "definitions", "patternProperties", "dependentSchemas")
LIST_KEYWORDS: Final = (*UNION_KEYWORDS, "prefixItems")
SINGLE_KEYWORDS: Final = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_SUBSCHEMA_KEYWORDS: Final = frozenset({*MAPPING_KEYWORDS, *LIST_KEYWORDS, *SINGLE_KEYWORDS})
KEYWORD_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("$ref", "format"), str),
    **dict.fromkeys((*LIST_KEYWORDS, "enum", "required"), list),
    **dict.fromkeys(MAPPING_KEYWORDS, dict),
    "type": (str, list),
}
"""Python types of the keywords that are read without a further check, as JSON is parsed."""


def iter_subschemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the schema and every nested schema, without following references."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if not isinstance(node, dict):
            continue
        yield node
        if _SUBSCHEMA_KEYWORDS.isdisjoint(node):
            continue
        for key in MAPPING_KEYWORDS:
            stack.extend(node.get(key, {}).values())
        for key in LIST_KEYWORDS:
            stack.extend(node.get(key, ()))
        stack.extend(node[key] for key in SINGLE_KEYWORDS if key in node)


def find_malformed_keyword(schema: Mapping[str, Any]) -> str | None:
    """Return the first keyword of a schema whose value has a JSON type that this package cannot read, or None."""
    for node in iter_subschemas(schema):
        for key, value in node.items():
            if key not in KEYWORD_KINDS:
                continue
            names = value if key in ("type", "required") and isinstance(value, list) else ()
            if not isinstance(value, KEYWORD_KINDS[key]) or not all(isinstance(name, str) for name in names):
                return key
    return None


def admits_unbounded_depth(schema: JsonSchema) -> bool:
    """Return True if the schema accepts values of unbounded depth: an untyped part or a recursive type."""
    if _is_recursive(schema.get("$defs", {})):
        return True
    for node in iter_subschemas(schema):
        if "$ref" in node:
            continue
        kind = node.get("type")
        if kind is None and not node.keys() & {*UNION_KEYWORDS, "enum", "const"}:
            return True
        if kind == "array" and not node.keys() & {"items", "prefixItems"}:
            return True
        if kind == "object" and node.get("additionalProperties", "properties" not in node) is True:
            return True
    return False


def _is_recursive(definitions: Mapping[str, Any]) -> bool:
    """Return True if a definition refers to itself, directly or indirectly."""
    references = {
        name: {str(node["$ref"]).removeprefix("#/$defs/") for node in iter_subschemas(part) if "$ref" in node}
        for name, part in definitions.items()
    }
    users: dict[str, list[str]] = {}
    for name, others in references.items():
        for other in others:
            users.setdefault(other, []).append(name)
    open_counts = {name: len(others & references.keys()) for name, others in references.items()}
    resolved_names = [name for name, count in open_counts.items() if not count]
    for name in resolved_names:  # grows
        for user in users.get(name, ()):
            open_counts[user] -= 1
            if not open_counts[user]:
                resolved_names.append(user)
    return len(resolved_names) < len(references)


def admits_nan(schema: JsonSchema) -> bool:
    """Return True if the schema may accept NaN: an untyped part, or a number in a nested model with its own rules."""
    nested = schema.get("$defs", {}).values()
    return any(
        node.get("type") == "number" for part in nested for node in iter_subschemas(part)
    ) or admits_unbounded_depth(schema)


def admits_number(schema: JsonSchema) -> bool:
    """Return True if the schema accepts a non-integer number anywhere."""
    return any(node.get("type") == "number" for node in iter_subschemas(schema)) or admits_unbounded_depth(schema)


_MAX_SECRET_NODES: Final = 2000
"""Maximum number of parts of a schema in which secret fields are searched."""


def find_secret_names(schema: Any) -> frozenset[str]:
    """Return the names of the fields that a schema declares as secret, as those of a `SecretStr` and a list of them.

    An empty name stands for every field, as those of `**values: SecretStr`.
    """
    users: dict[int, list[Any]] = {}
    fields: list[tuple[Any, Any]] = [("", schema)]
    found, spare, secrets = [schema], _MAX_SECRET_NODES, list[Any]()
    while found and (spare := spare - 1):
        node = found.pop()
        if isinstance(node, Mapping):
            if node.get("format") == "password" or node.get("writeOnly") is True:
                secrets.append(node)
            for part in _iter_parts(node, schema):
                users.setdefault(id(part), []).append(node)
            properties = node.get("properties")
            fields += properties.items() if isinstance(properties, Mapping) else ()
            found += node.values()
        elif isinstance(node, list | tuple):
            found += node
    hidden = set[int]()
    while secrets:
        node = secrets.pop()
        if id(node) not in hidden:
            hidden.add(id(node))
            secrets += users.get(id(node), ())
    return frozenset(str(name) for name, field in fields if id(field) in hidden)


def _iter_parts(node: Mapping[str, Any], root: Any) -> Iterator[Any]:
    """Yield the schemas of the values of a schema, and of values inside of them that have no name of their own."""
    yield resolve_pointer(root, node.get("$ref"))
    for part in map(node.get, (*LIST_KEYWORDS, *SINGLE_KEYWORDS)):
        yield from part if isinstance(part, list | tuple) else (part,)
    patterns = node.get("patternProperties")
    yield from patterns.values() if isinstance(patterns, Mapping) else ()


def with_object_type(schema: Any) -> Any:
    """Return a schema of arguments with its type. Anything but a mapping is returned, for a later check."""
    return {"type": "object", **schema} if isinstance(schema, Mapping) else schema


def wrap_in_result(schema: JsonSchema) -> JsonSchema:
    """Return the schema of an object with the value in its one field, `result`."""
    inner = dict(schema)
    defs = inner.pop("$defs", None)
    wrapper: JsonSchema = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return {**wrapper, "$defs": defs} if defs else wrapper


_SERIALIZER: Final = SchemaSerializer(core_schema.any_schema())


def encode_default(default: Any) -> Any:
    """Return the JSON form of a default for a schema, with numbers for decimals.

    Raises:
        PydanticSerializationError: it has none.
    """
    try:
        encoded = to_jsonable_python(_write_decimals(_SERIALIZER.to_python(default, by_alias=True)))
    except ValueError as error:
        raise PydanticSerializationError(str(error)) from error
    # The order of a set differs between processes; a definition must be stable.
    return sorted(encoded, key=to_json) if isinstance(default, set | frozenset) else encoded


def _write_decimals(value: Any) -> Any:
    if isinstance(value, Decimal):
        if Decimal(repr(float(value))) != value:
            raise ValueError(value)  # no float holds it exactly
        return float(value)
    if isinstance(value, dict):
        return {key: _write_decimals(item) for key, item in value.items()}
    return list(map(_write_decimals, value)) if isinstance(value, list | tuple | set | frozenset) else value
