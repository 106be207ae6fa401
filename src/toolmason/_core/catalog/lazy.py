"""Tools that are listed by definition and loaded on first use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from typing_extensions import override

from toolmason._core.define.context import ToolContext
from toolmason._core.define.inputs import Inputs
from toolmason._core.define.schema_nodes import TypeSchema
from toolmason._core.define.tool import Tool
from toolmason._core.values.definition import ToolDefinition, ToolOptions


class _Loaded:
    """An attribute of the loaded tool."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, tool: LazyTool | None, owner: type) -> Any:
        return self if tool is None else getattr(tool.load(), self.name)


class LazyTool(Tool):
    """A tool that is listed by its definition and loaded when any other attribute is needed."""

    kind: Any = _Loaded()
    returns: Any = _Loaded()
    substitutable: Any = _Loaded()
    accepts_extra: Any = _Loaded()
    on_arguments: Any = _Loaded()
    plain_function: Any = _Loaded()
    root: Any = _Loaded()
    fill: Any = _Loaded()
    invoke_raw: Any = _Loaded()
    get_argument: Any = _Loaded()
    picklable_call: Any = _Loaded()

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
    def load(self) -> Tool:
        # Two threads may both load it; both use the first result, because limits are counted per tool.
        attributes: dict[str, Tool] = vars(self)
        return attributes["loaded"] if "loaded" in attributes else attributes.setdefault("loaded", self.loader())

    @cached_property
    @override
    def inputs(self) -> Inputs:
        return self.load().inputs

    @cached_property
    @override
    def output(self) -> TypeSchema | None:
        return self.load().output

    @override
    async def invoke(self, arguments: dict[str, Any], context: ToolContext[Any]) -> Any:
        return await self.load().invoke(arguments, context)

    def with_definition(self, definition: ToolDefinition, change: Callable[[Tool], Tool]) -> LazyTool:
        """Return a lazy tool with another definition. `change` converts the tool after loading."""
        changed = LazyTool(definition, self.options, self.place, lambda: change(self.load()))
        changed.policies = self.policies
        return changed
