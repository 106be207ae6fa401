"""Tools with more to say: every schema gets the fields of a model, a callback gets their values, the tool does not.

Lives here: the augmented tool. Everything else about it (options, name, how it runs) is the tool's own.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic_core import from_json, to_json
from typing_extensions import override

from toolmason._core.catalog.lazy import Listed
from toolmason._core.define.context import ToolContext
from toolmason._core.define.inputs import Misfits, machinery
from toolmason._core.define.schema_nodes import TypeSchema, resolved_root
from toolmason._core.define.tool import Renamed, Tool
from toolmason._core.values.definition import JsonSchema, ToolDefinition
from toolmason._core.values.results import ToolCall
from toolmason.errors import DefinitionError


@dataclass(frozen=True, slots=True)
class AugmentedCall:
    """What an `on_arguments=` callback gets, before the tool runs."""

    definition: ToolDefinition
    """The tool's own definition, without the extra fields."""
    arguments: Any
    """The extra fields, as the model class that was given."""
    raw: Any
    """All the arguments, as they came."""


OnArguments = Callable[[AugmentedCall], Any]


class Augmented(Renamed):
    """A tool whose schema has extra fields."""

    def __init__(self, tool: Tool, extra: TypeSchema, on_arguments: OnArguments | None, *, keep: bool) -> None:
        super().__init__(tool, tool.name)
        self.on_arguments = on_arguments
        self.extra_type = extra
        schema, self.names = _extended(tool, tool.inputs.schema, extra)
        self.keep = keep
        self.definition = replace(tool.definition, input_schema=schema)
        self.inputs = replace(
            tool.inputs,
            schema=schema,
            skim=None,
            validate_json=self._validate_json,
            validate_python=self._validate_python,
            enum_names={**tool.inputs.enum_names, **extra.enum_names},
        )
        self.direct, self.listener = None, self
        self.mark = f"__augmented_{id(self):x}__"
        self.complete = self._complete  # type: ignore[method-assign]

    def _validate_json(self, text: str | bytes, **how: Any) -> Any:
        return self._validate_python(from_json(text), **how)

    def _validate_python(self, values: Any, **how: Any) -> Any:
        more = {name: values[name] for name in self.names if name in values}
        rest = {name: value for name, value in values.items() if name not in self.names}
        problems: list[ValueError] = []
        read: list[Any] = []
        for validate, part in ((self.extra_type.validator.validate_json, more), (self.tool.inputs.validate_json, rest)):
            try:
                read.append(validate(to_json(part), **how))
            except ValueError as error:
                problems.append(error)
        if problems:
            raise Misfits(problems)
        return {**read[1], self.mark: (read[0], more)}

    def _complete(self, values: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        _, sent = values.pop(self.mark)
        # What the tool has by itself comes first: an extra field must not fill what the application fills.
        kept = sent if self.keep and self.tool.root.open_ended else {}
        return {**kept, **self.tool.complete(values, context)}

    async def tell(self, values: Mapping[str, Any], call: ToolCall) -> None:
        """Give the extra fields to the callback."""
        if self.on_arguments is not None:
            told = self.on_arguments(AugmentedCall(self.tool.definition, values[self.mark][0], call.arguments))
            if inspect.isawaitable(told):
                await told
        if self.tool.listener is not None:
            await self.tool.listener.tell(values, call)

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        rest = {name: value for name, value in arguments.items() if name not in self.names}
        return await self.tool.invoke(rest, context)


def apart(schema: JsonSchema, taken: Mapping[str, Any]) -> JsonSchema:
    """Return a schema whose definitions have names that are not taken for something else."""
    for name, part in schema.get("$defs", {}).items():
        if name in taken and taken[name] != part:
            free = next(f"{name}_{number}" for number in itertools.count(2) if f"{name}_{number}" not in taken)
            text = to_json(schema).decode().replace(f'"#/$defs/{name}"', f'"#/$defs/{free}"')
            changed: JsonSchema = from_json(text)
            changed["$defs"][free] = changed["$defs"].pop(name)
            return apart(changed, taken)
    return schema


def _extended(tool: Tool, own: JsonSchema, extra: TypeSchema) -> tuple[JsonSchema, tuple[str, ...]]:
    """Return the schema of a tool with the extra fields, and their names."""
    more = apart(resolved_root(extra.schema), own.get("$defs", {}))
    if clash := sorted(own.get("properties", {}).keys() & more.get("properties", {}).keys()):
        raise DefinitionError(
            f"Tool {tool.name!r} ({tool.origin}) has a parameter {clash[0]!r} already. "
            "Rename the field of the augmenting model."
        )
    return _joined(own, more), tuple(more.get("properties", {}))


def _joined(own: JsonSchema, more: JsonSchema) -> JsonSchema:
    whole = {
        **own,
        "properties": {**own.get("properties", {}), **more.get("properties", {})},
        "required": [*own.get("required", ()), *more.get("required", ())],
    }
    if defs := {**own.get("$defs", {}), **more.get("$defs", {})}:
        whole["$defs"] = defs
    return whole


def augmenter(model: Any, on_arguments: OnArguments | None, *, keep: bool) -> Callable[[Tool], Tool]:
    """Return the function that augments a tool.

    Raises:
        DefinitionError: the model is none.
    """
    extra = machinery().compile_type(model)
    if resolved_root(extra.schema).get("type") != "object":
        raise DefinitionError(f"augmented({model!r}): give a BaseModel, a dataclass or a TypedDict.")

    def augment(tool: Tool) -> Tool:
        if not isinstance(tool, Listed):
            return Augmented(tool, extra, on_arguments, keep=keep)
        schema, _ = _extended(tool, tool.definition.input_schema, extra)
        return tool.derived(replace(tool.definition, input_schema=schema), augment)

    return augment


__all__ = ["Augmented", "AugmentedCall", "OnArguments", "augmenter"]
