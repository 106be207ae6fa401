"""Change the arguments of a tool for the model: hide, rename, describe, default and narrow them."""

from __future__ import annotations

import copy
import inspect
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Annotated, Any, Final, get_origin

from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError, from_json, to_json

from toolmason._core.arguments.problems import get_details, make_problems
from toolmason._core.catalog.augmented import rename_clashing_definitions
from toolmason._core.define.context import Inject, ToolContext
from toolmason._core.define.decorators import MISSING, Param
from toolmason._core.define.inputs import (
    CombinedMismatch,
    Inputs,
    compile_schema_inputs,
    schema_compiler,
)
from toolmason._core.define.schema_nodes import SchemaMismatch, iter_subschemas, resolve_root
from toolmason._core.define.signature import Injector, Parameter, make_parameter
from toolmason._core.values.definition import JsonSchema
from toolmason.errors import ArgumentProblem, ConfigError, DefinitionError, InvalidArguments, clip

_COMPARISON_MODULE: Final = "toolmason.build.compare.schema_diff"
"""Module with `compare_schemas(old, new)`. Imported only if an argument is narrowed."""
_NARROWER: Final = frozenset({"narrower", "words", "default"})
_WORDS: Final = ("title", "description", "examples")
RAW_KEY: Final = "__overridden__"
"""Key of the arguments that are validated again when the values of the context are known."""


@dataclass(frozen=True, slots=True, eq=False)
class ArgumentChange:
    """Change of one argument."""

    name: str
    """Name in the original schema."""
    label: str
    """Name that the model uses."""
    description: str | None = None
    examples: tuple[Any, ...] = ()
    default: Any = MISSING
    required: bool | None = None
    schema: JsonSchema | None = None
    """Narrower schema."""
    fixed: Any = MISSING
    """Value that hides the argument."""
    injector: Injector | None = None
    """Function that returns the value of a hidden argument from the context."""

    @property
    def is_hidden(self) -> bool:
        """True if the model does not see the argument."""
        return self.injector is not None or self.fixed is not MISSING

    def change_schema(self, part: Any) -> JsonSchema:
        """Return the schema of the argument as the model sees it, given the original one."""
        original: JsonSchema = dict(part) if isinstance(part, Mapping) else {}
        changed = original
        if self.schema is not None:
            changed = {**{key: original[key] for key in _WORDS if key in original}, **self.schema}
        if self.description is not None:
            changed["description"] = self.description
        if self.examples:
            changed["examples"] = list(self.examples)
        if self.default is not MISSING:
            changed["default"] = self.default
        return changed


def parse_change(tool: str, name: str, given: Any) -> ArgumentChange:
    """Return the change of an argument: a `Param`, a type, `Inject` or a fixed value.

    Raises:
        DefinitionError: the change contradicts itself, or has no JSON form.
    """
    place = f"override({tool!r}): argument {name!r}"
    if given is Inject or (isinstance(given, Inject) and given.key is None):
        given = Inject(name)
    if not isinstance(given, Param | Inject) and not _is_type(given):
        return ArgumentChange(name, name, fixed=_to_plain(given, place))
    hint: Any = Annotated[Any, given] if isinstance(given, Param | Inject) else given
    raw = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
    try:
        parameter = make_parameter(parse_change, raw, hint, None, {})
    except DefinitionError as error:
        reason = str(error).partition(": ")[2]  # without the place of a function
        raise DefinitionError(f"{place} cannot be changed so: {reason}") from error
    if parameter.injector is not None:
        return ArgumentChange(name, name, injector=parameter.injector)
    param = parameter.param
    if param.template or parameter.factory is not None:
        raise DefinitionError(f"{place}: pass a value as the default, not a template or a factory.")
    return ArgumentChange(
        name,
        parameter.label,
        parameter.description,
        tuple(param.examples or ()),
        MISSING if parameter.default is MISSING else _to_plain(parameter.default, place),
        param.required,
        _make_schema(parameter, place),
    )


def _is_type(given: Any) -> bool:
    return isinstance(given, type | types.UnionType) or get_origin(given) is not None


def _to_plain(value: Any, place: str) -> Any:
    try:
        return from_json(to_json(value))
    except ValueError as error:
        raise DefinitionError(f"{place}: {clip(repr(value))} has no JSON form. Pass plain data.") from error


