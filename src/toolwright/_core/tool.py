"""`Tool`: a definition, its options, and a way to call it.

Lives here: the abstract `Tool`, tools made from functions and from hand-written schemas.
Not here: the policy around a call (`dispatch`), or where it runs (`execute`).
"""

from __future__ import annotations

import copy
import inspect
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Literal, get_args, get_origin

from typing_extensions import Unpack, override

from toolwright._core.context import ToolContext
from toolwright._core.declare import MISSING, Declaration, OptionWords, ParamSpec, declaration_from, declared_on
from toolwright._core.definition import JsonSchema, ToolDefinition, ToolOptions, in_words
from toolwright._core.docstrings import read
from toolwright._core.inputs import Inputs, inputs_from_schema, inputs_of
from toolwright._core.schema import TypeSchema, compile_return, resolved_root
from toolwright._core.signature import Parameter, inner_function, is_shared_safely, name_of, place_of, read_signature
from toolwright._core.template import expand
from toolwright._core.values import CONTENT_TYPES, ToolReturn
from toolwright.errors import DefinitionError

Kind = Literal["async", "sync"]
_STREAMS: Final = (Iterator, Iterable, Generator, AsyncIterator, AsyncIterable, AsyncGenerator)


class Tool(ABC):
    """Something that a model may ask to have called. Subclass it, or use `from_function` and `from_schema`."""

    definition: ToolDefinition
    options: ToolOptions = ToolOptions()
    kind: Kind = "async"
    """Whether calling it gives an awaitable, or blocks."""
    returns: Any = MISSING
    """The return type, or `MISSING` where none is known."""
    shown: tuple[str, ...] = ()
    """Parameters whose values may go into `${...}` in a text result; empty where nothing is filled in."""
    direct: Callable[..., Any] | None = None
    """The plain function to call with the values as keywords, where nothing else has to be done."""

    @abstractmethod
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        """Run the tool with arguments that fit its schema, and return its value."""

    @property
    def name(self) -> str:
        """What the model calls it."""
        return self.definition.name

    @property
    def description(self) -> str:
        """What the model reads about it."""
        return self.definition.description

    @property
    def origin(self) -> str:
        """Where it comes from, for messages."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    @cached_property
    def inputs(self) -> Inputs:
        """What it takes, compiled from its definition."""
        return inputs_from_schema(
            self.name, self.definition.input_schema, extra=self.options.extra, strict_types=self.options.strict_types
        )

    @cached_property
    def output(self) -> TypeSchema | None:
        """Its return type, compiled, where there is one."""
        return None

    def complete(self, values: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        """Return the values with everything that the model does not send.

        Raises:
            ConfigError: an injected value is missing.
        """
        del context
        return values

    def start(self, values: dict[str, Any], context: ToolContext[Any]) -> Any:
        """Call the tool with complete values: an awaitable for an async one, the value for a sync one."""
        return self.invoke(values, context)

    @staticmethod
    def from_function(
        fn: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        input_schema: Mapping[str, Any] | None = None,
        params: Sequence[ParamSpec] = (),
        **options: Unpack[OptionWords],
    ) -> FunctionTool:
        """Make a tool from a function, with or without `@tool` on it.

        `input_schema` replaces the schema that the signature gives; `params` describes parameters by name.
        """
        declared = declared_on(fn)
        words: dict[str, Any] = {**options, "name": name, "description": description}
        declaration = declaration_from(words) if declared is None or options else declared
        return FunctionTool(fn, declaration, name=name, description=description, schema=input_schema, params=params)

    @staticmethod
    def from_schema(
        name: str,
        description: str,
        input_schema: Mapping[str, Any],
        handler: Callable[[dict[str, Any], ToolContext[Any]], Any],
        **options: Unpack[OptionWords],
    ) -> SchemaTool:
        """Make a tool from a hand-written schema and a handler, sync or async, that takes (arguments, context)."""
        return SchemaTool(name, description, input_schema, handler, declaration_from(options).options)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class SchemaTool(Tool):
    """A tool with a hand-written schema."""

    def __init__(
        self,
        name: str,
        description: str,
        schema: Mapping[str, Any],
        handler: Callable[[dict[str, Any], ToolContext[Any]], Any],
        options: ToolOptions,
    ) -> None:
        self.definition = ToolDefinition(name, description or in_words(name), {"type": "object", **schema})
        self.options = options
        self.handler = handler
        self.kind = _kind_of(handler)
        self.inputs  # noqa: B018 - a schema that is none is told now, not at the first call

    @property
    @override
    def origin(self) -> str:
        return place_of(self.handler)

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        value = self.handler(arguments, context)
        return await value if inspect.isawaitable(value) else value

    @override
    def start(self, values: dict[str, Any], context: ToolContext[Any]) -> Any:
        return self.handler(values, context)


class FunctionTool(Tool):
    """A tool made from a typed function; the schema, the validator and the plan of the call are built once."""

    def __init__(
        self,
        fn: Callable[..., Any],
        declaration: Declaration,
        *,
        name: str | None = None,
        description: str | None = None,
        schema: Mapping[str, Any] | None = None,
        params: Sequence[ParamSpec] = (),
    ) -> None:
        self.fn = fn
        self.options = options = declaration.options
        signature = read_signature(fn, declaration.local_names, params)
        self.parameters = signature.parameters
        self.returns = _awaited(signature.returns)
        self.inputs = inputs_of(
            fn, signature, extra=options.extra, strict_types=options.strict_types, flatten=declaration.flatten
        )
        self.kind, self.start = _caller_of(fn, signature.parameters)  # type: ignore[method-assign]
        self._fillers = tuple((p.name, p.filler) for p in signature.parameters if p.filler is not None)
        self._standins = _standins(signature.parameters, every=options.substitute_result)
        if options.substitute_result:
            self.shown = tuple(p.name for p in signature.parameters if p.filler is None)
        if not (self._fillers or self._standins or any(p.positional for p in signature.parameters)) and not _streams(
            fn
        ):
            self.direct = fn
        own_name = name or declaration.name or name_of(fn)
        self.definition = ToolDefinition(
            own_name,
            description or declaration.description or read(inner_function(fn).__doc__).text or in_words(own_name),
            dict(schema) if schema is not None else self.inputs.schema,
            self._output_schema(declaration),
            declaration.title,
        )

    @property
    @override
    def origin(self) -> str:
        return place_of(self.fn)

    @cached_property
    @override
    def output(self) -> TypeSchema | None:
        if self.returns in (MISSING, Any, None, type(None), str) or _gives_content(self.returns):
            return None
        return compile_return(self.returns) if _hashable(self.returns) else None

    def _output_schema(self, declaration: Declaration) -> JsonSchema | None:
        if isinstance(declaration.output_schema, Mapping):
            return dict(declaration.output_schema)
        if not declaration.output_schema or self.options.converter is not None:
            return None
        if self.returns is str:
            return _wrapped({"type": "string"})
        if self.output is None:
            return None
        schema = resolved_root(self.output.schema)
        return schema if schema.get("type") == "object" else _wrapped(schema)

    @override
    def complete(self, values: dict[str, Any], context: ToolContext[Any]) -> dict[str, Any]:
        for name, fill in self._fillers:
            values[name] = fill(context)
        for name, stand_in in self._standins:
            if name not in values:
                values[name] = stand_in(values, context)
        return values

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        value = self.start(self.complete(dict(arguments), context), context)
        return await value if inspect.isawaitable(value) else value


class Renamed(Tool):
    """A tool under another name; everything else is the tool's own."""

    def __init__(self, tool: Tool, name: str) -> None:
        self.tool: Tool = tool
        self.definition = replace(tool.definition, name=name)
        self.options, self.kind, self.returns = tool.options, tool.kind, tool.returns
        self.shown, self.direct = tool.shown, tool.direct
        self.inputs, self.output = tool.inputs, tool.output
        self.complete, self.start = tool.complete, tool.start  # type: ignore[method-assign]

    @property
    @override
    def origin(self) -> str:
        return self.tool.origin

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        return await self.tool.invoke(arguments, context)


