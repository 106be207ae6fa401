"""Add the fields of a model to a tool's schema, and pass their values to a callback instead of the tool."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pydantic_core import from_json, to_json
from typing_extensions import override

from toolmason._core.define.context import ToolContext
from toolmason._core.define.inputs import CombinedMismatch, Inputs, schema_compiler
from toolmason._core.define.schema_nodes import TypeSchema, resolve_root
from toolmason._core.define.tool import CompiledTool, LazyTool, RenamedTool, Tool, compile_tool
from toolmason._core.run.execute import call_user_function
from toolmason._core.values.definition import JsonSchema, ToolDefinition
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import ToolCall
from toolmason._wire import parse_json
from toolmason.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class AugmentedCall:
    """Argument of an `on_arguments=` callback, which runs before the tool."""

    definition: ToolDefinition
    """The tool's original definition, without the extra fields."""
    arguments: Any
    """The extra fields, as an instance of the augmenting model."""
    raw: Any
    """All arguments as received."""


ArgumentsCallback = Callable[[AugmentedCall], Any]


class AugmentedTool(RenamedTool):
    """A tool with extra fields in its schema."""

    def __init__(self, tool: Tool, extra: TypeSchema, on_arguments: ArgumentsCallback | None, *, keep: bool) -> None:
        super().__init__(tool, tool.name)
        self.callback = on_arguments
        self.extra_schema = extra
        self.change = (extra, on_arguments, keep)
        schema, self.extra_names = _extend_schema(tool, compile_tool(tool).inputs.schema, extra)
        self.keep = keep
        self.definition = replace(tool.definition, input_schema=schema)
        self.extra_key = f"__augmented_{id(self):x}__"

    @override
    def _compile(self) -> CompiledTool:
        original = compile_tool(self.tool)
        inputs = original.inputs.change(self._change_inputs)
        # Not called directly: `_fill` removes the extra fields.
        return replace(original, inputs=inputs, plain_function=None, on_arguments=self, fill=self._fill)

    def _change_inputs(self, inputs: Inputs) -> dict[str, Any]:
        def validate_json(text: str | bytes, **options: Any) -> Any:
            return validate(parse_json(text), **options)

        validate = partial(self._validate, inputs)
        return {
            "schema": self.definition.input_schema,
            "validate_json": validate_json,
            "validate_python": validate,
            "enum_names": {**inputs.enum_names, **self.extra_schema.enum_names},
        }

    def _validate(self, inputs: Inputs, values: Any, **options: Any) -> Any:
        if not isinstance(values, Mapping):
            raise ValueError("the arguments must be a JSON object")  # noqa: TRY004 - refused as invalid arguments are
        extra = {name: values[name] for name in self.extra_names if name in values}
        own = {name: value for name, value in values.items() if name not in self.extra_names}
        errors: list[ValueError] = []
        validated: list[Any] = []
        for validate, part in (
            (self.extra_schema.validator.validate_json, extra),
            (inputs.validate_json, own),
        ):
            try:
                validated.append(validate(to_json(part), **options))
            except ValueError as error:
                errors.append(error)
        if errors:
            raise CombinedMismatch(errors)
        extra_model, own_values = validated
        return {**own_values, self.extra_key: (extra_model, extra)}

    def _fill(self, values: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        _, extra = values.pop(self.extra_key)
        # The tool's own values win: an extra field must not replace an injected value.
        original = compile_tool(self.tool)
        kept_extra = extra if self.keep and original.accepts_extra else {}
        return {**kept_extra, **original.fill(values, context)}

    async def notify(self, values: Mapping[str, Any], call: ToolCall, settings: EngineSettings) -> None:
        """Pass the extra fields to the callback."""
        if self.callback is not None:
            given = AugmentedCall(self.tool.definition, values[self.extra_key][0], call.raw)
            await call_user_function(self.callback, given, settings=settings)
        if (listener := compile_tool(self.tool).on_arguments) is not None:
            await listener.notify(values, call, settings)

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        own_arguments = {name: value for name, value in arguments.items() if name not in self.extra_names}
        return await self.tool.invoke(own_arguments, context)


def rename_clashing_definitions(schema: JsonSchema, taken: Mapping[str, Any]) -> JsonSchema:
    """Return a schema whose definitions do not clash with different ones in `taken`."""
    for name, part in schema.get("$defs", {}).items():
        if name in taken and taken[name] != part:
            free_name = next(f"{name}_{number}" for number in itertools.count(2) if f"{name}_{number}" not in taken)
            text = to_json(schema).decode().replace(f'"#/$defs/{name}"', f'"#/$defs/{free_name}"')
            renamed: JsonSchema = from_json(text)
            renamed["$defs"][free_name] = renamed["$defs"].pop(name)
            return rename_clashing_definitions(renamed, taken)
    return schema


def _extend_schema(tool: Tool, own: JsonSchema, extra: TypeSchema) -> tuple[JsonSchema, tuple[str, ...]]:
    """Return the schema of a tool with the extra fields, and their names."""
    extra_schema = rename_clashing_definitions(resolve_root(extra.schema), own.get("$defs", {}))
    if clash := sorted(own.get("properties", {}).keys() & extra_schema.get("properties", {}).keys()):
        raise DefinitionError(
            f"Tool {tool.name!r} ({tool.origin}) already has a parameter {clash[0]!r}. "
            "Rename the field of the augmenting model."
        )
    return _join_schemas(own, extra_schema), tuple(extra_schema.get("properties", {}))


def _join_schemas(own: JsonSchema, extra: JsonSchema) -> JsonSchema:
    joined_schema = {
        **own,
        "properties": {**own.get("properties", {}), **extra.get("properties", {})},
        "required": [*own.get("required", ()), *extra.get("required", ())],
    }
    if defs := {**own.get("$defs", {}), **extra.get("$defs", {})}:
        joined_schema["$defs"] = defs
    return joined_schema


def make_augmenter(model: Any, on_arguments: ArgumentsCallback | None, *, keep: bool) -> Callable[[Tool], Tool]:
    """Return a function that augments a tool.

    Raises:
        DefinitionError: the model is not a model class.
    """
    extra = schema_compiler().compile_type(model) if isinstance(model, type) else None
    if extra is None or resolve_root(extra.schema).get("type") != "object":
        raise DefinitionError(f"augmented({model!r}): the model must be a BaseModel, a dataclass or a TypedDict.")

    def augment(tool: Tool) -> Tool:
        if not isinstance(tool, LazyTool):
            return AugmentedTool(tool, extra, on_arguments, keep=keep)
        schema, _ = _extend_schema(tool, tool.definition.input_schema, extra)
        return tool.with_definition(replace(tool.definition, input_schema=schema), augment)

    return augment


__all__ = ["ArgumentsCallback", "AugmentedCall", "AugmentedTool", "make_augmenter"]
