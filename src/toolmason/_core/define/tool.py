"""`Tool`: a definition, its options, and a way to call it."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from typing_extensions import Unpack, override

from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import (
    MISSING,
    Declaration,
    ParamSpec,
    SchemaToolKeywords,
    ToolKeywords,
    declare_external,
    get_declaration,
    make_declaration,
    show_keywords,
    update_declaration,
)
from toolmason._core.define.inputs import (
    PROJECT_DIR,
    Inputs,
    compile_inputs,
    compile_return_type,
    compile_schema_inputs,
    get_substitutable,
    hide_project_dir,
    narrow_inputs,
)
from toolmason._core.define.invocation import (
    FunctionKind,
    PicklableCall,
    check_handler,
    get_function_kind,
    leave_to_application,
    make_caller,
    make_defaults,
    make_plain_function,
    resolve_return_type,
    returns_function,
)
from toolmason._core.define.schema_nodes import TypeSchema, resolve_root, with_object_type, wrap_in_result
from toolmason._core.define.signature import (
    Parameter,
    Signature,
    check_lock,
    describe_location,
    get_function_name,
    read_signature,
)
from toolmason._core.values.definition import ApprovalOption, JsonSchema, ToolDefinition, ToolOptions, name_to_words
from toolmason._core.values.policy import CarriedPolicy
from toolmason._core.values.results import ToolResult
from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError, DefinitionError, UnsupportedType


@dataclass(frozen=True, eq=False, repr=False)
class CompiledTool:
    """The engine's side of a tool: how its calls are validated, run and rendered."""

    inputs: Inputs
    call: Callable[[dict[str, Any], ToolContext[Any]], Any]
    """Calls the tool with complete values. Returns an awaitable if it is async, else its value."""
    kind: FunctionKind = "async"
    """`"async"` if calling it returns an awaitable, `"sync"` if it blocks."""
    fill: Callable[[dict[str, Any], ToolContext[Any]], dict[str, Any]] = lambda values, context: values  # noqa: ARG005 - same signature for every kind
    """Completes the values with everything that the model does not send. Raises ConfigError if a value is missing."""
    function: Callable[..., Any] | None = None
    """Function that the tool was made from."""
    plain_function: Callable[..., Any] | None = None
    """The same, if it can be called directly with the values as keywords."""
    parameters: tuple[Parameter, ...] = ()
    """Parameters of a function; empty for a tool with a hand-written schema."""
    returns: Any = MISSING
    """Return type, or `MISSING` if unknown."""
    output: TypeSchema | None = None
    """The compiled return type, or None if it has no schema."""
    substitutable: Mapping[str, str] = field(default_factory=dict)
    """Parameters that `${...}` of a result names, by the name there; empty if nothing is expanded."""
    blind_call: Callable[..., Any] | None = None
    """The same as `call`, if that reads nothing of its call but the arguments, and perhaps injected values."""
    accepts_extra: bool = False
    """True if it accepts arguments that its schema does not declare."""
    on_arguments: Any = None
    """Listener called before each run: `await listener.notify(values, call, settings)`; see `Toolbox.augmented`."""
    renderer: Callable[[Any], ToolResult] | None = None
    """Function that converts the return value to a result, instead of the default rendering."""
    get_distrust: Callable[[], str] | None = None
    """Returns why a run must ask before a call, or an empty string. None if the tool is trusted."""

    def get_argument(self, name: str, values: Mapping[str, Any]) -> Any:
        """Return the value of a parameter in a call, by its name in the function or in the schema."""
        for parameter in self.parameters:
            if name in (parameter.name, parameter.label):
                default = None if parameter.default is MISSING else parameter.default
                return values.get(parameter.name, default)
        return None if self.parameters else values.get(name)

    def make_picklable_call(self, values: dict[str, Any], context: ToolContext[Any]) -> PicklableCall:
        """Return a call for another process."""
        if self.function is None:
            return self.call, ("arguments", "context"), {"arguments": values, "context": context}
        return self.function, tuple(p.name for p in self.parameters if p.positional), values