def _kind_of(fn: Any) -> Kind:
    inner = inner_function(fn)
    return "async" if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner) else "sync"


def _streams(fn: Any) -> bool:
    inner = inner_function(fn)
    return inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner)


def _caller_of(fn: Any, parameters: Sequence[Parameter]) -> tuple[Kind, Callable[..., Any]]:
    """Return how to call a function with values by name; streams are collected into lists."""
    inner = inner_function(fn)
    before = tuple(parameter.name for parameter in parameters if parameter.positional)
    plain: Callable[[dict[str, Any]], Any] = (
        (lambda values: fn(*(values[name] for name in before), **{k: v for k, v in values.items() if k not in before}))
        if before
        else (lambda values: fn(**values))
    )
    if inspect.isasyncgenfunction(inner):

        async def collect(values: dict[str, Any], context: Any) -> list[Any]:
            del context
            return [item async for item in plain(values)]

        return "async", collect
    if inspect.isgeneratorfunction(inner):
        return "sync", lambda values, context: list(plain(values))  # noqa: ARG005 - one shape for every kind
    if before:
        return _kind_of(fn), lambda values, context: plain(values)  # noqa: ARG005 - as above
    return _kind_of(fn), lambda values, context: fn(**values)  # noqa: ARG005 - as above


