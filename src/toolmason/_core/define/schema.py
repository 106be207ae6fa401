"""Compile type hints to JSON Schema 2020-12 and a validator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from inspect import cleandoc
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple, NotRequired, TypeAlias, cast, get_args, get_origin

from pydantic import (
    ConfigDict,
    Field,
    PydanticSchemaGenerationError,
    PydanticUserError,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema, SchemaError, SchemaSerializer, SchemaValidator, core_schema

from toolmason._core.define.field_metadata import (
    Node,
    apply_field_metadata,
    change_nodes,
    get_class_text,
    iter_nodes,
    make_validator,
)
from toolmason._core.define.foreign_types import adapt_hint, make_typed_dict, restore_struct_refs, support_typed_dicts
from toolmason._core.define.schema_nodes import EnumNames, FieldSpec, TypeSchema, encode_default, iter_subschemas
from toolmason._core.values.definition import Extra
from toolmason.errors import UnsupportedType

_SCHEMA_ERRORS = (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError, NameError, TypeError)
_MEMBER_NAMES_KEY = "x-member-names"


class _SchemaGenerator(GenerateJsonSchema):
    """Pydantic's generator without titles that repeat names, and with numbers for decimals."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.class_names: set[str] = set()
        self.has_decimals = False
        self.ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

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
        return super().encode_default(dft) if self.mode == "serialization" else encode_default(dft)

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
    adapter, core, generator, schema = _generate(hint, mode)
    validator = cast("SchemaValidator", adapter.validator) if core is adapter.core_schema else make_validator(core)
    core_text = repr(adapter.core_schema) if mode == "serialization" else ""
    return TypeSchema(
        schema,
        validator,
        adapter.serializer,
        generator.finish(schema),
        has_aliases="serialization_alias" in core_text,
        has_decimals=generator.has_decimals,
        writes_nan="ser_json_inf_nan" in core_text,
    )


def _generate(
    hint: Any, mode: JsonSchemaMode, *, is_object: bool = False
) -> tuple[TypeAdapter[Any], CoreSchema, _SchemaGenerator, JsonSchemaValue]:
    """Return the adapter of a type, its core schema with the metadata of fields, and its JSON Schema.

    `is_object` says that the type was made for its fields, so that it has no metadata of its own.
    """
    try:
        adapter = _adapt(hint)
        if is_object:  # otherwise a table of classes keeps it
            core: Any = adapter.core_schema
            (core["schema"] if core["type"] == "definitions" else core).pop("cls")
        core = apply_field_metadata(adapter.core_schema, sets_values=mode == "validation")
        generator = _SchemaGenerator(by_alias=True)
        schema = restore_struct_refs(generator.generate(core, mode))
        return adapter, core if mode == "serialization" else _refuse_numbers_as_dates(core), generator, schema
    except _SCHEMA_ERRORS as error:
        raise UnsupportedType(str(error).split("\n", 1)[0]) from error


def _adapt(hint: Any) -> TypeAdapter[Any]:
    adapted = adapt_hint(hint)
    try:
        return TypeAdapter(adapted)
    except PydanticUserError as error:
        if error.code != "typed-dict-version":
            raise
    support_typed_dicts(adapted)
    return TypeAdapter(adapted)


_DATES: Final = {"date": "2024-01-31", "datetime": "2024-01-31T15:30:00Z"}
"""Types of core schemas that pydantic also reads from a number in text, as seconds since 1970, each with an example."""
_IS_NUMBER: Final = SchemaValidator(core_schema.str_schema(pattern=r"^[-+]?\d*\.?\d*$")).isinstance_python


def _refuse_numbers_as_dates(core: CoreSchema) -> CoreSchema:
    """Return a core schema that reads no date from text that is only a number; the same object if it has no date."""

    def change(node: Node) -> None:
        if (example := _DATES.get(node["type"])) is None:
            return
        # A union of one choice, because it passes the value on as it is: JSON stays JSON.
        checked = core_schema.tagged_union_schema(
            {False: cast("Any", {key: value for key, value in node.items() if key != "ref"})},
            _IS_NUMBER,
            custom_error_type="number_as_date",
            custom_error_message=f"Input should be a valid {node['type']}, such as {example}, not a number",
            ref=node.get("ref"),
        )
        node.clear()
        node.update(cast("Any", checked))

    has_dates = any(node["type"] in _DATES for node in iter_nodes(core, {}))
    return cast("CoreSchema", change_nodes(core, change)) if has_dates else core


# --- other validators of a type ----------------------------------------------------------------

