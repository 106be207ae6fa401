"""Write the schemas of an OpenAPI document as JSON Schemas that stand alone."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolmason._core.define.schema_nodes import JSON_TYPES
from toolmason._core.values.definition import JsonSchema
from toolmason.openapi.document import ApiDocument, UnusablePart, expect_list, expect_mapping

MAX_SCHEMA_DEPTH: Final = 64
"""Maximum depth of a schema of a document, not counting references."""
MAX_INPUT_NODES: Final = 2_000
"""Parts of a tool's input schema, with the schemas that it refers to."""
MAX_OUTPUT_NODES: Final = 500
"""The same for its output schema."""
_PLAIN: Final = frozenset({"const", "default", "enum", "examples", "multipleOf"})
_KINDS: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(("title", "description", "format", "pattern", "contentEncoding", "contentMediaType"), str),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), (int, float)),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), int),
    **dict.fromkeys(("uniqueItems", "deprecated"), bool),
}
"""Keywords with a value of one type. A value of another type is left out."""
_SCHEMAS: Final = ("items", "additionalProperties", "not", "contains", "propertyNames")
_LISTS: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
_MAPS: Final = ("properties", "patternProperties")
_NULL: Final = {"type": "null"}


@dataclass(slots=True, eq=False, repr=False)
class WrittenSchema:
    """A JSON Schema, the references that it uses, and its size."""

    schema: JsonSchema
    references: list[str] = field(default_factory=list)
    nodes: int = 0


