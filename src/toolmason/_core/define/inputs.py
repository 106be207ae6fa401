"""Compile a signature or a hand-written JSON Schema into a tool's schema and validators."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from types import ModuleType
from typing import Any, Final

from pydantic_core import PydanticSerializationError, SchemaValidator, ValidationError, to_json

from toolmason._core.define.decorators import MISSING, Param
from toolmason._core.define.invocation import is_hashable, returns_content
from toolmason._core.define.schema_nodes import (
    EnumNames,
    FieldSpec,
    TypeSchema,
    admits_nan,
    admits_unbounded_depth,
    encode_default,
    find_secret_names,
    get_json_types,
    iter_subschemas,
    resolve_root,
)
from toolmason._core.define.signature import Parameter, Signature, describe_location
from toolmason._core.values.definition import Extra, JsonSchema
from toolmason.errors import DefinitionError, UnsupportedType

_log = logging.getLogger("toolmason")
PROJECT_DIR: Final = "project_dir"
"""Name of the argument that only the application fills."""


class CombinedMismatch(ValueError):
    """Several parts of the arguments are invalid; `errors` has one error per part."""

    def __init__(self, errors: Sequence[ValueError]) -> None:
        super().__init__("the arguments are invalid")
        self.errors = tuple(errors)


@dataclass(frozen=True, eq=False, repr=False)
class Inputs:
    """The compiled inputs of a tool."""

    schema: JsonSchema
    validate_json: Callable[..., Any]
    """Validator from JSON text to values by parameter name; raises ValueError."""
    validate_python: Callable[..., Any]
    extra: Extra = "ignore"
    strict_types: bool = False
    injected: frozenset[str] = frozenset()
    """Names that the application fills; values from the model are ignored."""
    enum_names: EnumNames = field(default_factory=dict)
    validate_strict: Callable[[str], dict[str, Any]] | None = None
    """Strict validator that drops unknown keys. None if unknown keys must be reported."""
    has_decimals: bool = False
    """True if a parameter is a decimal, which pydantic also parses from a string."""
    validator: SchemaValidator | None = None
    """The validator behind `validate_json` and `validate_python`, if both are pydantic's."""
    types: SchemaValidator | None = None
    """The validator of the types of a function, also if other checks stand around it."""
    finish: Callable[[Any], Any] | None = None
    """Last step of these two, after the validator."""
    shows_keys: bool = True
    """False if the values may have keys that the arguments do not have."""
    get_hidden: Callable[..., list[Any]] = lambda *_: []
    """Returns the values that overrides hide from the model, given the context of a toolbox and that of a call."""
    view: Hashable = None
    """Key of the changes that overrides make to the arguments; None if there are none."""
    make_large: Callable[[], Inputs] | None = None
    """Returns the inputs for large arguments, if they do not follow from the validator."""

    @cached_property
    def large(self) -> Inputs:
        """The same inputs for large arguments: they stop at the first problem, and let other threads run."""
        if self.validator is None:
            return self if self.make_large is None else self.make_large()
        patient = schema_compiler().make_patient_validator(self.validator)
        validate_json = _add_step(patient.validate_json, self.finish)
        validate_python = _add_step(patient.validate_python, self.finish)
        return replace(self, validate_json=validate_json, validate_python=validate_python, validate_strict=None)

    def change(self, change: Callable[[Inputs], dict[str, Any]]) -> Inputs:
        """Return these inputs with other validators, for arguments of any size.

        `change` gets inputs, and returns the fields that differ.
        """
        return replace(
            self,
            **change(self),
            validate_strict=None,
            validator=None,
            shows_keys=False,
            make_large=lambda: self.large.change(change),
        )

    @cached_property
    def unbounded_depth(self) -> bool:
        """True if the schema accepts arguments of unbounded depth."""
        return admits_unbounded_depth(self.schema)

    @property
    def _fixed_values(self) -> Iterator[Any]:
        return (item for node in iter_subschemas(self.schema) for item in (*node.get("enum", ()), node.get("const")))

    @cached_property
    def mistakable(self) -> tuple[str, ...]:
        """Words of JSON for values that equal a fixed value of another type: true for 1, and 1 for true."""
        kinds = {type(item) for item in self._fixed_values if isinstance(item, int | float) and item in (0, 1)}
        return (("true", "false") if kinds - {bool} else ()) + (("0", "1") if bool in kinds else ())

    @cached_property
    def words(self) -> frozenset[str]:
        """Strings that may stand for another value, in lower case: of enums, of their names and of booleans."""
        texts = [item for item in self._fixed_values if isinstance(item, str)]
        names = [name for members in self.enum_names.values() for name in members]
        return frozenset({"true", "false", *(text.strip().casefold() for text in texts + names)})

    @cached_property
    def needed_names(self) -> frozenset[str]:
        """Names of the properties, at any depth, for which a null never means "omitted"."""
        names, omittable = set[str](), set[str]()
        for node in iter_subschemas(self.schema):
            parts, required = node.get("properties", {}), node.get("required", ())
            names.update(parts)
            optional = (name for name in parts if name not in required)
            omittable.update(name for name in optional if "null" not in get_json_types(parts[name], self.schema))
        return frozenset(names - omittable)

    @cached_property
    def is_ambiguous(self) -> bool:
        """True if a value may be of another type than the same value in JSON text, as of a date or else a string."""
        return self.types is not None and schema_compiler().has_ambiguous_union(self.types)

    @cached_property
    def secret_names(self) -> frozenset[str]:
        """Names of the fields whose values an error does not show."""
        return find_secret_names(self.schema)

    @cached_property
    def may_hold_nan(self) -> bool:
        """True if the schema accepts NaN."""
        return admits_nan(self.schema)