_COLLECTIONS: Final = frozenset({"list", "tuple", "set", "frozenset", "dict"})
_QUICK_TYPES: Final = frozenset({"int", "float", "bool", "str", "none", "any", "literal"})
"""Types of which a million values are validated in a tenth of a second."""


def make_patient_validator(validator: SchemaValidator) -> SchemaValidator:
    """Return a validator for large values, which stops at the first wrong item of a collection.

    It runs a Python function for each item that takes long, because pydantic lets no other thread run until it ends.
    """

    def change(node: Node) -> None:
        if node["type"] not in _COLLECTIONS:
            return
        node["fail_fast"] = True
        for key in ("items_schema", "keys_schema"):
            inner = node.get(key)
            # The items of a tuple have a schema each.
            if isinstance(inner, dict) and (key == "keys_schema" or inner["type"] not in _QUICK_TYPES):
                node[key] = core_schema.no_info_after_validator_function(lambda value: value, cast("Any", inner))

    core, config = read_core_schema(validator)
    return make_validator(change_nodes(core, change), config)


def make_lenient_validator(validator: SchemaValidator) -> SchemaValidator:
    """Return a validator whose TypedDicts drop unknown keys."""

    def change(node: Node) -> None:
        if node["type"] == "typed-dict":
            node["extra_behavior"] = "ignore"

    core, config = read_core_schema(validator)
    return make_validator(change_nodes(core, change), config)


def read_core_schema(validator: SchemaValidator) -> tuple[Any, Any]:
    """Return the core schema and the configuration of a validator."""
    core, config, *_ = cast("Any", validator.__reduce__())[1]  # pydantic-core pickles them
    return core, config


_JSON_NODES: Final = _QUICK_TYPES | {"list", "dict", "nullable", "union", "default", "definition-ref", "typed-dict"}
"""Types whose values are the same in Python and in JSON."""


def has_ambiguous_union(validator: SchemaValidator) -> bool:
    """Return True if a union has a type whose values differ between Python and JSON, such as a date, besides null."""
    core, _ = read_core_schema(validator)
    references = {node["ref"]: node for node in iter_nodes(core, {}) if "ref" in node}
    inner = (part for node in iter_nodes(core, {}) if node["type"] == "union" for part in iter_nodes(node, references))
    return any(node["type"] not in _JSON_NODES for node in inner)


_CONFIG = ConfigDict(allow_inf_nan=False)
_SERIALIZER = SchemaSerializer(core_schema.any_schema())


def compile_object(fields: Mapping[str, FieldSpec], extra: Extra, extra_items: Any = None) -> TypeSchema:
    """Return the schema and validator of an object with these fields. Validated values use Python's names."""
    if extra_items is None and (types := _find_field_types(fields.values(), extra)) is not None:
        joined = _join_fields(fields, types, extra)
        if joined is not None:
            return joined
    options = {} if extra_items is None else {"extra_items": extra_items}
    config: ConfigDict = {**_CONFIG, "extra": extra}
    hints = {name: _annotate(name, spec) for name, spec in fields.items()}
    try:
        compiled = compile_type(_make_arguments_type(hints, config, **options))
    except SchemaError:
        # Only if a pattern needs it: Python's engine supports look-around, but its run time is unbounded.
        try:
            compiled = compile_type(_make_arguments_type(hints, {**config, "regex_engine": "python-re"}, **options))
        except SchemaError as error:
            raise UnsupportedType(" ".join(str(error).split())) from error
    schema = {"type": "object", "properties": {}, "required": [], **compiled.schema}
    if extra_items is None:
        schema["additionalProperties"] = extra != "forbid"
    if defs := schema.pop("$defs", None):
        schema["$defs"] = defs
    return replace(compiled, schema=schema)


def _make_arguments_type(hints: Mapping[str, Any], config: ConfigDict, **options: Any) -> Any:
    arguments_type = make_typed_dict("Arguments", dict(hints), **options)
    arguments_type.__pydantic_config__ = config
    return arguments_type


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


# --- types that fields share -------------------------------------------------------------------


class _FieldType(NamedTuple):
    """A compiled type of a field, for every object with such a field: the tools of a program share most types."""

    core: CoreSchema
    schema: JsonSchemaValue
    is_plain: bool = True
    """True if it names no class with fields, so that the strict setting of an object applies to all of it."""
    core_definitions: Sequence[Any] = ()
    definitions: Mapping[str, JsonSchemaValue] = MappingProxyType({})
    enum_names: Mapping[int, dict[str, Any]] = MappingProxyType({})
    is_changed: bool = False
    """True if the validators that models have of their own do not apply."""


