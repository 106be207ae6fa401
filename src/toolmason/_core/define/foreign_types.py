"""Adapt types that pydantic does not support, or supports differently: attrs classes, msgspec Structs, decimals, bytes.

attrs and msgspec are never imported here: one of their classes exists only if its package is already loaded.
"""

from __future__ import annotations

import re
import sys
import types
import typing
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import is_dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Final, NotRequired, Required, Union, cast, get_args, get_origin

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema
from typing_extensions import TypedDict, is_typeddict

from toolmason._core.define.decorators import MISSING, Param
from toolmason._core.define.field_metadata import FieldMetadata, get_class_text, read_fields, refuse_missing_value
from toolmason._core.values.content import encode_base64
from toolmason._core.values.foreign_values import is_attrs, is_struct, to_builtins
from toolmason.errors import UnsupportedType

make_typed_dict: Final[Any] = TypedDict
"""The functional form with run-time names, which type checkers do not support."""


def adapt_hint(hint: Any, ancestors: tuple[type, ...] = ()) -> Any:
    """Return `hint` with an adapter for each attrs class, msgspec Struct, `bytes` and union with a `Decimal` in it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is None and isinstance(hint, type):
        if hint is bytes:
            from pydantic import PlainSerializer  # noqa: PLC0415 - its module takes a third of the time of a first tool

            return Annotated[bytes, PlainSerializer(encode_base64, when_used="json")]
        if is_struct(hint):
            return Annotated[hint, _StructAdapter(hint)]
        return Annotated[hint, _AttrsAdapter(hint, ancestors)] if is_attrs(hint) else hint
    if not inner or origin is typing.Literal:
        return hint
    if origin is Annotated:
        adapted = adapt_hint(inner[0], ancestors)
        return hint if adapted is inner[0] else Annotated[(adapted, *hint.__metadata__)]
    parts = [arg if isinstance(arg, list) else adapt_hint(arg, ancestors) for arg in inner]
    if origin in (Union, types.UnionType) and sum(part is not type(None) for part in parts) > 1:
        parts = [
            Annotated[part, _DecimalAdapter()] if Decimal in (part, *get_args(part)[:1]) else part for part in parts
        ]
    if all(part is arg for part, arg in zip(parts, inner, strict=True)):
        return hint
    generic: Any = Union if origin is types.UnionType else origin
    return generic[tuple(parts)]


class _DecimalAdapter:
    """Makes a decimal beside other types a JSON number only: text may be meant for them."""

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
        fields = _StructFields(kind)

        def convert(value: Any) -> Any:
            if isinstance(value, kind):
                return value
            restored = fields.restore(value)
            try:
                return msgspec.convert(restored, kind)
            except msgspec.ValidationError as error:
                raise ValueError(fields.relabel(str(error), restored)) from None

        return core_schema.no_info_plain_validator_function(
            convert, serialization=core_schema.plain_serializer_function_ser_schema(msgspec.to_builtins)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        # Pydantic follows every `$ref` and resolves only its own, so these stay renamed until `restore_struct_refs`.
        del schema
        fields = _StructFields(self.kind)
        root, parts = fields.root, fields.describe(sets_values=handler.mode == "validation")
        return {**_disguise_refs(root), _STRUCT_PARTS_KEY: {name: _disguise_refs(part) for name, part in parts.items()}}


class _StructFields:
    """The components of a Struct's schema, with the metadata of the fields of each Struct in it."""

    def __init__(self, kind: type) -> None:
        self.root: dict[str, Any]
        self.parts: dict[str, dict[str, Any]]
        [self.root], self.parts = sys.modules["msgspec"].json.schema_components([kind], ref_template="{name}")
        self.kinds: dict[str, type] = {}
        self._find_kinds(kind)

    def _find_kinds(self, hint: Any) -> None:
        if is_struct(hint) and hint.__name__ in self.parts and hint.__name__ not in self.kinds:
            self.kinds[hint.__name__] = hint
            for inner in typing.get_type_hints(hint, include_extras=True).values():
                self._find_kinds(inner)
        for inner in get_args(hint):
            self._find_kinds(inner)

    def _iter_fields(self, name: str) -> Iterator[tuple[str, FieldMetadata, bool]]:
        """Yield the wire name, the metadata, and whether it is required, of each field of a component."""
        kind: Any = self.kinds.get(name)
        if kind is None:
            return
        metadata = read_fields(kind)
        required = self.parts[name].get("required", ())
        for field, wire_name in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
            if field in metadata and wire_name in self.parts[name].get("properties", {}):
                yield wire_name, metadata[field], wire_name in required

    def describe(self, *, sets_values: bool) -> dict[str, Any]:
        """Return the components as the model sees them; with `sets_values`, with other names and defaults, too."""
        return {name: self._describe_part(name, part, sets_values=sets_values) for name, part in self.parts.items()}

    def _describe_part(self, name: str, part: dict[str, Any], *, sets_values: bool) -> dict[str, Any]:
        properties: dict[str, Any] = dict(part.get("properties", {}))
        required: list[str] = list(part.get("required", ()))
        for wire_name, metadata, _ in self._iter_fields(name):
            param = metadata.param if sets_values else Param(examples=metadata.param.examples)
            derived = properties.pop(wire_name)
            shown = dict(derived if param.schema is None else param.schema)
            if metadata.description and (metadata.is_inline or "description" not in shown):
                shown["description"] = metadata.description
            if param.examples:
                shown["examples"] = list(param.examples)
            if param.default is not MISSING:
                shown["default"] = param.default
            label = param.name or wire_name
            properties[label] = shown
            if wire_name in required:
                refuse_missing_value(metadata, f"Field {wire_name!r} of {name!r}")
                is_optional = sets_values and (metadata.is_optional or param.default is not MISSING)
                required = [
                    label if key == wire_name else key for key in required if key != wire_name or not is_optional
                ]
        described = {**part, "properties": properties, "required": required} if "properties" in part else part
        if "description" in part and name in self.kinds:
            described["description"] = get_class_text(self.kinds[name])
        return described

    def restore(self, value: Any) -> Any:
        """Return arguments with the names and the values that the Structs expect.

        Raises:
            ValueError: a field is missing under the name that the model uses, or has another.
        """
        return self._restore(value, self.root)

    def _restore(self, value: Any, node: Any) -> Any:
        if not isinstance(node, dict) or not isinstance(value, dict | list):
            return value
        name, part = self._find_part(node, value)
        if isinstance(value, list):
            return [self._restore(item, part.get("items")) for item in value]
        properties, others = part.get("properties", {}), part.get("additionalProperties")
        restored = self._restore_names(value, name)
        return {key: self._restore(item, properties.get(key, others)) for key, item in restored.items()}

    def _find_part(self, node: dict[str, Any], value: Any) -> tuple[str, dict[str, Any]]:
        """Return the component that describes an object or a list, and its name if it has one."""
        if "anyOf" in node:
            wanted = "array" if isinstance(value, list) else "object"
            found = [branch for branch in node["anyOf"] if self._find_part(branch, value)[1].get("type") == wanted]
            if len(found) > 1 and isinstance(value, dict) and (tags := node.get("discriminator")):
                tagged = tags["mapping"].get(str(value.get(tags["propertyName"])))
                found = [branch for branch in found if branch.get("$ref") == tagged]
            return self._find_part(found[0], value) if len(found) == 1 else ("", {})
        name = node.get("$ref", "")
        return name, self.parts[name] if name else node

    def _restore_names(self, value: dict[str, Any], name: str) -> dict[str, Any]:
        """Return an object under the names of a Struct. A name that only the Struct itself uses is unknown here."""
        fields = tuple(self._iter_fields(name))
        wire_names = {metadata.param.name or wire_name: wire_name for wire_name, metadata, _ in fields}
        hidden = set(wire_names.values()) - wire_names.keys()
        restored = {wire_names.get(key, key): item for key, item in value.items() if key not in hidden}
        for wire_name, metadata, is_required in fields:
            if wire_name in restored:
                continue
            if metadata.param.default is not MISSING:
                restored[wire_name] = deepcopy(metadata.param.default)
            elif is_required and metadata.is_optional:
                restored[wire_name] = None
            elif is_required and wire_name in hidden:
                raise ValueError(f"Object missing required field `{metadata.param.name}`")
        if (unknown := hidden & value.keys()) and cast("Any", self.kinds[name]).__struct_config__.forbid_unknown_fields:
            raise ValueError(f"Object contains unknown field `{min(unknown)}`")
        return restored

    def relabel(self, message: str, value: Any) -> str:
        """Return a message of msgspec about restored arguments, with the names of the model in its path."""
        text, mark, path = message.partition(" - at `")
        node: Any = self.root
        labels = "$"
        for step in re.findall(r"\.\w+|\[[^\]]*\]", path):
            if not isinstance(node, dict) or not isinstance(value, dict | list):
                return message
            name, part = self._find_part(node, value)
            key, label = step[1:], step
            if isinstance(value, list):
                node, value = part.get("items"), value[int(step[1:-1])]
            elif step == "[...]":  # some value of a dict
                node, value = part.get("additionalProperties"), next(iter(value.values()))
            else:
                names = {wire_name: metadata.param.name for wire_name, metadata, _ in self._iter_fields(name)}
                node, value, label = part.get("properties", {}).get(key), value.get(key), f".{names.get(key) or key}"
            labels += label
        return f"{text}{mark}{labels}`" if mark else message


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
    return make_typed_dict(kind.__name__, fields)