def compile_inputs(fn: Any, signature: Signature, *, extra: Extra, strict_types: bool, flatten: bool | None) -> Inputs:
    """Compile the inputs of a function.

    Raises:
        DefinitionError: a type has no schema, or a default does not match its type; names the parameter and the fix.
    """
    model_parameters = [parameter for parameter in signature.parameters if parameter.injector is None]
    injected = frozenset(p.label for p in signature.parameters if p.injector is not None)
    if flatten:
        return _compile_flattened(fn, model_parameters, injected, extra=extra, strict_types=strict_types)
    _check_labels(fn, model_parameters)
    for parameter in model_parameters:
        if parameter.param.schema is not None:
            from toolmason._core.define.bounded_checks import check_schema  # noqa: PLC0415 - most programs write no schema

            check_schema(
                parameter.param.schema, f"{describe_location(fn)}: parameter {parameter.name!r}: `Param(schema=...)`"
            )
    accepts_extra = signature.extra_hint is not MISSING
    fields = {parameter.name: _make_field_spec(parameter) for parameter in model_parameters}
    extra_type = None if signature.extra_hint in (MISSING, Any) else signature.extra_hint
    extra_keys: Extra = "allow" if accepts_extra else "forbid"
    if extra == "allow" and not accepts_extra:
        # A function without `**keywords` cannot receive extra keys even if its schema allows them.
        extra_keys = "ignore"
    try:
        compiled = schema_compiler().compile_object(fields, extra_keys, extra_type)
    except UnsupportedType as error:
        raise _make_unsupported_type_error(fn, model_parameters, error) from error
    _check_defaults(fn, model_parameters, compiled)
    finish = partial(_drop_injected, injected) if accepts_extra and injected else None
    return Inputs(
        schema=compiled.schema,
        validate_json=_add_step(compiled.validator.validate_json, finish),
        validate_python=_add_step(compiled.validator.validate_python, finish and partial(finish, is_text=False)),
        extra="allow" if accepts_extra else extra,
        strict_types=strict_types,
        injected=injected,
        enum_names=compiled.enum_names,
        has_decimals=compiled.has_decimals,
        validate_strict=compiled.validate_strict if extra == "ignore" and not accepts_extra else None,
        validator=compiled.validator,
        types=compiled.validator,
        finish=finish,
    )


def _add_step(validate: Callable[..., Any], finish: Callable[[Any], Any] | None) -> Callable[..., Any]:
    return validate if finish is None else lambda raw, **options: finish(validate(raw, **options))


def _drop_injected(injected: frozenset[str], values: dict[str, Any], *, is_text: bool = True) -> dict[str, Any]:
    """Drop injected names, for a function that accepts any keyword. The binder logs those of a mapping."""
    if (sent_names := injected & values.keys()) and is_text:
        _log.warning("ignored %s: the application sets them, a model must not send them", sorted(sent_names))
    return {name: value for name, value in values.items() if name not in sent_names}


