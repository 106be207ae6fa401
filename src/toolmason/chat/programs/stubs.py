"""Write the signatures of tools as Python functions, and bind the calls of a program to their parameters."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolmason._core.define.schema_nodes import resolve
from toolmason._core.values.definition import ToolDefinition
from toolmason._core.values.results import ToolResult

_TYPES: Final = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
MAX_TYPE_DEPTH: Final = 5
"""Depth at which the type of a value is written as `Any`."""
MAX_TYPE_CHARS: Final = 1000
"""Length of a type above which it is written as `Any`."""


@dataclass(frozen=True, slots=True)
class Stub:
    """A tool as a function of a program."""

    tool: str
    """Name of the tool."""
    parameters: tuple[str, ...]
    """Names of the parameters, in the order of positional arguments."""
    text: str
    """Signature and description, as Python source."""
    has_output: bool = False
    """True if the tool has an output schema; otherwise a program gets the text of its results."""
    is_wrapped: bool = False
    """True if structured results have one key `result`, which a program does not see."""

    def get_value(self, result: ToolResult) -> Any:
        """Return a result as a program gets it. It is the same if the result was restored from JSON."""
        structured = result.structured if self.has_output else None
        if structured is None:
            return result.text
        return structured["result"] if self.is_wrapped and "result" in structured else structured

    def bind(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name. The toolbox validates them.

        Raises:
            TypeError: there are too many positional arguments, or one is given twice.
        """
        if len(args) > len(self.parameters):
            raise TypeError(f"it takes at most {len(self.parameters)} positional arguments, but {len(args)} were given")
        given = dict(zip(self.parameters, args, strict=False))
        if twice := given.keys() & keywords.keys():
            raise TypeError(f"it got two values for the argument {min(twice)!r}")
        return given | dict(keywords)


def make_stubs(definitions: Iterable[ToolDefinition]) -> dict[str, Stub]:
    """Return the functions by name. A name that is not one of Python is changed."""
    stubs: dict[str, Stub] = {}
    for definition in definitions:
        name = _make_name(definition.name, stubs)
        stubs[name] = _make_stub(name, definition)
    return stubs


def _make_name(name: str, taken: Mapping[str, Any]) -> str:
    base = re.sub(r"\W", "_", name, flags=re.ASCII)
    if not base.isidentifier() or keyword.iskeyword(base):
        base = f"tool_{base}"
    found, number = base, 1
    while found in taken:
        number += 1
        found = f"{base}_{number}"
    return found


def _make_stub(name: str, definition: ToolDefinition) -> Stub:
    schema = definition.input_schema
    properties, required = schema.get("properties", {}), schema.get("required", ())
    # Python wants parameters without a default first.
    ordered = sorted(properties, key=lambda key: key not in required)
    shown = [_format_parameter(key, properties[key], schema, is_required=key in required) for key in ordered]
    if not all(key.isidentifier() and not keyword.iskeyword(key) for key in ordered):
        shown = ["**arguments: Any"]
    output = definition.output_schema
    is_wrapped = output is not None and output.get("properties", {}).keys() == {"result"}
    lines = [f"def {name}({', '.join(shown)}) -> {_format_result(output, is_wrapped=is_wrapped)}:"]
    notes = [f"{key}: {text}" for key in ordered if (text := resolve(properties[key], schema).get("description"))]
    if shown == ["**arguments: Any"]:
        notes.append(f"JSON Schema of the arguments: {json.dumps(schema)[:MAX_TYPE_CHARS]}")
    text = "\n    ".join([definition.description.strip().replace("\n", "\n    "), *notes]).replace('"""', "'''")
    source = "\n".join([*lines, f'    """{text}"""'])
    return Stub(definition.name, tuple(ordered), source, output is not None, is_wrapped)


def _format_parameter(name: str, schema: Any, root: Mapping[str, Any], *, is_required: bool) -> str:
    shown = f"{name}: {format_type(schema, root)}"
    if is_required:
        return shown
    found = resolve(schema, root)
    return f"{shown} = {_to_literal(found['default'])}" if "default" in found else f"{shown} = ..."


def _format_result(schema: Mapping[str, Any] | None, *, is_wrapped: bool) -> str:
    if schema is None:
        return "str"
    return format_type(schema["properties"]["result"] if is_wrapped else schema, schema)


def format_type(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    """Return a JSON Schema as a Python type."""
    text = _format_type(resolve(schema, root), root, depth)
    return text if len(text) <= MAX_TYPE_CHARS else "Any"


def _format_type(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> str:
    if depth > MAX_TYPE_DEPTH:
        return "Any"
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return f"Literal[{', '.join(map(_to_literal, values))}]"
    if parts := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(format_type(part, root, depth + 1) for part in parts))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(dict.fromkeys(_format_type({**schema, "type": each}, root, depth) for each in kind))
    if kind == "array":
        return f"list[{format_type(schema.get('items'), root, depth + 1)}]"
    if kind != "object":
        return _TYPES.get(str(kind), "Any")
    if not (properties := schema.get("properties")):
        return f"dict[str, {format_type(schema.get('additionalProperties'), root, depth + 1)}]"
    required = schema.get("required", ())
    fields = [(key, format_type(part, root, depth + 1)) for key, part in properties.items()]
    shown = [f"{key!r}: {text if key in required else f'NotRequired[{text}]'}" for key, text in fields]
    return f"TypedDict[{{{', '.join(shown)}}}]"


def _to_literal(value: Any) -> str:
    return repr(value)[:MAX_TYPE_CHARS]