_FieldTypes: TypeAlias = dict[Any, _FieldType | None]
"""Compiled types by key; None for a type that only compiles together with its object."""
_PLAIN_MODULES: Final = frozenset({"builtins", "datetime", "uuid", "pathlib", "ipaddress", "re", "collections.abc"})
_MAX_FIELD_TYPES: Final = 2048
_SCALARS: Final[Mapping[Any, _FieldType]] = {
    str: _FieldType(core_schema.str_schema(), {"type": "string"}),
    int: _FieldType(core_schema.int_schema(), {"type": "integer"}),
    float: _FieldType(core_schema.float_schema(allow_inf_nan=False), {"type": "number"}),
    bool: _FieldType(core_schema.bool_schema(), {"type": "boolean"}),
}
_field_types: _FieldTypes = {}
_BARE_FIELD: Final = Field()
_FIELD_OPTIONS: Final = [
    name for name in FieldInfo.__slots__ if not name.startswith("_") and name not in ("description", "metadata")
]


def _find_field_types(specs: Iterable[FieldSpec], extra: Extra) -> list[_FieldType] | None:
    """Return the compiled type of each field, or None if one of them only compiles together with its object."""
    keys: list[Any] = []
    for spec in specs:
        hint = _strip_descriptions(spec.hint)
        if spec.schema is not None or hint is None:
            return None
        keys.append(hint if isinstance(hint, type) and hint in _SCALARS else _make_key(hint, extra))
    try:
        known = {key: _SCALARS.get(key) or _field_types[key] for key in keys if key in _SCALARS or key in _field_types}
        if missing := {key: key[0] for key in keys if key not in known}:
            known |= _compile_field_types(missing, extra)
    except (TypeError, UnsupportedType):  # an unhashable hint, or a type without a schema
        return None
    found = [known[key] for key in keys]
    return None if any(kind is None for kind in found) else cast("list[_FieldType]", found)


def _make_key(hint: Any, extra: Extra) -> tuple[Any, ...]:
    # Unions that differ only in order are equal, but must not share a schema. A model may be built again.
    validators = tuple(getattr(kind, "__pydantic_validator__", None) for kind in _iter_classes(hint))
    return hint, repr(hint), extra, validators


def _strip_descriptions(hint: Any) -> Any:
    """Return a hint with the constraints of each `Field(...)` in its place; None if one has other options.

    The schema of a field takes its description from elsewhere, and the constraints alone are the same in many tools.
    """
    if get_origin(hint) is not Annotated or not any(isinstance(mark, FieldInfo) for mark in hint.__metadata__):
        return hint
    marks: list[Any] = []
    for mark in hint.__metadata__:
        if not isinstance(mark, FieldInfo):
            marks.append(mark)
        elif all(getattr(mark, name) == getattr(_BARE_FIELD, name) for name in _FIELD_OPTIONS):
            marks.extend(mark.metadata)
        else:
            return None
    if not marks:
        return hint.__origin__
    stripped: Any = Annotated[(hint.__origin__, *marks)]
    # `typing` keeps such hints and returns one that is equal, perhaps with a union in another order.
    is_same = repr(stripped.__origin__) == repr(hint.__origin__) and repr(stripped.__metadata__) == repr(tuple(marks))
    return stripped if is_same else None