def support_typed_dicts(hint: Any, seen: set[int] | None = None) -> None:
    """Let pydantic accept each `typing.TypedDict` in a hint on Python 3.11, where it refuses them.

    Such a class gets pydantic's own hook, which generates the schema of an equal `typing_extensions.TypedDict`.
    """
    seen = set() if seen is None else seen
    if id(hint) in seen:
        return
    seen.add(id(hint))
    if typing.is_typeddict(hint):  # False for those of `typing_extensions`
        hint.__get_pydantic_core_schema__ = _generate_typed_dict_schema
    if is_typeddict(hint) or (isinstance(hint, type) and is_dataclass(hint)):  # metadata may be a dataclass, too
        for inner in typing.get_type_hints(hint, include_extras=True).values():
            support_typed_dicts(inner, seen)
    for inner in get_args(hint):
        support_typed_dicts(inner, seen)


def _generate_typed_dict_schema(source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    return handler.generate_schema(_convert_typed_dict(source))


@lru_cache(maxsize=256)
def _convert_typed_dict(kind: Any) -> Any:
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        is_explicit = get_origin(hint) in (Required, NotRequired)
        fields[name] = hint if is_explicit or name in kind.__required_keys__ else NotRequired[hint]
    converted = make_typed_dict(kind.__name__, fields)
    for attribute in ("__module__", "__qualname__", "__doc__", "__pydantic_config__"):
        if hasattr(kind, attribute):
            setattr(converted, attribute, getattr(kind, attribute))
    return converted