class Tool(ABC):
    """Base class of tools. Subclass it, or use `from_function` and `from_schema`."""

    definition: ToolDefinition
    options: ToolOptions = ToolOptions()
    policies: tuple[CarriedPolicy, ...] = ()
    """Policies of the toolboxes that the tool came through, innermost first."""
    limit_key: Hashable = None
    """Key of the tool in limits and locks if a new object stands for it from time to time; None for the object."""

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
    def _compiled(self) -> CompiledTool:
        return self._compile()

    def _compile(self) -> CompiledTool:
        schema = self._get_declared_schema()
        inputs = compile_schema_inputs(
            self.name, schema, extra=self.options.extra, strict_types=self.options.strict_types
        )
        if PROJECT_DIR not in schema.get("properties", ()):
            return CompiledTool(inputs, self.invoke)
        is_required = PROJECT_DIR in schema.get("required", ())

        def fill(values: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
            try:
                return {**values, PROJECT_DIR: str(context.project_dir)}
            except ConfigError:
                if is_required:
                    raise
                return values

        return CompiledTool(inputs, self.invoke, fill=fill)

    def _get_declared_schema(self) -> JsonSchema:
        """Return the schema as the author wrote it, which may name `project_dir`."""
        return self.definition.input_schema

    def _load(self) -> Tool:
        return self

    @staticmethod
    @show_keywords(ToolKeywords, Declaration, ToolOptions)
    @explain_arguments
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
        declared = get_declaration(fn) or Declaration("tool")
        declaration = update_declaration(declared.find("tool") or declared, keywords)
        return FunctionTool(fn, declaration, schema=input_schema, params=params)

    @staticmethod
    @show_keywords(SchemaToolKeywords, Declaration, ToolOptions)
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

    @staticmethod
    @show_keywords(SchemaToolKeywords, Declaration, ToolOptions)
    def external(
        name: str | Mapping[str, Any],
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        **keywords: Unpack[SchemaToolKeywords],
    ) -> SchemaTool:
        """Make a tool that the application runs. `name` may be a dict with `name`, `description`, `parameters`."""
        declaration, schema = declare_external(name, description, input_schema, keywords)
        return SchemaTool(leave_to_application, schema, declaration)

    def __getstate__(self) -> dict[str, Any]:
        # Compiled objects are not pickled; the other process compiles them again if needed.
        return {name: value for name, value in self.__dict__.items() if name != "_compiled"}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class _CallableTool(Tool):
    """A tool that calls a function of the application."""

    fn: Callable[..., Any]

    @property
    @override
    def origin(self) -> str:
        return describe_location(self.fn)

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        value = self._compiled.call(self._compiled.fill(dict(arguments), context), context)
        return await value if inspect.isawaitable(value) else value


class SchemaTool(_CallableTool):
    """A tool with a hand-written schema."""

    def __init__(
        self,
        handler: Callable[[dict[str, Any], ToolContext[Any]], Any],
        schema: Mapping[str, Any],
        declaration: Declaration,
    ) -> None:
        name = declaration.name or get_function_name(handler)
        output = declaration.output_schema
        check_handler(name, handler)
        definition = ToolDefinition(
            name,
            declaration.description or name_to_words(name),
            with_object_type(schema),
            dict(output) if isinstance(output, Mapping) else None,
            declaration.title,
        )
        self.options = declaration.options
        self.fn = handler
        self.definition = replace(definition, input_schema=hide_project_dir(definition.input_schema))
        self._declared_schema = definition.input_schema
        self._compiled = self._compile()  # validates the schema now instead of at the first call
        check_lock(f"Tool {name!r}", self.options.lock, (), self._declared_schema)

    @override
    def _get_declared_schema(self) -> JsonSchema:
        return self._declared_schema

    @override
    def _compile(self) -> CompiledTool:
        return replace(super()._compile(), call=self.fn, kind=get_function_kind(self.fn), accepts_extra=True)


class FunctionTool(_CallableTool):
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
        self.options = declaration.options
        signature = read_signature(fn, declaration.local_names, params)
        compiled = _compile_function(fn, signature, declaration, schema)
        if self.options.external:
            unfilled = CompiledTool(compiled.inputs, leave_to_application).fill
            compiled = replace(compiled, call=leave_to_application, kind="async", fill=unfilled, plain_function=None)
        self._compiled = compiled
        if signature.extra_hint is MISSING:
            check_lock(self.origin, self.options.lock, signature.parameters)
        own_name = declaration.name or get_function_name(fn)
        if own_name == "<lambda>" and declaration.kind == "tool":
            raise DefinitionError(
                f"{self.origin}: a lambda has no name. Pass one: `Tool.from_function(..., name=...)`."
            )
        self.definition = ToolDefinition(
            own_name,
            declaration.description or description or signature.text or name_to_words(own_name),
            compiled.inputs.schema,
            _make_output_schema(compiled, declaration),
            declaration.title,
        )


class RenamedTool(Tool):
    """A tool under another name, or with the policies of further toolboxes."""

    change: Hashable = None
    """Key of the changes that the layer makes besides these; None if it makes none."""

    def __init__(self, tool: Tool, name: str, policies: tuple[CarriedPolicy, ...] | None = None) -> None:
        self.tool: Tool = tool
        self.definition = tool.definition if name == tool.name else replace(tool.definition, name=name)
        self.options = tool.options
        self.policies = tool.policies if policies is None else policies

    @override
    def _compile(self) -> CompiledTool:
        return compile_tool(self.tool)

    @property
    @override
    def origin(self) -> str:
        return self.tool.origin

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        return await self.tool.invoke(arguments, context)

    def change_rules(self, rules: list[tuple[int, ApprovalOption]], index: int) -> list[tuple[int, ApprovalOption]]:
        """Return the rules for approval of the tool, with this layer's own, for its arguments and its toolbox."""
        del index
        return rules


class LazyTool(Tool):
    """A tool that is listed by its definition and loaded before its first call."""

    wraps_result: bool = True
    """False if an output schema with the one field `result` is that of the value itself."""

    def __init__(
        self, definition: ToolDefinition, options: ToolOptions, place: str, loader: Callable[[], Tool]
    ) -> None:
        self.definition, self.options = definition, options
        self.place, self.loader = place, loader

    @property
    @override
    def origin(self) -> str:
        return self.place

    @override
    def _load(self) -> Tool:
        # Two threads may both load it; both use the first result, because limits are counted per tool.
        attributes: dict[str, Tool] = vars(self)
        return attributes["loaded"] if "loaded" in attributes else attributes.setdefault("loaded", self.loader())

    @override
    def _compile(self) -> CompiledTool:
        return compile_tool(self._load())

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        return await self._load().invoke(arguments, context)

    def with_definition(
        self,
        definition: ToolDefinition,
        change: Callable[[Tool], Tool],
        policies: tuple[CarriedPolicy, ...] | None = None,
        options: ToolOptions | None = None,
    ) -> LazyTool:
        """Return a lazy tool with another definition, policies or options. `change` converts the loaded tool."""
        changed = LazyTool(definition, options or self.options, self.place, lambda: change(self._load()))
        changed.policies = self.policies if policies is None else policies
        changed.wraps_result = self.wraps_result
        return changed


# --- the engine's side -------------------------------------------------------------------------


def compile_tool(tool: Tool) -> CompiledTool:
    """Return the engine's side of a tool. It is compiled once."""
    return tool._compiled  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def get_root(tool: Tool) -> Tool:
    """Return the original tool, behind any renaming."""
    tool = load_tool(tool)
    return get_root(tool.tool) if isinstance(tool, RenamedTool) else tool


def get_limit_key(tool: Tool) -> Hashable:
    """Return the key of a tool in limits and locks: the same under every name, and each time a server lists it."""
    return get_layers(tool)[-1]


def get_layers(tool: Tool) -> tuple[Hashable, ...]:
    """Return what the layers of a tool change, outermost first, and then its key in limits."""
    tool = load_tool(tool)
    if not isinstance(tool, RenamedTool):
        return (tool if tool.limit_key is None else tool.limit_key,)
    inner = get_layers(tool.tool)
    return inner if tool.change is None else (tool.change, *inner)


def load_tool(tool: Tool) -> Tool:
    """Return the tool to call: itself, or the tool that a lazy one stands for."""
    return tool._load()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


def _compile_function(
    fn: Callable[..., Any], signature: Signature, declaration: Declaration, schema: Mapping[str, Any] | None
) -> CompiledTool:
    options, parameters = declaration.options, signature.parameters
    inputs = compile_inputs(
        fn, signature, extra=options.extra, strict_types=options.strict_types, flatten=declaration.flatten
    )
    if schema is not None:
        inputs = narrow_inputs(inputs, declaration.name or get_function_name(fn), schema)
    kind, call = make_caller(fn, parameters)
    injectors = tuple((p.name, p.injector) for p in parameters if p.injector is not None)
    defaults = make_defaults(parameters, include_all=options.substitute_result)

    def fill(values: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        for name, inject in injectors:
            values[name] = inject(context)
        for name, make_default in defaults:
            if name not in values:
                values[name] = make_default(values, context)
        return values

    returns = resolve_return_type(signature.returns)
    if options.converter is None and returns_function(returns):
        raise UnsupportedType(
            f"{describe_location(fn)}: it returns {returns!r}, and a function has no JSON form. Return data, or pass "
            "`converter=`."
        )
    return CompiledTool(
        inputs,
        call,
        kind,
        fill,
        function=fn,
        plain_function=None if options.substitute_result else make_plain_function(fn, parameters, defaults),
        parameters=parameters,
        returns=returns,
        output=None if options.converter is not None else compile_return_type(returns),
        substitutable=get_substitutable(parameters) if options.substitute_result else {},
        blind_call=None if any(parameter.reads_call for parameter in parameters) else call,
        accepts_extra=signature.extra_hint is not MISSING,
    )


def _make_output_schema(compiled: CompiledTool, declaration: Declaration) -> JsonSchema | None:
    if isinstance(declaration.output_schema, Mapping):
        return dict(declaration.output_schema)
    if not declaration.output_schema or declaration.options.converter is not None:
        return None
    if compiled.returns is str:
        return wrap_in_result({"type": "string"})
    if compiled.output is None:
        return None
    schema = resolve_root(compiled.output.schema)
    return schema if schema.get("type") == "object" else wrap_in_result(schema)


def make_tool(item: Any, declaration: Declaration | None = None) -> Tool:
    """Return the tool for a decorated or plain function.

    Raises:
        DefinitionError: it cannot become a tool; explains why and gives the fix.
    """
    if isinstance(item, Tool):
        return item
    declared = declaration or get_declaration(item) or Declaration("tool")
    declared = declared.find("tool") or declared
    if declared.kind == "prompt":
        raise DefinitionError(f"{describe_location(item)} is a prompt, not a tool. Pass it to a toolbox.")
    return FunctionTool(item, declared)
