"""Type hints → JSON Schema 2020-12 and a validator.

Lives here: what pydantic makes of a type, in the form that models read best. Not here: which parameters a
function has (`signature`), or what to do with a value that does not fit (`arguments`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, NotRequired, Required, cast

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

from toolmason._core.define.foreign_types import explained, settled
from toolmason._core.define.schema_nodes import EnumNames, FieldSpec, Rest, TypeSchema, subschemas
from toolmason.errors import UnsupportedType

_NO_SCHEMA = (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError, NameError, TypeError)


_NAMES = "x-member-names"


class _Generator(GenerateJsonSchema):
    """Pydantic's generator, without the titles that repeat names, and with numbers for decimals."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.classes: set[str] = set()
        self.decimals = False

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        # Fields stay in the order the developer wrote; it is stable, and it reads better.
        del parent_key
        return value

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        if self.mode == "serialization":
            return super().decimal_schema(schema)
        self.decimals = True
        result: JsonSchemaValue = {"type": "number"}
        bounds = {"ge": "minimum", "le": "maximum", "gt": "exclusiveMinimum", "lt": "exclusiveMaximum"}
        bounds["multiple_of"] = "multipleOf"
        for name, keyword in bounds.items():
            if (bound := schema.get(name)) is not None:
                result[keyword] = float(bound)  # type: ignore[arg-type]  # every bound is a Decimal
        return result

    def encode_default(self, dft: Any) -> Any:
        # A set has another order in each process, and a schema must not.
        shown = super().encode_default(dft)
        return sorted(shown, key=to_json) if isinstance(dft, set | frozenset) else shown

    def enum_schema(self, schema: core_schema.EnumSchema) -> JsonSchemaValue:
        result = super().enum_schema(schema)
        self.classes.add(schema["cls"].__name__)
        values = result.get("enum", [result.get("const")])
        result[_NAMES] = {m.name: v for m, v in zip(schema["members"], values, strict=False)}
        return result

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        self.classes.add(schema["cls"].__name__)
        return super().model_schema(schema)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        self.classes.add(getattr(schema.get("cls"), "__name__", ""))
        return super().typed_dict_schema(schema)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        self.classes.add(schema["cls"].__name__)
        return super().dataclass_schema(schema)

    def finish(self, schema: JsonSchemaValue) -> EnumNames:
        """Drop titles that only repeat a class's name; return the member names of each enum in the schema."""
        names: EnumNames = {}
        for node in subschemas(schema):
            if node.get("title") in self.classes:
                del node["title"]
            if node.get("description") == "An enumeration.":
                del node["description"]
            if (members := node.pop(_NAMES, None)) is not None:
                names[id(node)] = members
        return names


def compile_type(hint: Any, mode: JsonSchemaMode = "validation") -> TypeSchema:
    """Return the schema and validator of a type.

    Raises:
        UnsupportedType: the type has no JSON Schema; the cause says why.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(explained(hint))
        generator = _Generator(by_alias=True)
        schema = settled(generator.generate(adapter.core_schema, mode))
    except _NO_SCHEMA as error:
        raise UnsupportedType(str(error).split("\n", 1)[0]) from error
    validator = cast("SchemaValidator", adapter.validator)
    names = generator.finish(schema)
    if mode == "validation":
        return TypeSchema(schema, validator, adapter.serializer, names, decimals=generator.decimals)
    core = repr(adapter.core_schema)
    aliased, says_nan = "serialization_alias" in core, "ser_json_inf_nan" in core
    return TypeSchema(schema, validator, adapter.serializer, names, aliased=aliased, says_nan=says_nan)


_CONFIG = ConfigDict(allow_inf_nan=False)
_SERIALIZER = SchemaSerializer(core_schema.any_schema())


def compile_object(fields: Mapping[str, FieldSpec], extra: Rest, extra_items: Any = None) -> TypeSchema:
    """Return the schema and validator of an object with these fields; what it reads has Python's names."""
    if extra_items is None and (plain := _plain_object(fields, extra)) is not None:
        return plain
    options = {} if extra_items is None else {"extra_items": extra_items}
    make: Any = TypedDict  # the functional form, from names known at run time, which no checker follows
    kind = make("Arguments", {name: _annotated(name, spec) for name, spec in fields.items()}, **options)
    kind.__pydantic_config__ = {**_CONFIG, "extra": extra}
    try:
        compiled = compile_type(kind)
    except SchemaError:
        # Only where a pattern needs it: Python's engine has look-around, and no bound on the time that it takes.
        kind.__pydantic_config__ = {**_CONFIG, "extra": extra, "regex_engine": "python-re"}
        try:
            compiled = compile_type(kind)
        except SchemaError as error:
            raise UnsupportedType(" ".join(str(error).split())) from error
    schema = {"type": "object", "properties": {}, "required": [], **compiled.schema}
    if extra_items is None:
        schema["additionalProperties"] = extra != "forbid"
    if defs := schema.pop("$defs", None):
        schema["$defs"] = defs
    return replace(compiled, schema=schema)