def _iter_classes(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and get_origin(hint) is None:
        yield hint
    elif get_origin(hint) is Annotated:
        yield from _iter_classes(hint.__origin__)
    elif get_origin(hint) is not Literal:
        for inner in get_args(hint):
            yield from _iter_classes(inner)


def _compile_field_types(hints: Mapping[Any, Any], extra: Extra) -> _FieldTypes:
    """Compile types together, which costs less than one by one, and keep them."""
    compiled: _FieldTypes
    if (types := _compile_together(list(hints.values()), extra)) is not None:
        compiled = dict(zip(hints, types, strict=True))
    elif len(hints) > 1:
        return {key: found for one in hints.items() for key, found in _compile_field_types(dict([one]), extra).items()}
    else:
        compiled = dict.fromkeys(hints)
    while len(_field_types) >= _MAX_FIELD_TYPES:
        _field_types.pop(next(iter(_field_types)), None)
    _field_types.update(compiled)
    return compiled


def _compile_together(hints: Sequence[Any], extra: Extra) -> list[_FieldType] | None:
    """Return the compiled types, or None if one of them needs its own settings or names."""
    # Not `NotRequired[...]`: `typing` keeps these hints, and unions in another order are equal.
    fields = {f"field_{index}": adapt_hint(hint) for index, hint in enumerate(hints)}
    arguments_type = _make_arguments_type(fields, {**_CONFIG, "extra": extra}, total=False)
    try:
        adapter, core, generator, schema = _generate(arguments_type, "validation", is_object=True)
    except SchemaError:  # a pattern that only Python's engine supports
        return None
    names = generator.finish(schema)
    # Two classes of one name have long names here, but short ones in an object with one of them.
    if generator.has_decimals or any("__" in name for name in schema.get("$defs", ())):
        return None
    parts = _part_fields(core, schema, names, is_changed=core is not adapter.core_schema)
    return [
        part._replace(is_plain=_is_plain(hint) and not part.definitions)
        for hint, part in zip(hints, parts, strict=True)
    ]


def _is_plain(hint: Any) -> bool:
    return all(kind.__module__ in _PLAIN_MODULES for kind in _iter_classes(hint)) and adapt_hint(hint) is hint


def _part_fields(core: Any, schema: JsonSchemaValue, names: EnumNames, *, is_changed: bool) -> Iterator[_FieldType]:
    """Yield the fields of a compiled object, each with the definitions that it refers to."""
    core_definitions = core["definitions"] if core["type"] == "definitions" else ()
    core_fields = core["schema"]["fields"] if core_definitions else core["fields"]
    for name, shown in schema["properties"].items():
        nodes = list(iter_subschemas(shown))
        definitions: dict[str, JsonSchemaValue] = {}
        for node in nodes:  # grows
            label = str(node.get("$ref", "")).removeprefix("#/$defs/")
            if label in schema.get("$defs", ()) and label not in definitions:
                definitions[label] = schema["$defs"][label]
                nodes.extend(iter_subschemas(definitions[label]))
        yield _FieldType(
            core_fields[name]["schema"],
            shown,
            core_definitions=core_definitions
            if core_definitions and "definition-ref" in repr(core_fields[name])
            else (),
            definitions=definitions,
            enum_names={id(node): names[id(node)] for node in nodes if id(node) in names},
            is_changed=is_changed,
        )


def _join_fields(fields: Mapping[str, FieldSpec], types: Sequence[_FieldType], extra: Extra) -> TypeSchema | None:
    """Return an object of compiled fields, or None if two of their classes have one name."""
    core_fields: dict[str, core_schema.TypedDictField] = {}
    properties: dict[str, Any] = {}
    core_definitions: dict[str, CoreSchema] = {}
    definitions: dict[str, JsonSchemaValue] = {}
    enum_names: EnumNames = {}
    for (name, spec), found in zip(fields.items(), types, strict=True):
        alias = None if spec.label == name else spec.label
        core_fields[name] = core_schema.typed_dict_field(found.core, required=spec.required, validation_alias=alias)
        properties[spec.label] = {**found.schema, **spec.keywords}
        if found.definitions:
            if any(definitions.get(label, part) != part for label, part in found.definitions.items()):
                return None
            definitions.update(found.definitions)
        core_definitions |= {part["ref"]: part for part in found.core_definitions}
        enum_names.update(found.enum_names)
    schema = {
        "type": "object",
        "properties": properties,
        "required": [spec.label for spec in fields.values() if spec.required],
        "additionalProperties": extra != "forbid",
    }
    if definitions:
        schema["$defs"] = definitions
    # The types were compiled apart, so their own schemas do not have the configuration.
    config = core_schema.CoreConfig(title="Arguments", allow_inf_nan=False, extra_fields_behavior=extra)
    core: CoreSchema = core_schema.typed_dict_schema(core_fields, extra_behavior=extra, config=config)
    if core_definitions:
        core = core_schema.definitions_schema(core, list(core_definitions.values()))
    validate_strict = None
    if all(found.is_plain for found in types):
        # Passing `strict` with each call and checking for unknown keys each take a tenth of parsing small arguments.
        strict_config = core_schema.CoreConfig(allow_inf_nan=False, strict=True)
        lenient = core_schema.typed_dict_schema(core_fields, extra_behavior="ignore", config=strict_config)
        validate_strict = SchemaValidator(lenient).validate_json
    validator = make_validator(core) if any(found.is_changed for found in types) else SchemaValidator(core)
    return TypeSchema(schema, validator, _SERIALIZER, enum_names, validate_strict=validate_strict)


@lru_cache(maxsize=1024)
def compile_return(hint: Any) -> TypeSchema | None:
    """Return the schema and serializer of a return type, or None if it has none."""
    try:
        return compile_type(hint, "serialization")
    except (UnsupportedType, SchemaError):
        return None
