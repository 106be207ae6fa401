"""Render `@prompt` functions to the messages that open a conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from toolmason._core.arguments.bind import bind_once
from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import Declaration
from toolmason._core.define.tool import FunctionTool, compile_tool
from toolmason._core.run.dependencies import add_dependencies, has_dependencies
from toolmason._core.run.execute import call_user_function
from toolmason._core.values.content import CONTENT_TYPES
from toolmason._core.values.definition import JsonSchema
from toolmason._core.values.messages import Message, Role
from toolmason._core.values.policy import CarriedPolicy, EngineSettings
from toolmason._core.values.results import Arguments
from toolmason.errors import DefinitionError

RenderPrompt: TypeAlias = Callable[[Arguments, ToolContext[Any], EngineSettings], Awaitable[list[Message]]]


async def run_declared(
    tool: FunctionTool, arguments: Arguments, context: ToolContext[Any], settings: EngineSettings
) -> Any:
    """Return the value of a prompt's or resource's function.

    Raises:
        InvalidArguments: the arguments are invalid.
        ConfigError: an injected value is missing.
    """
    compiled = compile_tool(tool)
    values, _ = bind_once(compiled.inputs, arguments, tool.name, settings)
    if has_dependencies(compiled):
        compiled, _ = add_dependencies(compiled, "thread" if compiled.kind == "sync" else "loop", settings)
    filled = compiled.fill(dict(values), context)
    if compiled.kind == "async":
        return await compiled.call(filled, context)
    return await call_user_function(compiled.call, filled, context, settings=settings)


@dataclass(frozen=True, eq=False)
class Prompt:
    """A reusable opening of a conversation: a function that returns a string, a `Message`, or a list of them."""

    name: str
    """Name that clients use."""
    description: str = field(repr=False)
    """Description that clients show."""
    input_schema: JsonSchema = field(repr=False)
    """JSON Schema of the parameters."""
    role: Role = field(repr=False)
    origin: str = field(repr=False)
    """Location of the code, for error messages."""
    render_messages: RenderPrompt = field(repr=False)
    entry: Mapping[str, Any] | None = field(default=None, repr=False)
    """Definition as the server sent it; None for a local prompt."""
    policies: tuple[CarriedPolicy, ...] = field(default=(), repr=False)
    """Policies of the toolboxes that the prompt came through, innermost first."""

    @classmethod
    def from_function(cls, fn: Any, declaration: Declaration) -> Prompt:
        """Return the prompt of a decorated function."""
        tool = FunctionTool(fn, declaration)

        async def render(arguments: Arguments, context: ToolContext[Any], settings: EngineSettings) -> list[Message]:
            return _to_messages(tool.name, declaration.role, await run_declared(tool, arguments, context, settings))

        schema = tool.definition.input_schema
        return cls(tool.name, tool.description, schema, declaration.role, tool.origin, render)

    async def render(
        self,
        arguments: Arguments = None,
        context: ToolContext[Any] | None = None,
        settings: EngineSettings = EngineSettings(),  # noqa: B008 - frozen, so the default can be shared
    ) -> list[Message]:
        """Return the prompt's messages.

        Raises:
            InvalidArguments: the arguments are invalid.
            ConfigError: an injected value is missing.
        """
        return await self.render_messages(arguments, ToolContext() if context is None else context, settings)


def _to_messages(prompt: str, role: Role, value: Any) -> list[Message]:
    if isinstance(value, Message):
        return [value]
    if isinstance(value, str) or type(value) in CONTENT_TYPES:
        return [Message(role, value)]
    if isinstance(value, Iterable):
        return [message for item in value for message in _to_messages(prompt, role, item)]
    raise DefinitionError(
        f"Prompt {prompt!r} returned {type(value).__name__}. Return a string, a Message, or a list of them."
    )
