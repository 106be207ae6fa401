"""Offer only a few tools of a large toolbox, and let the model search for others with `find_tools`.

The names of found tools are read from the conversation, so that a resumed run offers the same tools.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from pydantic_core import from_json

from toolmason._core.catalog.catalog import FIND_TOOLS
from toolmason._core.define.context import ToolContext
from toolmason._core.define.decorators import Declaration, Param
from toolmason._core.define.tool import FunctionTool
from toolmason._core.toolbox.exchange import ModelReply, ModelRequest
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.definition import ToolDefinition, ToolOptions
from toolmason._core.values.messages import Message
from toolmason._explain import explain_arguments
from toolmason.build.check.provider_limits import estimate_tokens
from toolmason.chat.loop import ModelTurn, NextStep
from toolmason.chat.tools import RequestTools
from toolmason.errors import ConfigError
from toolmason.models.lexical.index import ToolIndex
from toolmason.models.protocol import Model

_MAX_DESCRIPTION_CHARS: Final = 200
_MAX_CACHED_INDEXES: Final = 8
_index_cache: OrderedDict[tuple[int, ...], ToolIndex] = OrderedDict()


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Settings for tool search in a chat."""

    budget: int = 8000
    """Approximate number of tokens of definitions up to which all tools are offered."""
    limit: int = 8
    """Maximum number of tools that one search returns."""
    always_offer: tuple[str, ...] = ()
    """Names of tools that are always offered."""
    native: bool = False
    """True to use the provider's own search: it receives all definitions and loads those it finds."""

    @explain_arguments
    def __post_init__(self) -> None:
        object.__setattr__(self, "always_offer", tuple(self.always_offer))
        if self.budget < 0 or self.limit < 1:
            raise ConfigError(
                f"Search(budget={self.budget!r}, limit={self.limit!r}): budget must be at least 0, limit at least 1."
            )

    @classmethod
    def parse(cls, value: Search | str | None, model: Model) -> Search | None:
        """Parse the value of `Chat(search=...)`.

        Raises:
            ConfigError: the value is not "auto", a `Search` or None, or the model's provider has no search.
        """
        native_search = getattr(getattr(model, "codec", None), "search_tool", None)
        if isinstance(value, Search) and value.native and native_search is None:
            raise ConfigError(f"Search(native=True): {model.name} has no built-in tool search. Omit `native`.")
        if value is None or isinstance(value, Search):
            return value
        if value != "auto":
            raise ConfigError(f'search={value!r}: must be "auto", a `Search(...)` or None.')
        return cls()


class ToolSearch:
    """Search of one run: an advisor around each turn, and the `find_tools` tool."""

    def __init__(self, settings: Search, definitions: Sequence[ToolDefinition]) -> None:
        self.settings = settings
        self._index = _get_index(tuple(definitions))
        self._always_offered = frozenset(settings.always_offer)
        hidden_count = sum(definition.name not in self._always_offered for definition in definitions)
        self.tool = _make_search_tool(self._index, settings.limit, hidden_count)

    async def __call__(self, turn: ModelTurn, call_next: NextStep) -> ModelReply:
        """Run a turn with only the tools that are always offered or were found. The model cannot call the others."""
        request = turn.request
        choice = request.tool_choice
        wanted_names = [*collect_found_names(request.messages), *(choice.names if choice is not None else ())]
        offered = self.select_tools(request.tools, wanted_names)
        if self.settings.native:
            return await call_next(self._defer_tools(turn, offered))
        return await call_next(replace(turn, request=request.with_messages(request.messages, tools=offered)))

    @staticmethod
    def _defer_tools(turn: ModelTurn, offered: Sequence[ToolDefinition]) -> ModelTurn:
        request = turn.request
        offered_names = {tool.name for tool in offered}
        tools = tuple(tool for tool in request.tools if tool.name != FIND_TOOLS)
        options = {**request.options, "defer": tuple(tool.name for tool in tools if tool.name not in offered_names)}
        return replace(turn, request=request.with_messages(request.messages, tools=tools, options=options))

    def select_tools(self, tools: Iterable[ToolDefinition], wanted_names: Iterable[str]) -> tuple[ToolDefinition, ...]:
        """Return the tools of a turn: those always offered, then the found ones in order."""
        by_name = {tool.name: tool for tool in tools}
        # Constant tools come first: a provider's prompt cache is valid only while the prefix is unchanged.
        always_offered = [name for name in by_name if name in self._always_offered or name not in self._index.names]
        return tuple(by_name[name] for name in dict.fromkeys([*always_offered, *wanted_names]) if name in by_name)


def collect_found_names(messages: Iterable[Message]) -> list[str]:
    """Return the names that searches in a conversation have found, each once, in order."""
    found: list[str] = []
    for message in messages:
        for result in message.results:
            if result.name == FIND_TOOLS and result.ok:
                found += _parse_names(result.text)
    return list(dict.fromkeys(found))


def _parse_names(text: str) -> list[str]:
    try:
        tools = from_json(text)["tools"]
        return [tool["name"] for tool in tools if isinstance(tool["name"], str)]
    except (ValueError, KeyError, TypeError):
        return []


def _get_index(definitions: tuple[ToolDefinition, ...]) -> ToolIndex:
    key = tuple(map(id, definitions))
    cached = _index_cache.get(key)
    if cached is None:
        # The index holds the definitions, so their ids stay unique while it is cached.
        cached = _index_cache[key] = ToolIndex(definitions)
        while len(_index_cache) > _MAX_CACHED_INDEXES:
            _index_cache.popitem(last=False)
    return cached


def _make_search_tool(index: ToolIndex, limit: int, hidden_count: int) -> FunctionTool:
    def find_tools(
        query: Annotated[str, Param(description="What the tool should do, in a few keywords")],
    ) -> dict[str, Any]:
        found = index.find(query, limit)
        tools = [{"name": tool.name, "description": tool.description[:_MAX_DESCRIPTION_CHARS]} for tool in found]
        if not tools:
            return {"tools": [], "hint": "No tool matches. Try other keywords, or answer without tools."}
        return {"tools": tools}

    find_tools.__doc__ = (
        f"Find tools by what they do. {hidden_count} tools are not listed here; "
        "you can call the ones you find by name from your next turn on."
    )
    options = ToolOptions(
        read_only=True,
        runs_on="loop",
        repeats="allow",
        max_result_bytes=1 << 20,
        overrides_builtin=True,
    )
    return FunctionTool(find_tools, Declaration("tool", options=options, output_schema=False))


async def add_search(
    search: Search, request_tools: RequestTools, context: ToolContext[Any] | None
) -> ToolSearch | None:
    """Add the tool that searches the tools of a request. Return its advisor, or None if all tools are offered.

    Raises:
        ConfigError: a tool in `always_offer` does not exist.
    """
    if FIND_TOOLS in request_tools.box:
        return None
    tools = ModelRequest((), request_tools.box).tools
    if unknown := set(search.always_offer) - {tool.name for tool in tools}:
        raise ConfigError(f"Search(always_offer={min(unknown)!r}): no such tool. Remove it.")
    hidden = await request_tools.find_disabled(context)
    visible = [tool for tool in tools if tool.name not in hidden]
    if sum(map(estimate_tokens, visible)) <= search.budget:
        return None
    found = ToolSearch(search, visible)
    request_tools.join(Toolbox(found.tool))
    return found
