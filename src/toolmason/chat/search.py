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
from toolmason.build.check.provider_limits import tokens_of
from toolmason.chat.loop import Next, Turn, with_messages
from toolmason.errors import ConfigError
from toolmason.models.lexical.index import ToolIndex
from toolmason.models.protocol import Model

_LONGEST_NOTE: Final = 200
_REMEMBERED: Final = 8
_indexes: OrderedDict[tuple[int, ...], ToolIndex] = OrderedDict()


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
    def of(cls, wanted: Search | str | None, model: Model) -> Search | None:
        """Read what `Chat(search=...)` was given.

        Raises:
            ConfigError: it is neither "auto", a `Search` nor nothing, or the model's provider has no search.
        """
        if (
            isinstance(wanted, Search)
            and wanted.native
            and getattr(getattr(model, "codec", None), "search", None) is None
        ):
            raise ConfigError(f"Search(native=True): {model.name} has no search of its own. Leave `native` out.")
        if wanted is None or isinstance(wanted, Search):
            return wanted
        if wanted != "auto":
            raise ConfigError(f'search={wanted!r}: give "auto", a `Search(...)`, or leave it out.')
        return cls()


class Searching:
    """The search of one run: an advisor around each turn, and the tool that the model searches with."""

    def __init__(self, terms: Search, definitions: Sequence[ToolDefinition]) -> None:
        self.terms, self._index = terms, _index_of(tuple(definitions))
        self._kept = frozenset(terms.keep)
        hidden = sum(definition.name not in self._kept for definition in definitions)
        self.tool = _tool(self._index, terms.most, hidden)

    @classmethod
    def over(cls, box: Toolbox, terms: Search | None) -> Searching | None:
        """Return a search for a toolbox; `None` where nothing is held back.

        Raises:
            ConfigError: a tool that is always to be offered is not there.
        """
        if terms is None or FIND_TOOLS in box:
            return None
        tools = ModelRequest((), box).tools
        if unknown := set(terms.keep) - {tool.name for tool in tools}:
            raise ConfigError(f"Search(keep={min(unknown)!r}): there is no such tool. Leave it out.")
        return cls(terms, tools) if sum(map(tokens_of, tools)) > terms.budget else None

    async def __call__(self, turn: Turn, following: Next) -> ModelReply:
        """Ask for a turn with the tools that are kept or found; the others cannot be called in it."""
        request = turn.request
        choice = request.tool_choice
        wanted = [*found_in(request.messages), *(choice.names if choice is not None else ())]
        offered = self.offered(request.tools, wanted)
        if self.terms.native:
            return await following(self._deferred(turn, offered))
        narrowed = with_messages(request, request.messages, tools=offered)
        return await following(Turn(narrowed, turn.number, turn.conversation, turn.run))

    @staticmethod
    def _deferred(turn: Turn, offered: Sequence[ToolDefinition]) -> Turn:
        request = turn.request
        there = {tool.name for tool in offered}
        tools = tuple(tool for tool in request.tools if tool.name != FIND_TOOLS)
        options = {**request.options, "defer": tuple(tool.name for tool in tools if tool.name not in there)}
        narrowed = with_messages(request, request.messages, tools=tools, options=options)
        return Turn(narrowed, turn.number, turn.conversation, turn.run)

    def offered(self, tools: Iterable[ToolDefinition], wanted: Iterable[str]) -> tuple[ToolDefinition, ...]:
        """Return the tools of a turn: those that are always there, then what was found, in the order it was found."""
        known = {tool.name: tool for tool in tools}
        # What is there in every turn stands first: a provider's cache holds as long as the beginning is the same.
        first = [name for name in known if name in self._kept or name not in self._index.names]
        return tuple(known[name] for name in dict.fromkeys([*first, *wanted]) if name in known)


def found_in(messages: Iterable[Message]) -> list[str]:
    """Return the names that searches in a conversation have found, each once, in order."""
    found: list[str] = []
    for message in messages:
        for result in message.results:
            if result.name == FIND_TOOLS and result.ok:
                found += _names_in(result.text)
    return list(dict.fromkeys(found))


def _names_in(text: str) -> list[str]:
    try:
        tools = from_json(text)["tools"]
        return [tool["name"] for tool in tools if isinstance(tool["name"], str)]
    except (ValueError, KeyError, TypeError):
        return []


def _index_of(definitions: tuple[ToolDefinition, ...]) -> ToolIndex:
    key = tuple(map(id, definitions))
    known = _indexes.get(key)
    if known is None:
        # The index holds the definitions: as long as it lives, no other object has their identity.
        known = _indexes[key] = ToolIndex(definitions)
        while len(_indexes) > _REMEMBERED:
            _indexes.popitem(last=False)
    return known


def _tool(index: ToolIndex, most: int, hidden: int) -> FunctionTool:
    def find_tools(
        query: Annotated[str, Param(description="What the tool should do, in a few words")],
    ) -> dict[str, Any]:
        found = index.find(query, most)
        tools = [{"name": tool.name, "description": tool.description[:_LONGEST_NOTE]} for tool in found]
        return {"tools": tools} if tools else {"tools": [], "hint": "Nothing fits. Use other words, or answer without."}

    find_tools.__doc__ = (
        f"Find tools by what they do. {hidden} tools are not listed here; "
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