def _make_schema(parameter: Parameter, place: str) -> JsonSchema | None:
    """Return the narrower schema that a change names, or None."""
    if parameter.param.schema is not None:
        from toolmason._core.define.bounded_checks import check_schema  # noqa: PLC0415 - most programs write no schema

        check_schema(parameter.param.schema, f"{place}: its schema")
        return dict(parameter.param.schema)
    if parameter.hint is Any:
        return None
    schema: JsonSchema = resolve_root(schema_compiler().compile_type(parameter.hint).schema)
    return schema


class ArgumentChanges:
    """Changes of the arguments of one tool."""

    def __init__(self, tool: str, given: Mapping[str, Any]) -> None:
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
            raise DefinitionError(f"override({tool!r}): arguments={clip(repr(given))} must be a mapping of changes.")
        self.tool = tool
        self.by_name = {name: parse_change(tool, name, change) for name, change in given.items()}
        self._narrowing: Inputs | None = None
        changes = [change for change in self.by_name.values() if change.schema is not None or change.required]
        if changes:
            narrowed = {"properties": {change.label: change.schema or {} for change in changes}}
            required = [change.label for change in changes if change.required]
            schema = _add_definitions({**narrowed, "required": required})
            self._narrowing = compile_schema_inputs(tool, schema, extra="allow", strict_types=False)
        self._narrowed = frozenset(change.label for change in changes)
        self.injectors = {name: c.injector for name, c in self.by_name.items() if c.injector is not None}
        self.hidden = frozenset(name for name, change in self.by_name.items() if change.is_hidden)
        self._values = {c.name: c.fixed for c in self.by_name.values() if c.fixed is not MISSING}
        self._defaults = {c.name: c.default for c in self.by_name.values() if c.default is not MISSING}
        self._labels = {c.name: c.label for c in self.by_name.values() if c.label != c.name}
        self._names = {label: name for name, label in self._labels.items()}
        narrowing = None if self._narrowing is None else self._narrowing.schema
        plain_changes = to_json([self._values, self._defaults, self._labels, narrowing])
        self.key = (plain_changes, *self.injectors.items())
        """Key that is equal for changes with one effect on the arguments."""
        self._dropped = (self.hidden | self._labels.keys()) - self._names.keys()

    def __bool__(self) -> bool:
        return bool(self.by_name)

    def _get_label(self, name: str) -> str:
        return self._labels.get(name, name)

    # --- the definition ------------------------------------------------------------------------

    def check(self, schema: JsonSchema) -> None:
        """Raise `DefinitionError` if the changes do not fit the schema of a tool."""
        if not self:
            return
        properties = schema.get("properties", {})
        if unknown := self.by_name.keys() - properties.keys():
            known = ", ".join(properties) or "none"
            raise DefinitionError(
                f"override({self.tool!r}): the tool has no parameter {min(unknown)!r}. Parameters: {known}."
            )
        labels: dict[str, str] = {}
        for name in properties:
            label = self._get_label(name)
            if name not in self.hidden and labels.setdefault(label, name) != name:
                raise DefinitionError(
                    f"override({self.tool!r}): two parameters are named {label!r}: {labels[label]!r} and {name!r}."
                )
        references = [str(node.get("$ref", "")) for node in iter_subschemas(schema)]
        if any(reference.startswith("#/properties/") for reference in references):
            raise DefinitionError(
                f"override({self.tool!r}): its schema refers to the schema of a parameter, so no parameter can be "
                "changed. Change its options and its description only."
            )
        for change in self.by_name.values():
            if change.required is False and change.name in schema.get("required", ()) and change.default is MISSING:
                raise DefinitionError(
                    f"override({self.tool!r}): the tool requires {change.name!r}, so it needs a default to be optional."
                )

    def check_types(self, schema: JsonSchema) -> None:
        """Check that the types of the changes are narrower than those of a schema.

        Raises:
            DefinitionError: a type is not narrower, or the schema is too complex to tell.
        """
        for change in self.by_name.values():
            if change.schema is not None:
                self._check_narrower(change, schema)

    def _check_narrower(self, change: ArgumentChange, schema: JsonSchema) -> None:
        if change.name not in schema.get("properties", ()):
            raise DefinitionError(f"override({self.tool!r}): the schema is too complex to narrow {change.name!r}.")
        part = schema["properties"][change.name]
        original = {"$defs": schema.get("$defs", {}), **part} if isinstance(part, Mapping) else {}
        for difference in import_module(_COMPARISON_MODULE).compare_schemas(original, change.schema):
            if difference.effect not in _NARROWER:
                raise DefinitionError(
                    f"override({self.tool!r}): the type of {change.name!r} is not narrower than the original one: "
                    f"{difference.path}: {difference.message}."
                )

    def check_values(self, inputs: Inputs) -> None:
        """Raise `DefinitionError` if a fixed value or a default does not fit the compiled inputs of a tool."""
        values = {**self._defaults, **self._values}
        if not values:
            return
        try:
            inputs.validate_json(to_json(values), strict=True)
        except ValueError as error:
            for path, message, _, _ in make_problems(error, get_details(error), values):
                name = _find_name(path, values)
                if name is not None:  # without the value, which may be a secret
                    raise DefinitionError(
                        f"override({self.tool!r}): the value of {name!r} does not fit {path}: {message}."
                    ) from None

    def change_schema(self, schema: JsonSchema) -> JsonSchema:
        """Return the schema of a tool as the model sees it. Names that the schema does not have are ignored."""
        properties: JsonSchema = {}
        required = [*schema.get("required", ())]
        for name, part in schema.get("properties", {}).items():
            change = self.by_name.get(name)
            if change is None:
                properties[name] = part
            elif not change.is_hidden:
                properties[change.label] = change.change_schema(part)
            if change is not None and (change.is_hidden or change.default is not MISSING or change.required is False):
                required = [other for other in required if other != name]
            elif change is not None and change.required and name not in required:
                required.append(name)
        names = list(map(self._get_label, required))
        return _prune_definitions(_add_definitions({**schema, "properties": properties, "required": names}))

    def change_parameters(self, parameters: tuple[Parameter, ...]) -> tuple[Parameter, ...]:
        """Return the parameters of a function under their names in the view."""
        return tuple(map(self._change_parameter, parameters))

    def _change_parameter(self, parameter: Parameter) -> Parameter:
        change = self.by_name.get(parameter.label)
        if change is None:
            return parameter
        if change.is_hidden:
            return replace(parameter, injector=change.injector or (lambda _: change.fixed))
        return replace(parameter, param=replace(parameter.param, name=change.label))

    # --- values --------------------------------------------------------------------------------

    def to_original(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments of the model under the original names, with defaults and fixed values."""
        renamed = {self._names.get(key, key): value for key, value in values.items() if key not in self._dropped}
        return {**self._defaults, **renamed, **self._values}

    def complete(self, values: Mapping[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        """Return arguments of the model as the original tool gets them, with the values of the context."""
        return {**self.to_original(values), **{name: inject(context) for name, inject in self.injectors.items()}}

    def validate(self, inputs: Inputs, values: Any, **options: Any) -> dict[str, Any]:
        """Validate arguments of the model against the narrowed types, then with the inputs of the original tool.

        Raises:
            ValueError: they are invalid. The error names the arguments as the model does.
        """
        if not isinstance(values, Mapping):
            raise ValueError("the arguments must be a JSON object")  # noqa: TRY004 - validators raise ValueError
        errors: list[ValueError] = []
        validated: dict[str, Any] = {}
        if self._narrowing is not None:
            try:
                self._narrowing.validate_python({key: values[key] for key in self._narrowed if key in values})
            except ValueError as error:
                errors.append(error)
        own = self.to_original(values)
        try:
            validated = inputs.validate_json(to_json(own), **options)
        except ValueError as error:
            errors.extend(self._relabel(error))
        if errors:
            raise CombinedMismatch(errors) if len(errors) > 1 else errors[0]
        return {**own, RAW_KEY: own} if self.injectors else validated

    def get_hidden_values(self, context: ToolContext[Any], own: ToolContext[Any] | None) -> list[Any]:
        """Return the values of hidden arguments, without those that the contexts lack."""
        values = list(self._values.values())
        for inject in self.injectors.values():
            with suppress(Exception):  # the error of the call says so
                values.append(inject(context.merge(own)))
        found: list[Any] = []
        with suppress(Exception):  # a value of the application that contains itself, or cannot be written
            found.extend(_iter_strings(values))
        return found

    def inject(self, inputs: Inputs, values: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        """Return validated values with those of the context.

        Raises:
            ConfigError: the context has no value, or one that does not fit.
        """
        if not self.injectors:
            return values
        injected = {name: inject(context) for name, inject in self.injectors.items()}
        try:
            return inputs.validate_json(to_json({**values[RAW_KEY], **injected}), strict=True)  # type: ignore[no-any-return]
        except ValueError as error:
            problem = make_problems(error, get_details(error), injected)[0]
            raise ConfigError(
                f"override({self.tool!r}): the value of the context does not fit {problem.path}: {problem.message}."
            ) from None

    def relabel_error(self, error: InvalidArguments) -> InvalidArguments:
        """Return the error of a server with the names that the model uses."""
        if not error.problems:
            return error
        error = copy.copy(error)
        error.problems = tuple(ArgumentProblem(self._relabel_path(path), *rest) for path, *rest in error.problems)
        error.message = str(InvalidArguments(error.problems))
        error.args = (error.message,)
        return error

    def _relabel_path(self, path: str) -> str:
        name = _find_name(path, self._labels)
        return path if name is None else f"$.{self._labels[name]}{path[len(name) + 2 :]}"

    def _relabel(self, error: ValueError) -> Iterator[ValueError]:
        """Yield the parts of an error with the names that the model uses, without those about hidden arguments."""
        if isinstance(error, CombinedMismatch):
            for part in error.errors:
                yield from self._relabel(part)
        elif isinstance(error, ValidationError):
            hidden = {(name,) for name in self.hidden}
            items = error.errors(include_url=False)
            details = [self._relabel_details(item) for item in items if item["loc"][:1] not in hidden]
            if details:
                yield ValidationError.from_exception_data(error.title, details)
        elif isinstance(error, SchemaMismatch) and error.errors:
            if relabelled := [item for item in error.errors if self._relabel_item(item)]:
                yield SchemaMismatch(relabelled, error.schema)
        else:
            yield error

    def _relabel_details(self, item: Any) -> InitErrorDetails:
        label = tuple(map(self._get_label, item["loc"][:1]))
        # The message is complete, whatever the type.
        error_type = PydanticCustomError(item["type"], item["msg"])
        return InitErrorDetails(type=error_type, loc=(*label, *item["loc"][1:]), input=item["input"])

    def _relabel_item(self, item: Any) -> bool:
        """Change the names in an error of jsonschema. Return False if it is about a hidden argument."""
        path = item.relative_path
        if path:
            name = path[0]
            path[0] = self._get_label(name)
            return name not in self.hidden
        if item.validator != "required":
            return True
        texts = {f"{name!r} is a required property": name for name in item.validator_value}
        missing = texts.get(item.message, "")
        item.validator_value = [label := self._get_label(missing)]
        item.message = f"{label!r} is a required property"
        return missing not in self.hidden


def _iter_strings(value: Any) -> Iterator[Any]:
    """Yield the strings of a hidden value at any depth, as an error may show them. None and booleans hide nothing."""
    if isinstance(value, Mapping):
        value = [*value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _iter_strings(item)
    elif isinstance(value, str | bytes) or hasattr(type(value), "get_secret_value"):
        yield value
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _find_name(path: str, names: Iterable[str]) -> str | None:
    """Return the one of the names that a path begins with, or None."""
    return next((n for n in names if path == f"$.{n}" or path.startswith((f"$.{n}.", f"$.{n}["))), None)


def _add_definitions(schema: JsonSchema) -> JsonSchema:
    """Move the definitions of narrower parts to the root of a schema."""
    definitions = dict(schema.get("$defs", {}))
    properties: JsonSchema = {}
    for name, part in schema["properties"].items():
        if isinstance(part, Mapping) and "$defs" in part:
            renamed = rename_clashing_definitions(dict(part), definitions)
            definitions.update(renamed["$defs"])
            properties[name] = {key: value for key, value in renamed.items() if key != "$defs"}
        else:
            properties[name] = part
    changed = {**schema, "properties": properties}
    return {**changed, "$defs": definitions} if definitions else changed


def _prune_definitions(schema: JsonSchema) -> JsonSchema:
    """Return a schema without the definitions that only hidden arguments use."""
    definitions = schema.get("$defs")
    if not isinstance(definitions, Mapping):
        return schema
    kept: set[str] = set()
    queue: list[Any] = [{key: value for key, value in schema.items() if key != "$defs"}]
    while queue:
        for node in iter_subschemas(queue.pop()):
            name = str(node.get("$ref", "")).removeprefix("#/$defs/").partition("/")[0]
            if name in definitions and name not in kept:
                kept.add(name)
                queue.append(definitions[name])
    pruned = {key: value for key, value in schema.items() if key != "$defs"}
    return {**pruned, "$defs": {name: definitions[name] for name in definitions if name in kept}} if kept else pruned