class SchemaWriter:
    """Writer of the schemas of one document, for requests or for responses. Each shared schema is written once."""

    def __init__(self, document: ApiDocument, *, for_requests: bool) -> None:
        self._document = document
        self._hidden = "readOnly" if for_requests else "writeOnly"
        self._max_nodes = MAX_INPUT_NODES if for_requests else MAX_OUTPUT_NODES
        self._shared: dict[str, WrittenSchema] = {}
        self._names: dict[str, str] = {}
        """Name in `$defs` of each reference."""

    def write(self, schema: Any) -> WrittenSchema:
        """Return a schema of the document as a JSON Schema, whose references `add_definitions` completes.

        Raises:
            UnusablePart: it is not a schema, or refers to another document.
        """
        written = WrittenSchema({})
        written.schema = self._write(schema, written, 0)
        return written

    def add_definitions(self, written: WrittenSchema) -> JsonSchema:
        """Return a schema with the schemas that it refers to, nearest first. Those beyond the limit allow any value.

        Raises:
            UnusablePart: one of them is not a schema, or refers to another document.
        """
        definitions: JsonSchema = {}
        waiting, spare = deque(written.references), self._max_nodes - written.nodes
        while waiting:
            reference = waiting.popleft()
            name = self._names[reference]
            if name in definitions:
                continue
            shared = self._shared.get(reference)
            if shared is None:
                shared = self._shared[reference] = self.write(self._document.find(reference))
            if shared.nodes > spare:
                definitions[name] = {"description": "Any value; its schema is too large to show."}
                continue
            spare -= shared.nodes
            definitions[name] = shared.schema
            waiting.extend(shared.references)
        return {**written.schema, "$defs": definitions} if definitions else written.schema

    def _write(self, node: Any, written: WrittenSchema, depth: int) -> JsonSchema:
        written.nodes += 1
        if isinstance(node, bool | None):  # nothing after a key of YAML is null
            return {"not": {}} if node is False else {}
        node = expect_mapping(node, "a schema")
        if depth > MAX_SCHEMA_DEPTH:
            raise UnusablePart(f"a schema is nested deeper than {MAX_SCHEMA_DEPTH}")
        if isinstance(node.get("$ref"), str):
            return self._write_reference(node, written)
        schema = self._copy_keywords(node)
        for key in _SCHEMAS:
            if key in node:
                schema[key] = self._write(node[key], written, depth + 1)
        self._write_lists(node, schema, written, depth)
        for key in _MAPS:
            if key in node:
                parts = expect_mapping(node[key], f"{key!r} of a schema")
                shown = {name: part for name, part in parts.items() if not self._is_hidden(part)}
                schema[key] = {str(name): self._write(part, written, depth + 1) for name, part in shown.items()}
        self._write_required(node, schema)
        return self._adapt_3_0(node, schema) if self._document.is_3_0 else schema

    def _write_lists(self, node: Mapping[str, Any], schema: JsonSchema, written: WrittenSchema, depth: int) -> None:
        for key in _LISTS:
            if parts := expect_list(node.get(key), f"{key!r} of a schema"):
                shown = [self._write(part, written, depth + 1) for part in parts]
                # Alternatives of real documents overlap (Zoom, 2026): `oneOf` would refuse every value of them.
                if key != "oneOf":
                    schema[key] = shown
                elif "anyOf" in schema:
                    schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": shown}]
                else:
                    schema["anyOf"] = shown

    def _write_reference(self, node: Mapping[str, Any], written: WrittenSchema) -> JsonSchema:
        reference, _ = self._document.follow(node["$ref"])
        if reference not in self._names:
            stem = re.sub(r"\W+", "_", reference.rpartition("/")[2]).strip("_")[:60] or "schema"
            taken, name, number = set(self._names.values()), stem, 2
            while name in taken:
                name, number = f"{stem}_{number}", number + 1
            self._names[reference] = name
        written.references.append(reference)
        schema: JsonSchema = {"$ref": f"#/$defs/{self._names[reference]}"}
        # In 3.0 the keys beside a reference have no meaning.
        if not self._document.is_3_0 and isinstance(text := node.get("description"), str):
            schema["description"] = text
        return schema

    def _copy_keywords(self, node: Mapping[str, Any]) -> JsonSchema:
        schema: JsonSchema = {}
        kinds = node.get("type")
        known = [
            kind
            for kind in (kinds if isinstance(kinds, list) else [kinds])
            if isinstance(kind, str) and kind in JSON_TYPES
        ]
        if known:
            schema["type"] = known if isinstance(kinds, list) else known[0]
        for key, value in node.items():
            kind = _KINDS.get(key)
            is_of_kind = kind is not None and isinstance(value, kind) and (kind is bool) is (type(value) is bool)
            if key in _PLAIN or is_of_kind:
                schema[key] = value
        if not isinstance(values := schema.get("enum", []), list):
            del schema["enum"]
        elif values and known and not any(_is_of_type(value, known) for value in values):
            del schema["type"]  # a list of numbers for a string, as in Zoom's document: no value would match both
        if not isinstance(schema.get("examples", []), list):
            del schema["examples"]
        if not isinstance(factor := schema.get("multipleOf", 1), int | float) or factor <= 0:
            del schema["multipleOf"]
        return schema

    def _is_hidden(self, part: Any) -> bool:
        return isinstance(part, Mapping) and part.get(self._hidden) is True

    def _write_required(self, node: Mapping[str, Any], schema: JsonSchema) -> None:
        required = node.get("required")
        if not isinstance(required, list):  # a flag beside the type is a common mistake
            return
        declared = node.get("properties") or {}
        names = [name for name in required if isinstance(name, str) and not self._is_hidden(declared.get(name))]
        if names:
            schema["required"] = names

    @staticmethod
    def _adapt_3_0(node: Mapping[str, Any], schema: JsonSchema) -> JsonSchema:
        """Return a schema with the keywords of 3.0 that JSON Schema writes differently."""
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if node.get(exclusive) is True and bound in schema:
                schema[exclusive] = schema.pop(bound)
        if "example" in node and "examples" not in schema:
            schema["examples"] = [node["example"]]
        if node.get("nullable") is not True:
            return schema
        if isinstance(schema.get("type"), str):
            schema["type"] = [schema["type"], "null"]
            if "enum" in schema and None not in schema["enum"]:
                schema["enum"] = [*schema["enum"], None]
            return schema
        return {"anyOf": [schema, _NULL]} if schema else schema


def _is_of_type(value: Any, kinds: list[str]) -> bool:
    return any(isinstance(value, (int, float) if kind == "number" else JSON_TYPES[kind]) for kind in kinds)
