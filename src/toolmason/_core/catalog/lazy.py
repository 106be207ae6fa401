"""Tools and prompts that are known before their code is loaded.

Lives here: a definition and options with a way to the real thing, which is taken at the first call.
Not here: where the definitions come from (`manifest`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from typing_extensions import override

from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.context import ToolContext
from toolmason._core.define.inputs import Inputs
from toolmason._core.define.schema_nodes import TypeSchema
from toolmason._core.define.tool import Tool
from toolmason._core.values.definition import JsonSchema, ToolDefinition, ToolOptions
from toolmason._core.values.messages import Message, Role
from toolmason._core.values.results import Arguments


class _Behind:
    """A member that is the real tool's."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, listed: Listed | None, owner: type) -> Any:
        return self if listed is None else getattr(listed.ready(), self.name)


class Listed(Tool):
    """A tool that is listed by its definition, and loaded when something else is asked of it."""

    kind: Any = _Behind()
    returns: Any = _Behind()
    shown: Any = _Behind()
    open_ended: Any = _Behind()
    listener: Any = _Behind()
    direct: Any = _Behind()
    root: Any = _Behind()
    complete: Any = _Behind()
    start: Any = _Behind()
    value_of: Any = _Behind()
    crossing: Any = _Behind()

    def __init__(self, definition: ToolDefinition, options: ToolOptions, place: str, load: Callable[[], Tool]) -> None:
        self.definition, self.options = definition, options
        self.place, self.load = place, load

    @property
    @override
    def origin(self) -> str:
        return self.place

    @override
    def ready(self) -> Tool:
        # Two threads may both load it; the first one to be done gives the tool that both use, because limits are
        # counted by the tool.
        held: dict[str, Tool] = vars(self)
        return held["loaded"] if "loaded" in held else held.setdefault("loaded", self.load())

    @cached_property
    @override
    def inputs(self) -> Inputs:
        return self.ready().inputs

    @cached_property
    @override
    def output(self) -> TypeSchema | None:
        return self.ready().output

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        return await self.ready().invoke(arguments, context)

    def derived(self, definition: ToolDefinition, change: Callable[[Tool], Tool]) -> Listed:
        """Return a listed tool with another definition; `change` makes the real one when this one's is loaded."""
        return Listed(definition, self.options, self.place, lambda: change(self.ready()))


@dataclass(frozen=True, slots=True)
class PromptListing:
    """What is known of a prompt before it is loaded."""

    name: str
    description: str
    input_schema: JsonSchema
    role: Role


class ListedPrompt(Prompt):
    """A prompt that is listed, and loaded when it is rendered."""

    def __init__(self, listing: PromptListing, place: str, load: Callable[[], Prompt]) -> None:
        self.listing, self.place, self.load = listing, place, load
        self.role = listing.role

    @property
    @override
    def name(self) -> str:
        return self.listing.name

    @property
    @override
    def description(self) -> str:
        return self.listing.description

    @property
    @override
    def input_schema(self) -> JsonSchema:
        return self.listing.input_schema

    @property
    @override
    def origin(self) -> str:
        return self.place

    @cached_property
    def real(self) -> Prompt:
        """The prompt itself, loaded."""
        return self.load()

    @override
    async def render(self, arguments: Arguments = None, context: ToolContext[Any] | None = None) -> list[Message]:
        return await self.real.render(arguments, context)
