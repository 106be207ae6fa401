"""A toolbox that is too large for a prompt → a few tools, `find_tools`, and whatever it has found.

Lives here: when tools are held back, which are offered in a turn, the tool that looks for others. What was found is
read from the conversation, so a run that is resumed offers the same tools. Found tools keep their policy: they are the
toolbox's own. Not here: the index (`toolmason.models.lexical.index`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic_core import from_json

from toolmason._core.catalog.catalog import FIND_TOOLS
from toolmason._core.define.decorators import Declaration, Param
from toolmason._core.define.tool import FunctionTool
from toolmason._core.toolbox.exchange import ModelReply, ModelRequest
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.definition import ToolDefinition, ToolOptions
from toolmason._core.values.messages import Message
from toolmason.build.check.provider_limits import estimate_tokens
from toolmason.chat.loop import ModelTurn, NextStep, replace_messages
from toolmason.errors import ConfigError
from toolmason.models.lexical.index import ToolIndex
from toolmason.models.protocol import Model

_MAX_DESCRIPTION_CHARS: Final = 200
_MAX_CACHED_INDEXES: Final = 8
_index_cache: OrderedDict[tuple[int, ...], ToolIndex] = OrderedDict()


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """How a chat holds tools back."""

    budget: int = 8000
    """About how many tokens of definitions are offered without a search."""
    most: int = 8
    """How many tools one search finds at most."""
    keep: tuple[str, ...] = ()
    """Tools that are always offered."""
    native: bool = False
    """Leave the search to the provider, which is sent every definition and loads those that it finds."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", tuple(self.keep))
        if self.budget < 0 or self.most < 1:
            raise ConfigError(f"Search(budget={self.budget!r}, most={self.most!r}): give 0 or more, and 1 or more.")

    @classmethod
    def parse(cls, value: Search | str | None, model: Model) -> Search | None:
        """Read what `Chat(search=...)` was given.

        Raises:
            ConfigError: it is neither "auto", a `Search` nor nothing, or the model's provider has no search.
        """
        if (
            isinstance(value, Search)
            and value.native
            and getattr(getattr(model, "codec", None), "search_tool", None) is None
        ):
            raise ConfigError(f"Search(native=True): {model.name} has no search of its own. Leave `native` out.")
        if value is None or isinstance(value, Search):
            return value
        if value != "auto":
            raise ConfigError(f'search={value!r}: give "auto", a `Search(...)`, or leave it out.')
        return cls()


class ToolSearch:
    """The search of one run: an advisor around each turn, and the tool that the model searches with."""

    def __init__(self, settings: Search, definitions: Sequence[ToolDefinition]) -> None:
        self.settings, self._index = settings, _get_index(tuple(definitions))
        self._always_offered = frozenset(settings.keep)
        hidden_count = sum(definition.name not in self._always_offered for definition in definitions)
        self.tool = _make_search_tool(self._index, settings.most, hidden_count)

    @classmethod
    def for_toolbox(cls, box: Toolbox, settings: Search | None) -> ToolSearch | None:
        """Return a search for a toolbox; `None` where nothing is held back.

        Raises:
            ConfigError: a tool that is always to be offered is not there.
        """
        if settings is None or FIND_TOOLS in box:
            return None
        tools = ModelRequest((), box).tools
        if unknown := set(settings.keep) - {tool.name for tool in tools}:
            raise ConfigError(f"Search(keep={min(unknown)!r}): there is no such tool. Leave it out.")
        return cls(settings, tools) if sum(map(estimate_tokens, tools)) > settings.budget else None

    async def __call__(self, turn: ModelTurn, call_next: NextStep) -> ModelReply:
        """Ask for a turn with the tools that are kept or found; the others cannot be called in it."""
        request = turn.request
        choice = request.tool_choice
        wanted_names = [*collect_found_names(request.messages), *(choice.names if choice is not None else ())]
        offered = self.select_tools(request.tools, wanted_names)
        if self.settings.native:
            return await call_next(self._defer_tools(turn, offered))
        narrowed = replace_messages(request, request.messages, tools=offered)
        return await call_next(ModelTurn(narrowed, turn.number, turn.conversation, turn.run))

    @staticmethod
    def _defer_tools(turn: ModelTurn, offered: Sequence[ToolDefinition]) -> ModelTurn:
        request = turn.request
        offered_names = {tool.name for tool in offered}
        tools = tuple(tool for tool in request.tools if tool.name != FIND_TOOLS)
        options = {**request.options, "defer": tuple(tool.name for tool in tools if tool.name not in offered_names)}
        narrowed = replace_messages(request, request.messages, tools=tools, options=options)
        return ModelTurn(narrowed, turn.number, turn.conversation, turn.run)

    def select_tools(self, tools: Iterable[ToolDefinition], wanted_names: Iterable[str]) -> tuple[ToolDefinition, ...]:
        """Return the tools of a turn: those that are always there, then what was found, in the order it was found."""
        by_name = {tool.name: tool for tool in tools}
        # What is there in every turn stands first: a provider's cache holds as long as the beginning is the same.
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
        # The index holds the definitions: as long as it lives, no other object has their identity.
        cached = _index_cache[key] = ToolIndex(definitions)
        while len(_index_cache) > _MAX_CACHED_INDEXES:
            _index_cache.popitem(last=False)
    return cached


def _make_search_tool(index: ToolIndex, limit: int, hidden_count: int) -> FunctionTool:
    def find_tools(
        query: Annotated[str, Param(description="What the tool should do, in a few words")],
    ) -> dict[str, Any]:
        found = index.find(query, limit)
        tools = [{"name": tool.name, "description": tool.description[:_MAX_DESCRIPTION_CHARS]} for tool in found]
        return {"tools": tools} if tools else {"tools": [], "hint": "Nothing fits. Use other words, or answer without."}

    find_tools.__doc__ = (
        f"Find tools by what they do. {hidden_count} tools are not listed here; "
        "those that you find can be called by name from your next turn on."
    )
    options = ToolOptions(
        read_only=True,
        runs_on="loop",
        repeats="allow",
        max_result_bytes=1 << 20,
        overrides_builtin=True,
    )
    return FunctionTool(find_tools, Declaration("tool", options=options, output_schema=False))
