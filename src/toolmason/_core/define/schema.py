"""Compile type hints to JSON Schema 2020-12 and a validator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from inspect import cleandoc
from typing import Annotated, Any, Final, Literal, NotRequired, cast, get_args, get_origin

from pydantic import (
    ConfigDict,
    Field,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema, SchemaError, SchemaSerializer, SchemaValidator, core_schema, to_json
from typing_extensions import TypedDict

from toolmason._core.define.field_metadata import SCHEMA_KEYS, apply_field_metadata, get_class_text, make_validator
from toolmason._core.define.foreign_types import adapt_hint, restore_struct_refs, support_typed_dicts
from toolmason._core.define.schema_nodes import EnumNames, ExtraKeys, FieldSpec, TypeSchema, iter_subschemas
from toolmason.errors import UnsupportedType

_SCHEMA_ERRORS = (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError, NameError, TypeError)
_MEMBER_NAMES_KEY = "x-member-names"


class _SchemaGenerator(GenerateJsonSchema):
    """Pydantic's generator without titles that repeat names, and with numbers for decimals."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.class_names: set[str] = set()
        self.has_decimals = False

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        # Keep the fields in the developer's order, which is stable and reads better.
        del parent_key
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        if self.mode == "serialization":
            return super().decimal_schema(schema)
        self.has_decimals = True
        result: JsonSchemaValue = {"type": "number"}
        keywords = {
            "ge": "minimum",
            "le": "maximum",
            "gt": "exclusiveMinimum",
            "lt": "exclusiveMaximum",
            "multiple_of": "multipleOf",
        }
        for name, keyword in keywords.items():
            if (bound := schema.get(name)) is not None:
                result[keyword] = float(bound)  # type: ignore[arg-type]  # every bound is a Decimal
        return result

    def encode_default(self, dft: Any) -> Any:
        # The order of a set differs between processes; a schema must be stable.
        encoded = super().encode_default(dft)
        return sorted(encoded, key=to_json) if isinstance(dft, set | frozenset) else encoded

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        result = super().enum_schema(schema)
        self.class_names.add(schema["cls"].__name__)
        values = result.get("enum", [result.get("const")])
        result[_MEMBER_NAMES_KEY] = {m.name: v for m, v in zip(schema["members"], values, strict=False)}
        return result

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return self._add_class(super().model_schema(schema), schema["cls"])

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return self._add_class(super().typed_dict_schema(schema), schema.get("cls"))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return self._add_class(super().dataclass_schema(schema), schema["cls"])

    def _add_class(self, result: JsonSchemaValue, kind: Any) -> JsonSchemaValue:
        self.class_names.add(getattr(kind, "__name__", ""))
        doc = getattr(kind, "__doc__", None)
        if doc and result.get("description") == cleandoc(doc):
            result["description"] = get_class_text(kind)  # entries of fields are their descriptions
        return result

    def finish(self, schema: JsonSchemaValue) -> EnumNames:
        """Drop titles that only repeat a class name, and return the member names of each enum in the schema."""
        names: EnumNames = {}
        for node in iter_subschemas(schema):
            if node.get("title") in self.class_names:
                del node["title"]
            if node.get("description") == "An enumeration.":
                del node["description"]
            if (members := node.pop(_MEMBER_NAMES_KEY, None)) is not None:
                names[id(node)] = members
        return names


def compile_type(hint: Any, mode: JsonSchemaMode = "validation") -> TypeSchema:
    """Return the schema and validator of a type.

    Raises:
        UnsupportedType: the type has no JSON Schema; the cause explains why.
    """
    try:
        adapter = _adapt(hint)
        core = apply_field_metadata(adapter.core_schema, sets_values=mode == "validation")
        generator = _SchemaGenerator(by_alias=True)
        schema = restore_struct_refs(generator.generate(core, mode))
    except _SCHEMA_ERRORS as error:
        raise UnsupportedType(str(error).split("\n", 1)[0]) from error
    validator = cast("SchemaValidator", adapter.validator) if core is adapter.core_schema else make_validator(core)
    names = generator.finish(schema)
    if mode == "validation":
        return TypeSchema(schema, validator, adapter.serializer, names, has_decimals=generator.has_decimals)
    core_text = repr(adapter.core_schema)
    return TypeSchema(
        schema,
        validator,
        adapter.serializer,
        names,
        has_aliases="serialization_alias" in core_text,
        writes_nan="ser_json_inf_nan" in core_text,
    )