def _make_field_spec(parameter: Parameter) -> FieldSpec:
    param = parameter.param
    keywords: dict[str, Any] = {}
    if parameter.description:
        keywords["description"] = parameter.description
    if param.examples:
        keywords["examples"] = list(param.examples)
    if not param.template and parameter.default is not None and parameter.default is not MISSING:
        with suppress(PydanticSerializationError):  # it has no JSON form
            keywords["default"] = encode_default(parameter.default)
    return FieldSpec(parameter.label, parameter.hint, parameter.required, keywords, param.schema)


def _check_labels(fn: Any, model_parameters: Sequence[Parameter]) -> None:
    labels: dict[str, str] = {}
    for parameter in model_parameters:
        other = labels.setdefault(parameter.label, parameter.name)
        if other != parameter.name:
            raise DefinitionError(
                f"{describe_location(fn)}: parameters {other!r} and {parameter.name!r} are both named "
                f"{parameter.label!r}. Give each its own `Param(name=...)`."
            )


def _check_defaults(fn: Any, model_parameters: Sequence[Parameter], compiled: TypeSchema) -> None:
    # Compared by identity: an array of numpy has no truth value after `==`.
    given = [p for p in model_parameters if p.default is not MISSING and p.default is not None and not p.param.template]
    defaults = {p.label: p.default for p in given}
    defaults.update({p.label: None for p in model_parameters if p.default is None and p.param.default is MISSING})
    if not defaults:
        return
    fitting = _find_fitting_defaults(defaults, compiled)
    defaults = {label: value for label, value in defaults.items() if label not in fitting}
    try:
        # Validate as JSON, because a default may use a simpler form: "." for a Path, () for a list.
        compiled.validator.validate_json(_dump_values(defaults), strict=True)
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            if problem["type"] != "missing" and problem["loc"][0] in defaults:
                label = problem["loc"][0]
                fix = "Write `... | None = None`" if defaults[label] is None else "Change the default or the type"
                raise DefinitionError(
                    f"{describe_location(fn)}: the default {defaults[label]!r} of parameter {label!r} does not match "
                    f"its type: {problem['msg']}. {fix}."
                ) from error


def _find_fitting_defaults(defaults: Mapping[str, Any], compiled: TypeSchema) -> set[str]:
    """Return the names of the defaults that match their types without conversion."""
    try:
        compiled.validator.validate_python(dict(defaults), strict=True)
    except ValidationError as error:
        misfitting = {str(problem["loc"][0]) for problem in error.errors(include_url=False, include_input=False)}
        return defaults.keys() - misfitting
    return set(defaults)


def _dump_values(values: Mapping[str, Any]) -> bytes:
    serializable: dict[str, Any] = {}
    for name, value in values.items():
        try:
            to_json(value)
        except (PydanticSerializationError, ValueError):
            continue  # no JSON form: the model can never send it
        serializable[name] = value
    return to_json(serializable)


def _make_unsupported_type_error(
    fn: Any, model_parameters: Sequence[Parameter], error: UnsupportedType
) -> UnsupportedType:
    """Return an error that names the parameter whose type has no schema."""
    for parameter in model_parameters:
        try:
            schema_compiler().compile_type(parameter.hint)
        except UnsupportedType as cause:
            return UnsupportedType(
                f"{describe_location(fn)}: parameter {parameter.name!r} has type {parameter.hint!r}, which "
                f"has no JSON Schema ({cause}). Use a supported type, pass the schema with "
                "`Annotated[Any, Param(schema=...)]`, or inject the value with `Inject`."
            )
    return UnsupportedType(f"{describe_location(fn)}: {error}")