def _annotated(name: str, spec: FieldSpec) -> Any:
    more = {word: value for word, value in spec.words.items() if word != "default"}
    if "default" in spec.words:
        more["json_schema_extra"] = {"default": spec.words["default"]}
    if spec.label != name:
        more["alias"] = spec.label
    hint = explained(spec.hint)
    if spec.schema is not None:
        hint = Annotated[hint, WithJsonSchema(dict(spec.schema))]
    if more:
        hint = Annotated[hint, Field(**more)]
    return Required[hint] if spec.required else NotRequired[hint]


def _plain_object(fields: Mapping[str, FieldSpec], extra: Rest) -> TypeSchema | None:
    """Put an object together from types that were compiled before; `None` where one of them needs the long way.

    Most parameters are texts, numbers and lists of them: compiling each such type once makes a tool half as dear.
    """
    core: dict[str, core_schema.TypedDictField] = {}
    properties: dict[str, Any] = {}
    for name, spec in fields.items():
        try:
            known = None if spec.schema is not None else _plain_type(spec.hint, repr(spec.hint))
        except TypeError:  # a hint that cannot be hashed
            known = None
        if known is None:
            return None
        alias = None if spec.label == name else spec.label
        core[name] = core_schema.typed_dict_field(known[0], required=spec.required, validation_alias=alias)
        properties[spec.label] = {**known[1], **spec.words}
    whole = core_schema.typed_dict_schema(core, extra_behavior=extra)
    # Saying "strict" with each call, and looking for strange names, are each a tenth of reading small arguments.
    loose = core_schema.typed_dict_schema(core, extra_behavior="ignore", config={"strict": True})
    schema = {
        "type": "object",
        "properties": properties,
        "required": [spec.label for spec in fields.values() if spec.required],
        "additionalProperties": extra != "forbid",
    }
    try:
        return TypeSchema(schema, SchemaValidator(whole), _SERIALIZER, skim=SchemaValidator(loose).validate_json)
    except SchemaError:  # a pattern that only Python's engine knows
        return None


_SCALARS: dict[Any, tuple[CoreSchema, JsonSchemaValue]] = {
    str: (core_schema.str_schema(), {"type": "string"}),
    int: (core_schema.int_schema(), {"type": "integer"}),
    float: (core_schema.float_schema(allow_inf_nan=False), {"type": "number"}),
    bool: (core_schema.bool_schema(), {"type": "boolean"}),
}


@lru_cache(maxsize=2048)
def _plain_type(hint: Any, written: str) -> tuple[CoreSchema, JsonSchemaValue] | None:
    """Compile a type that stands by itself: no class of its own, nothing shared, no decimal.

    `written` is the hint as text: unions that differ only in order are equal, and must not share a schema.
    """
    del written
    if hint in _SCALARS:
        return _SCALARS[hint]
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(hint, config=_CONFIG)
        generator = _Generator(by_alias=True)
        schema = generator.generate(adapter.core_schema, "validation")
    except (*_NO_SCHEMA, SchemaError):
        return None
    alone = "$defs" not in schema and "$ref" not in repr(schema) and not generator.classes and not generator.decimals
    own_class = hasattr(hint, "_fields")  # a NamedTuple, which has a definition of its own like other classes
    return (adapter.core_schema, schema) if alone and not own_class and explained(hint) is hint else None


@lru_cache(maxsize=1024)
def compile_return(hint: Any) -> TypeSchema | None:
    """Return the schema and serializer of a return type, or `None` where it has none."""
    try:
        return compile_type(hint, "serialization")
    except (UnsupportedType, SchemaError):
        return None


__all__ = ["compile_object", "compile_return", "compile_type"]