def _adapt(hint: Any) -> TypeAdapter[Any]:
    adapted = adapt_hint(hint)
    try:
        return TypeAdapter(adapted)
    except PydanticUserError as error:
        if error.code != "typed-dict-version":
            raise
    support_typed_dicts(adapted)
    return TypeAdapter(adapted)


# --- large values ------------------------------------------------------------------------------

_COLLECTIONS: Final = frozenset({"list", "tuple", "set", "frozenset", "dict"})
_QUICK_TYPES: Final = frozenset({"int", "float", "bool", "str", "none", "any", "literal"})
"""Types of which a million values are validated in a tenth of a second."""


def make_patient_validator(validator: SchemaValidator) -> SchemaValidator:
    """Return a validator for large values, which stops at the first wrong item of a collection.

    It runs a Python function for each item that takes long, because pydantic lets no other thread run until it ends.
    """
    core, config, *_ = cast("Any", validator.__reduce__())[1]
    return make_validator(_make_patient(core), config)


def _make_patient(node: Any) -> Any:
    if isinstance(node, list | tuple):
        return type(node)(map(_make_patient, node))
    if not isinstance(node, dict):
        return node
    if not isinstance(node.get("type"), str):  # fields or choices by name
        return {key: _make_patient(item) for key, item in node.items()}
    changes = {key: _make_patient(node[key]) for key in (*SCHEMA_KEYS, "fields") if key in node}
    if node["type"] in _COLLECTIONS:
        changes["fail_fast"] = True
        for key in ("items_schema", "keys_schema"):
            inner = changes.get(key)
            # The items of a tuple have a schema each.
            if isinstance(inner, dict) and (key == "keys_schema" or inner["type"] not in _QUICK_TYPES):
                changes[key] = core_schema.no_info_after_validator_function(lambda value: value, cast("Any", inner))
    return {**node, **changes}


_CONFIG = ConfigDict(allow_inf_nan=False)
_SERIALIZER = SchemaSerializer(core_schema.any_schema())


def compile_object(fields: Mapping[str, FieldSpec], extra: ExtraKeys, extra_items: Any = None) -> TypeSchema:
    """Return the schema and validator of an object with these fields. Validated values use Python's names."""
    if extra_items is None and (plain_schema := _compile_plain_object(fields, extra)) is not None:
        return plain_schema
    options = {} if extra_items is None else {"extra_items": extra_items}
    make_typed_dict: Any = TypedDict  # the functional form with run-time names, which type checkers do not support
    arguments_type = make_typed_dict(
        "Arguments", {name: _annotate(name, spec) for name, spec in fields.items()}, **options
    )
    arguments_type.__pydantic_config__ = {**_CONFIG, "extra": extra}
    try:
        compiled = compile_type(arguments_type)
    except SchemaError:
        # Only if a pattern needs it: Python's engine supports look-around, but its run time is unbounded.
        arguments_type.__pydantic_config__ = {**_CONFIG, "extra": extra, "regex_engine": "python-re"}
        try:
            compiled = compile_type(arguments_type)
        except SchemaError as error:
            raise UnsupportedType(" ".join(str(error).split())) from error
    schema = {"type": "object", "properties": {}, "required": [], **compiled.schema}
    if extra_items is None:
        schema["additionalProperties"] = extra != "forbid"
    if defs := schema.pop("$defs", None):
        schema["$defs"] = defs
    return replace(compiled, schema=schema)


def _annotate(name: str, spec: FieldSpec) -> Any:
    field_options = {keyword: value for keyword, value in spec.keywords.items() if keyword != "default"}
    if "default" in spec.keywords:
        field_options["json_schema_extra"] = {"default": spec.keywords["default"]}
    if spec.label != name:
        field_options["alias"] = spec.label
    hint = adapt_hint(spec.hint)
    if spec.schema is not None:
        hint = Annotated[hint, WithJsonSchema(dict(spec.schema))]
    if field_options:
        hint = Annotated[hint, Field(**field_options)]
    return hint if spec.required else NotRequired[hint]