def _compile_flattened(
    fn: Any, model_parameters: Sequence[Parameter], injected: frozenset[str], *, extra: Extra, strict_types: bool
) -> Inputs:
    if len(model_parameters) != 1:
        names = ", ".join(repr(parameter.name) for parameter in model_parameters) or "none"
        raise DefinitionError(
            f"{describe_location(fn)}: flatten=True needs exactly one parameter from the model, a model class; "
            f"got: {names}."
        )
    [parameter] = model_parameters
    if parameter.param != Param():
        raise DefinitionError(
            f"{describe_location(fn)}: the fields of {parameter.name!r} are the arguments, so its `Param(...)` has no "
            "effect. Describe the fields, or remove flatten=True."
        )
    try:
        compiled = schema_compiler().compile_type(parameter.hint)
    except UnsupportedType as error:
        raise _make_unsupported_type_error(fn, model_parameters, error) from error
    schema = resolve_root(compiled.schema)
    if schema.get("type") != "object":
        raise DefinitionError(
            f"{describe_location(fn)}: flatten=True needs a BaseModel, dataclass or TypedDict, not {parameter.hint!r}."
        )
    name = parameter.name
    validator = compiled.validator

    def finish(value: Any) -> dict[str, Any]:
        return {name: value}

    extra_option: dict[str, Any] = {"extra": "forbid"} if extra == "forbid" else {}
    root = {
        "properties": {},
        "required": [],
        **schema,
        "additionalProperties": schema.get("additionalProperties", False),
    }
    return Inputs(
        schema=root,
        validate_json=_add_step(partial(validator.validate_json, **extra_option), finish),
        validate_python=_add_step(partial(validator.validate_python, **extra_option), finish),
        extra=extra,
        strict_types=strict_types,
        injected=injected,
        enum_names=compiled.enum_names,
        has_decimals=compiled.has_decimals,
        validator=validator if not extra_option else None,
        types=validator,
        finish=finish,
    )


def compile_schema_inputs(name: str, schema: Mapping[str, Any], *, extra: Extra, strict_types: bool) -> Inputs:
    """Compile a hand-written JSON Schema.

    Raises:
        DefinitionError: the schema is invalid, or does not describe an object.
    """
    if schema.get("type", "object") != "object":
        raise DefinitionError(f"Tool {name!r}: its input schema has type {schema['type']!r}; it must be 'object'.")
    full_schema: JsonSchema = {"type": "object", "properties": {}, **hide_project_dir(schema)}
    if extra == "forbid":
        full_schema.setdefault("additionalProperties", False)
    from toolmason._core.define.bounded_checks import SchemaChecker  # noqa: PLC0415 - as above

    checker = SchemaChecker(name, full_schema)
    injected = frozenset({PROJECT_DIR})
    finish = partial(_drop_injected, injected)
    return Inputs(
        full_schema,
        _add_step(checker.validate_json, finish),
        _add_step(checker.validate_python, partial(finish, is_text=False)),
        extra=extra,
        strict_types=strict_types,
        injected=injected,
    )


def hide_project_dir(schema: Mapping[str, Any]) -> JsonSchema:
    """Return a hand-written schema without `project_dir`, which the model must not send."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or PROJECT_DIR not in properties:
        return dict(schema)
    hidden = {**schema, "properties": {name: part for name, part in properties.items() if name != PROJECT_DIR}}
    if isinstance(schema.get("required"), list | tuple):
        hidden["required"] = [name for name in schema["required"] if name != PROJECT_DIR]
    return hidden


def narrow_inputs(inputs: Inputs, name: str, schema: Mapping[str, Any]) -> Inputs:
    """Return inputs that validate against a hand-written schema first, then against the function's types."""
    schema_inputs = compile_schema_inputs(name, schema, extra=inputs.extra, strict_types=inputs.strict_types)

    def validate_json(text: str, **options: Any) -> Any:
        schema_inputs.validate_json(text)
        return inputs.validate_json(text, **options)

    def validate_python(value: Any, **options: Any) -> Any:
        schema_inputs.validate_python(value)
        return inputs.validate_python(value, **options)

    return replace(
        inputs,
        schema=schema_inputs.schema,
        validate_json=validate_json,
        validate_python=validate_python,
        validate_strict=None,
        validator=None,
    )


@lru_cache(maxsize=1)
def schema_compiler() -> ModuleType:
    """Return the module `define.schema`, imported on first use."""
    from toolmason._core.define import schema  # noqa: PLC0415 - pydantic's schema generation is the slowest import

    return schema


def compile_return_type(returns: Any) -> TypeSchema | None:
    """Return the schema of a return type, or None if it has none: text, content and unknown types."""
    if returns in (MISSING, Any, None, type(None), str, list, tuple) or returns_content(returns):
        return None
    return schema_compiler().compile_return(returns) if is_hashable(returns) else None


def get_substitutable(parameters: Sequence[Parameter]) -> dict[str, str]:
    """Return the names that a result may expand: those of Python and of the schema, and `project_dir`."""
    expandable = [p for p in parameters if p.injector is None or p.name == PROJECT_DIR]
    return {name: p.name for p in expandable for name in (p.label, p.name)}