def _standins(
    parameters: Sequence[Parameter], *, every: bool
) -> tuple[tuple[str, Callable[[dict[str, Any], Any], Any]], ...]:
    """Return what fills a parameter that the model left out, where Python's own default does not do."""
    sent = [parameter for parameter in parameters if parameter.filler is None]
    every = every or any(parameter.param.template for parameter in sent)
    found: list[tuple[str, Callable[[dict[str, Any], Any], Any]]] = []
    for p in sent:
        if p.param.template:
            found.append((p.name, _template(p)))
        elif p.factory is not None and p.default is MISSING:
            found.append((p.name, lambda values, context, make=p.factory: make()))  # type: ignore[misc]  # noqa: ARG005
        elif p.default is MISSING:
            if not p.required:
                found.append((p.name, lambda values, context: None))  # noqa: ARG005 - one shape for every kind
        elif not is_shared_safely(p.default):
            found.append((p.name, lambda values, context, it=p.default: copy.deepcopy(it)))  # type: ignore[misc]  # noqa: ARG005
        elif every or p.positional or p.param.default is not MISSING or _default_is_field(p):
            found.append((p.name, lambda values, context, it=p.default: it))  # type: ignore[misc]  # noqa: ARG005
    return tuple(found)


def _default_is_field(parameter: Parameter) -> bool:
    # Python would pass the FieldInfo itself, or has no default at all: `Annotated[int, Field(default=3)]`.
    return any(hasattr(mark, "default_factory") for mark in getattr(parameter.hint, "__metadata__", ()))


def _template(parameter: Parameter) -> Callable[[dict[str, Any], ToolContext[Any]], Any]:
    wanted, text = parameter.hint, parameter.default

    def fill(values: dict[str, Any], context: ToolContext[Any]) -> Any:
        known = dict(values)
        if "project_dir" not in known and "${project_dir" in text:
            known["project_dir"] = context.project_dir
        filled = expand(text, known)
        core = get_args(wanted)[0] if get_origin(wanted) is typing.Annotated else wanted
        return core(filled) if isinstance(core, type) and core is not str else filled

    return fill


def _awaited(hint: Any) -> Any:
    """Return what a caller gets in the end: the item list of a stream, the value of an awaitable."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Awaitable, Coroutine) and args:
        return args[-1]
    if origin in _STREAMS and args:
        return types.GenericAlias(list, (args[0],))
    return hint


def _gives_content(hint: Any) -> bool:
    if isinstance(hint, type) and (hint in CONTENT_TYPES or hint is ToolReturn):
        return True
    return any(_gives_content(arg) for arg in get_args(hint))


def may_hold_content(hint: Any) -> bool:
    """Tell whether a list of this type could hold images and such beside data."""
    args = get_args(hint)
    return not args or Any in args or object in args or _gives_content(hint)


def _wrapped(schema: JsonSchema) -> JsonSchema:
    inner = dict(schema)
    defs = inner.pop("$defs", None)
    whole: JsonSchema = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return {**whole, "$defs": defs} if defs else whole


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def tool_from(item: Any, declaration: Declaration | None = None) -> Tool:
    """Return the tool that a decorated function is, or that a plain one makes.

    Raises:
        DefinitionError: it cannot be one; says why and what to do.
    """
    if isinstance(item, Tool):
        return item
    found = declaration or declared_on(item) or Declaration("tool")
    if found.kind == "prompt":
        raise DefinitionError(f"{place_of(item)} is a prompt, not a tool.")
    return FunctionTool(item, found)
