"""`Tool`: a definition, its options, and a way to call it."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, get_args

from typing_extensions import Unpack, override

from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import (
    MISSING,
    Declaration,
    ParamSpec,
    SchemaToolKeywords,
    ToolKeywords,
    get_declaration,
    make_declaration,
    update_declaration,
)
from toolmason._core.define.inputs import Inputs, compile_inputs, compile_schema_inputs, narrow_inputs, schema_compiler
from toolmason._core.define.invocation import (
    FunctionKind,
    get_function_kind,
    is_generator_function,
    make_caller,
    make_defaults,
    resolve_return_type,
)
from toolmason._core.define.schema_nodes import TypeSchema, resolve_root
from toolmason._core.define.signature import describe_location, get_function_name, read_signature
from toolmason._core.values.content import CONTENT_TYPES
from toolmason._core.values.definition import JsonSchema, ToolDefinition, ToolOptions, name_to_words
from toolmason._core.values.policy import CarriedPolicy
from toolmason._core.values.results import ToolResult, ToolReturn
from toolmason.errors import DefinitionError


class Tool(ABC):
    """Base class of tools. Subclass it, or use `from_function` and `from_schema`."""

    definition: ToolDefinition
    options: ToolOptions = ToolOptions()
    kind: FunctionKind = "async"
    """`"async"` if calling it returns an awaitable, `"sync"` if it blocks."""
    returns: Any = MISSING
    """Return type, or `MISSING` if unknown."""
    substitutable: tuple[str, ...] = ()
    """Parameters whose values may be expanded in `${...}` of a result; empty if nothing is expanded."""
    accepts_extra: bool = False
    """True if it accepts arguments that its schema does not declare."""
    on_arguments: Any = None
    """Listener called before each run: `await listener.notify(values, call)`; see `Toolbox.augmented`."""
    renderer: Callable[[Any], ToolResult] | None = None
    """Function that converts the return value to a result, instead of the default rendering."""
    policies: tuple[CarriedPolicy, ...] = ()
    """Policies of the toolboxes that the tool came through, innermost first."""
    plain_function: Callable[..., Any] | None = None
    """Function to call directly with the values as keywords, if no other step is needed."""

    @abstractmethod
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        """Run the tool with valid arguments, and return its value."""

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self.definition.name

    @property
    def description(self) -> str:
        """The description that the model reads."""
        return self.definition.description

    @property
    def origin(self) -> str:
        """The location of its code, for error messages."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @cached_property
    def inputs(self) -> Inputs:
        """The inputs, compiled from the definition."""
        return compile_schema_inputs(
            self.name, self.definition.input_schema, extra=self.options.extra, strict_types=self.options.strict_types
        )

    @cached_property
    def output(self) -> TypeSchema | None:
        """The compiled return type, or None if it has no schema."""
        return None

    def fill(self, values: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        """Return the values completed with everything that the model does not send.

        Raises:
            ConfigError: an injected value is missing.
        """
        del context
        return values

    def invoke_raw(self, values: dict[str, Any], context: ToolContext[Any]) -> Any:
        """Call the tool with complete values. Returns an awaitable if it is async, else its value."""
        return self.invoke(values, context)

    @property
    def root(self) -> Tool:
        """The original tool, behind any renaming."""
        return self

    def load(self) -> Tool:
        """Return the tool to call: itself, or the tool that a lazy one stands for."""
        return self

    def get_argument(self, name: str, values: Mapping[str, Any]) -> Any:
        """Return the value of a parameter in a call."""
        return values.get(name)

    def picklable_call(
        self, values: dict[str, Any], context: ToolContext[Any]
    ) -> tuple[Callable[..., Any], tuple[str, ...], dict[str, Any]]:
        """Return a call for another process: a function, the names it takes by position, and the values."""
        return self.invoke, ("arguments", "context"), {"arguments": values, "context": context}

    @staticmethod
    def from_function(
        fn: Callable[..., Any],
        *,
        input_schema: Mapping[str, Any] | None = None,
        params: Sequence[ParamSpec] = (),
        **keywords: Unpack[ToolKeywords],
    ) -> FunctionTool:
        """Make a tool from a function. The keywords override those of its `@tool` decorator.

        `input_schema` replaces the schema derived from the signature; `params` describes parameters by name.
        """
        declaration = update_declaration(get_declaration(fn) or Declaration("tool"), keywords)
        return FunctionTool(fn, declaration, schema=input_schema, params=params)

    @staticmethod
    def from_schema(
        name: str,
        description: str,
        input_schema: Mapping[str, Any],
        handler: Callable[[dict[str, Any], ToolContext[Any]], Any],
        **keywords: Unpack[SchemaToolKeywords],
    ) -> SchemaTool:
        """Make a tool from a hand-written schema and a sync or async handler that takes (arguments, context)."""
        declaration = make_declaration({**keywords, "name": name, "description": description or None})
        return SchemaTool(handler, input_schema, declaration)

    def __getstate__(self) -> dict[str, Any]:
        # Compiled objects are not pickled; the other process compiles them again if needed.
        return {name: value for name, value in self.__dict__.items() if name not in ("inputs", "output")}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class SchemaTool(Tool):
    """A tool with a hand-written schema."""

    def __init__(
        self,
        handler: Callable[[dict[str, Any], ToolContext[Any]], Any],
        schema: Mapping[str, Any],
        declaration: Declaration,
    ) -> None:
        name = declaration.name or get_function_name(handler)
        output = declaration.output_schema
        self.definition = ToolDefinition(
            name,
            declaration.description or name_to_words(name),
            {"type": "object", **schema},
            dict(output) if isinstance(output, Mapping) else None,
            declaration.title,
        )
        self.options = declaration.options
        self.handler = handler
        self.accepts_extra = True
        self.kind = get_function_kind(handler)
        self.inputs  # noqa: B018 - validates the schema now instead of at the first call

    @property
    @override
    def origin(self) -> str:
        return describe_location(self.handler)

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        value = self.handler(arguments, context)
        return await value if inspect.isawaitable(value) else value

    @override
    def invoke_raw(self, values: dict[str, Any], context: ToolContext[Any]) -> Any:
        return self.handler(values, context)

    @override
    def picklable_call(
        self, values: dict[str, Any], context: ToolContext[Any]
    ) -> tuple[Callable[..., Any], tuple[str, ...], dict[str, Any]]:
        return self.handler, ("arguments", "context"), {"arguments": values, "context": context}


class FunctionTool(Tool):
    """A tool made from a typed function. The schema, the validator and the caller are built once."""

    def __init__(
        self,
        fn: Callable[..., Any],
        declaration: Declaration,
        *,
        description: str | None = None,
        schema: Mapping[str, Any] | None = None,
        params: Sequence[ParamSpec] = (),
    ) -> None:
        self.fn = fn
        self.options = options = declaration.options
        signature = read_signature(fn, declaration.local_names, params)
        self.parameters = signature.parameters
        self.returns = resolve_return_type(signature.returns)
        self.accepts_extra = signature.extra_hint is not MISSING
        self.inputs = compile_inputs(
            fn, signature, extra=options.extra, strict_types=options.strict_types, flatten=declaration.flatten
        )
        if schema is not None:
            self.inputs = narrow_inputs(self.inputs, declaration.name or get_function_name(fn), schema)
        self.kind, self.invoke_raw = make_caller(fn, signature.parameters)  # type: ignore[method-assign]
        self._injectors = tuple((p.name, p.injector) for p in signature.parameters if p.injector is not None)
        self._defaults = make_defaults(signature.parameters, include_all=options.substitute_result)
        if options.substitute_result:
            self.substitutable = tuple(p.name for p in signature.parameters if p.injector is None)
        if not (
            self._injectors or self._defaults or any(p.positional for p in signature.parameters)
        ) and not is_generator_function(fn):
            self.plain_function = fn
        own_name = declaration.name or get_function_name(fn)
        self.definition = ToolDefinition(
            own_name,
            declaration.description or description or signature.text or name_to_words(own_name),
            self.inputs.schema,
            self._make_output_schema(declaration),
            declaration.title,
        )

    @property
    @override
    def origin(self) -> str:
        return describe_location(self.fn)

    @cached_property
    @override
    def output(self) -> TypeSchema | None:
        """The compiled return type, or None if it has no schema."""
        if self.returns in (MISSING, Any, None, type(None), str, list, tuple) or _returns_content(self.returns):
            return None
        return schema_compiler().compile_return(self.returns) if _is_hashable(self.returns) else None

    def _make_output_schema(self, declaration: Declaration) -> JsonSchema | None:
        if isinstance(declaration.output_schema, Mapping):
            return dict(declaration.output_schema)
        if not declaration.output_schema or self.options.converter is not None:
            return None
        if self.returns is str:
            return _wrap_in_result({"type": "string"})
        if self.output is None:
            return None
        schema = resolve_root(self.output.schema)
        return schema if schema.get("type") == "object" else _wrap_in_result(schema)

    @override
    def get_argument(self, name: str, values: Mapping[str, Any]) -> Any:
        for parameter in self.parameters:
            if name in (parameter.name, parameter.label):
                default = None if parameter.default is MISSING else parameter.default
                return values.get(parameter.name, default)
        return None

    @override
    def fill(self, values: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        for name, inject in self._injectors:
            values[name] = inject(context)
        for name, make_default in self._defaults:
            if name not in values:
                values[name] = make_default(values, context)
        return values

    @override
    def picklable_call(
        self, values: dict[str, Any], context: ToolContext[Any]
    ) -> tuple[Callable[..., Any], tuple[str, ...], dict[str, Any]]:
        return self.fn, tuple(p.name for p in self.parameters if p.positional), values

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        value = self.invoke_raw(self.fill(dict(arguments), context), context)
        return await value if inspect.isawaitable(value) else value


class RenamedTool(Tool):
    """A tool under another name, or with the policies of further toolboxes."""

    def __init__(self, tool: Tool, name: str, policies: tuple[CarriedPolicy, ...] | None = None) -> None:
        self.tool: Tool = tool
        self.definition = tool.definition if name == tool.name else replace(tool.definition, name=name)
        self.policies = tool.policies if policies is None else policies
        self.options = tool.options
        self.kind = tool.kind
        self.returns = tool.returns
        self.substitutable = tool.substitutable
        self.plain_function = tool.plain_function
        self.on_arguments = tool.on_arguments
        self.renderer = tool.renderer
        self.inputs = tool.inputs
        self.output = tool.output
        # The bound methods of the tool itself, without a wrapper in between.
        self.fill = tool.fill  # type: ignore[method-assign]
        self.invoke_raw = tool.invoke_raw  # type: ignore[method-assign]
        self.picklable_call = tool.picklable_call  # type: ignore[method-assign]

    @property
    @override
    def origin(self) -> str:
        return self.tool.origin

    @property
    @override
    def root(self) -> Tool:
        return self.tool.root

    @override
    def get_argument(self, name: str, values: Mapping[str, Any]) -> Any:
        return self.tool.get_argument(name, values)

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        return await self.tool.invoke(arguments, context)


def _returns_content(hint: Any) -> bool:
    if isinstance(hint, type) and (hint in CONTENT_TYPES or hint is ToolReturn):
        return True
    return any(_returns_content(arg) for arg in get_args(hint))


def may_hold_content(hint: Any) -> bool:
    """Return True if a list of this type may contain content parts, such as images, beside data."""
    args = get_args(hint)
    return not args or Any in args or object in args or _returns_content(hint)


def _wrap_in_result(schema: JsonSchema) -> JsonSchema:
    inner = dict(schema)
    defs = inner.pop("$defs", None)
    wrapper: JsonSchema = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return {**wrapper, "$defs": defs} if defs else wrapper


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def make_tool(item: Any, declaration: Declaration | None = None) -> Tool:
    """Return the tool for a decorated or plain function.

    Raises:
        DefinitionError: it cannot become a tool; explains why and gives the fix.
    """
    if isinstance(item, Tool):
        return item
    effective_declaration = declaration or get_declaration(item) or Declaration("tool")
    if effective_declaration.kind == "prompt":
        raise DefinitionError(f"{describe_location(item)} is a prompt, not a tool. Pass it to a toolbox.")
    return FunctionTool(item, effective_declaration)
