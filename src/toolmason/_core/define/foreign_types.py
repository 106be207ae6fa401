"""Adapt types that pydantic does not support, or supports differently: attrs classes, msgspec Structs, decimals, bytes.

attrs and msgspec are never imported here: one of their classes exists only if its package is already loaded.
"""

from __future__ import annotations

import sys
import types
import typing
from base64 import b64encode
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler, PlainSerializer
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict

from toolmason._core.define.foreign_values import is_attrs, is_struct, to_builtins
from toolmason.errors import UnsupportedType


def adapt_hint(hint: Any, ancestors: tuple[type, ...] = ()) -> Any:
    """Return `hint` with an adapter for every attrs class, msgspec Struct, `Decimal` and `bytes` in it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is None and isinstance(hint, type):
        if hint is Decimal:
            return Annotated[Decimal, _DecimalAdapter()]
        if hint is bytes:
            return Annotated[bytes, PlainSerializer(_encode_base64, when_used="json")]
        if is_struct(hint):
            return Annotated[hint, _StructAdapter(hint)]
        return Annotated[hint, _AttrsAdapter(hint, ancestors)] if is_attrs(hint) else hint
    if not inner or origin is typing.Literal:
        return hint
    if origin is Annotated and inner[0] is Decimal:
        return Annotated[(Decimal, *hint.__metadata__, _DecimalAdapter())]
    if origin is Annotated:
        adapted = adapt_hint(inner[0], ancestors)
        return hint if adapted is inner[0] else Annotated[(adapted, *hint.__metadata__)]
    parts = [arg if isinstance(arg, list) else adapt_hint(arg, ancestors) for arg in inner]
    if all(part is arg for part, arg in zip(parts, inner, strict=True)):
        return hint
    generic: Any = Union if origin is types.UnionType else origin
    return generic[tuple(parts)]


def _encode_base64(value: bytes) -> str:
    return b64encode(value).decode("ascii")


class _DecimalAdapter:
    """Makes a decimal a JSON number only; pydantic would silently accept a string too."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        self.decimal_schema = decimal_schema = handler(source)
        number = core_schema.union_schema([core_schema.int_schema(), core_schema.float_schema(allow_inf_nan=False)])
        from_number = core_schema.no_info_after_validator_function(lambda value: Decimal(str(value)), number)
        to_string = core_schema.to_string_ser_schema()
        return core_schema.json_or_python_schema(
            core_schema.chain_schema([from_number, decimal_schema]), decimal_schema, serialization=to_string
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        del schema
        return handler(self.decimal_schema)


class _StructAdapter:
    """Uses a msgspec Struct's own schema and conversion."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        msgspec = sys.modules["msgspec"]
        kind = self.kind

        def convert(value: Any) -> Any:
            try:
                return value if isinstance(value, kind) else msgspec.convert(value, kind)
            except msgspec.ValidationError as error:
                raise ValueError(str(error)) from None

        return core_schema.no_info_plain_validator_function(
            convert, serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # Pydantic follows every `$ref` and resolves only its own, so these stay renamed until `restore_struct_refs`.
        del schema, handler
        [root], parts = sys.modules["msgspec"].json.schema_components([self.kind], ref_template="{name}")
        return {**_disguise_refs(root), _STRUCT_PARTS_KEY: {name: _disguise_refs(part) for name, part in parts.items()}}


_STRUCT_PARTS_KEY = "x-struct-parts"
_STRUCT_REF_KEY = "x-struct-ref"


def _disguise_refs(value: Any) -> Any:
    if isinstance(value, dict):
        return {_STRUCT_REF_KEY if key == "$ref" else key: _disguise_refs(item) for key, item in value.items()}
    return [_disguise_refs(item) for item in value] if isinstance(value, list) else value


def restore_struct_refs(schema: JsonSchemaValue) -> JsonSchemaValue:
    """Return a finished schema with the parts of msgspec Structs moved to `$defs`, each under a unique name."""
    if _STRUCT_PARTS_KEY not in str(schema):
        return schema
    definitions: dict[str, Any] = schema.setdefault("$defs", {})
    result: JsonSchemaValue = _restore_node(schema, {}, definitions)
    return result


def _restore_node(node: Any, names: dict[str, str], definitions: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_restore_node(item, names, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if (parts := node.pop(_STRUCT_PARTS_KEY, None)) is not None:
        names = {name: _find_free_name(name, part, definitions) for name, part in parts.items()}
        for name, part in parts.items():
            definitions[names[name]] = part
        for name in parts:
            definitions[names[name]] = _restore_node(definitions[names[name]], names, definitions)
    if _STRUCT_REF_KEY in node:
        node["$ref"] = f"#/$defs/{names[node.pop(_STRUCT_REF_KEY)]}"
    for key in list(node):
        if key != "$defs" or node[key] is not definitions:
            node[key] = _restore_node(node[key], names, definitions)
    return node


def _find_free_name(name: str, part: Any, definitions: dict[str, Any]) -> str:
    """Return a name for a definition that no different definition has: two classes may have the same name."""
    free_name = name
    number = 2
    while free_name in definitions and definitions[free_name] != part:
        free_name = f"{name}_{number}"
        number += 1
    return free_name


class _AttrsAdapter:
    """Validates an attrs class as an object of its fields, then calls its constructor."""

    def __init__(self, kind: type, ancestors: tuple[type, ...]) -> None:
        if kind in ancestors:
            raise UnsupportedType(
                f"The attrs class {kind.__qualname__!r} is recursive. Use a dataclass or a pydantic model instead."
            )
        self.ancestors = (*ancestors, kind)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = handler.generate_schema(_make_field_types(source, self.ancestors))

        def construct(values: Any) -> Any:
            try:
                return source(**values)
            except Exception as error:
                # An attrs validator may raise anything; pydantic treats only a ValueError as a validation error.
                raise ValueError(str(error.args[0] if error.args else error)) from error

        constructed = core_schema.no_info_after_validator_function(construct, inner)
        return core_schema.json_or_python_schema(
            constructed,
            core_schema.union_schema([core_schema.is_instance_schema(source), constructed]),
            serialization=core_schema.plain_serializer_function_ser_schema(to_builtins),
        )


@lru_cache(maxsize=256)
def _make_field_types(kind: type, ancestors: tuple[type, ...]) -> Any:
    attr = sys.modules["attr"]
    hints = typing.get_type_hints(kind, include_extras=True)
    fields: dict[str, Any] = {}
    for field in attr.fields(kind):
        if field.init:
            hint = adapt_hint(hints.get(field.name, Any), ancestors)
            fields[field.alias] = hint if field.default is attr.NOTHING else NotRequired[hint]
    make_typed_dict: Any = TypedDict  # the functional form with run-time names, which type checkers do not support
    return make_typed_dict(kind.__name__, fields)