def _compile_plain_object(fields: Mapping[str, FieldSpec], extra: ExtraKeys) -> TypeSchema | None:
    """Build an object from cached plain types, or return None if a field needs the full path.

    Most parameters are strings, numbers and lists of them; compiling each such type once halves the cost of a tool.
    """
    core_fields: dict[str, core_schema.TypedDictField] = {}
    properties: dict[str, Any] = {}
    if not all(_may_be_plain(spec.hint) for spec in fields.values()):
        return None
    for name, spec in fields.items():
        try:
            compiled = None if spec.schema is not None else _compile_plain_type(spec.hint, repr(spec.hint))
        except TypeError:  # an unhashable hint
            compiled = None
        if compiled is None:
            return None
        alias = None if spec.label == name else spec.label
        core_fields[name] = core_schema.typed_dict_field(compiled[0], required=spec.required, validation_alias=alias)
        properties[spec.label] = {**compiled[1], **spec.keywords}
    # The types were compiled apart, so their own schemas do not have the configuration.
    config = core_schema.CoreConfig(allow_inf_nan=False)
    full_schema = core_schema.typed_dict_schema(core_fields, extra_behavior=extra, config=config)
    # Passing `strict` with each call and checking for unknown keys each take a tenth of parsing small arguments.
    strict_config = core_schema.CoreConfig(allow_inf_nan=False, strict=True)
    lenient_schema = core_schema.typed_dict_schema(core_fields, extra_behavior="ignore", config=strict_config)
    schema = {
        "type": "object",
        "properties": properties,
        "required": [spec.label for spec in fields.values() if spec.required],
        "additionalProperties": extra != "forbid",
    }
    try:
        return TypeSchema(
            schema,
            SchemaValidator(full_schema),
            _SERIALIZER,
            validate_strict=SchemaValidator(lenient_schema).validate_json,
        )
    except SchemaError:  # a pattern that only Python's engine supports
        return None


def _may_be_plain(hint: Any) -> bool:
    """Return False if a type names a class that is not of the standard library. Asking costs less than compiling."""
    if isinstance(hint, type):
        return hint.__module__ in _PLAIN_MODULES
    origin = get_origin(hint)
    if origin is Annotated:
        return _may_be_plain(hint.__origin__)
    return origin is Literal or all(map(_may_be_plain, get_args(hint)))


_PLAIN_MODULES: Final = frozenset({"builtins", "datetime", "uuid", "pathlib", "ipaddress", "re", "collections.abc"})
_SCALARS: dict[Any, tuple[CoreSchema, JsonSchemaValue]] = {
    str: (core_schema.str_schema(), {"type": "string"}),
    int: (core_schema.int_schema(), {"type": "integer"}),
    float: (core_schema.float_schema(allow_inf_nan=False), {"type": "number"}),
    bool: (core_schema.bool_schema(), {"type": "boolean"}),
}


@lru_cache(maxsize=2048)
def _compile_plain_type(hint: Any, hint_text: str) -> tuple[CoreSchema, JsonSchemaValue] | None:
    """Compile a self-contained type: no class of its own, no shared definitions, no decimal.

    `hint_text` is part of the cache key: unions that differ only in order are equal, but must not share a schema.
    """
    del hint_text
    if hint in _SCALARS:
        return _SCALARS[hint]
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint, config=_CONFIG)
        generator = _SchemaGenerator(by_alias=True)
        schema = generator.generate(adapter.core_schema, "validation")
    except (*_SCHEMA_ERRORS, SchemaError):
        return None
    self_contained = (
        "$defs" not in schema
        and "$ref" not in repr(schema)
        and not generator.class_names
        and not generator.has_decimals
    )
    is_named_tuple = hasattr(hint, "_fields")  # a NamedTuple, which has its own definition like other classes
    return (adapter.core_schema, schema) if self_contained and not is_named_tuple and adapt_hint(hint) is hint else None


@lru_cache(maxsize=1024)
def compile_return(hint: Any) -> TypeSchema | None:
    """Return the schema and serializer of a return type, or None if it has none."""
    try:
        return compile_type(hint, "serialization")
    except (UnsupportedType, SchemaError):
        return None
