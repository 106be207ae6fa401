"""Render `@prompt` functions to the messages that open a conversation."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from typing import Any

from typing_extensions import override

from toolmason._core.arguments.bind import bind_once
from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import Declaration
from toolmason._core.define.tool import FunctionTool
from toolmason._core.values.content import CONTENT_TYPES
from toolmason._core.values.definition import JsonSchema
from toolmason._core.values.messages import Message, Role
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import Arguments
from toolmason.errors import DefinitionError


class DeclaredFunction:
    """A decorated function that is not a tool: base of prompts and resources."""

    def __init__(self, fn: Any, declaration: Declaration) -> None:
        self.fn = fn
        self._tool = FunctionTool(fn, declaration)

    @property
    def name(self) -> str:
        """The name that clients use."""
        return self._tool.name

    @property
    def description(self) -> str:
        """The description that clients show."""
        return self._tool.description

    @property
    def input_schema(self) -> JsonSchema:
        """The JSON Schema of the parameters."""
        return self._tool.definition.input_schema

    @property
    def origin(self) -> str:
        """The location of the code, for error messages."""
        return self._tool.origin

    async def _run(self, arguments: Arguments, context: ToolContext[Any]) -> Any:
        """Return the function's value.

        Raises:
            InvalidArguments: the arguments are invalid.
            ConfigError: an injected value is missing.
        """
        values, _ = bind_once(self._tool.inputs, arguments, self.name, EngineSettings())
        filled = self._tool.fill(dict(values), context)
        if self._tool.kind == "async":
            return await self._tool.invoke_raw(filled, context)
        value = await asyncio.to_thread(self._tool.invoke_raw, filled, context)
        return await value if inspect.isawaitable(value) else value


class Prompt(DeclaredFunction):
    """A reusable opening of a conversation: a function that returns a string, a `Message`, or a list of them."""

    def __init__(self, fn: Any, declaration: Declaration) -> None:
        super().__init__(fn, declaration)
        self.role: Role = declaration.role

    async def render(self, arguments: Arguments = None, context: ToolContext[Any] | None = None) -> list[Message]:
        """Return the prompt's messages.

        Raises:
            InvalidArguments: the arguments are invalid.
            ConfigError: an injected value is missing.
        """
        return self._to_messages(await self._run(arguments, ToolContext() if context is None else context))

    def _to_messages(self, value: Any) -> list[Message]:
        if isinstance(value, Message):
            return [value]
        if isinstance(value, str) or type(value) in CONTENT_TYPES:
            return [Message(self.role, value)]
        if isinstance(value, Iterable):
            return [message for item in value for message in self._to_messages(item)]
        raise DefinitionError(
            f"Prompt {self.name!r} returned {type(value).__name__}. Return a string, a Message, or a list of them."
        )

    def __repr__(self) -> str:
        return f"<Prompt {self.name!r}>"


class RenamedPrompt(Prompt):
    """A prompt under another name."""

    def __init__(self, inner: Prompt, name: str) -> None:
        self.inner = inner
        self.role = inner.role
        self._name = name
        if (entry := getattr(inner, "entry", None)) is not None:
            self.entry = entry

    @property
    @override
    def name(self) -> str:
        return self._name

    @property
    @override
    def description(self) -> str:
        return self.inner.description

    @property
    @override
    def input_schema(self) -> JsonSchema:
        return self.inner.input_schema

    @property
    @override
    def origin(self) -> str:
        return self.inner.origin

    @override
    async def render(self, arguments: Arguments = None, context: ToolContext[Any] | None = None) -> list[Message]:
        return await self.inner.render(arguments, context)


def rename_prompt(prompt: Prompt, name: str) -> Prompt:
    """Return a prompt under the given name."""
    return prompt if prompt.name == name else RenamedPrompt(prompt, name)
