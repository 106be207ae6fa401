"""What a toolbox offers → the pages of its lists, made once for each change.

Lives here: entries, pages with cursors that say nothing to a client, which list a change has touched, completions.
Not here: how an entry looks (`wire`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._core.values.policy import Inherit
from toolmason.mcp_server.encode import link_entry, mcp_of, prompt_entry, template_entry, tool_entry

PAGE: Final = 1000
COMPLETIONS: Final = 100
KINDS: Final = ("tools", "prompts", "resources")


class BadCursor(Exception):
    """A cursor that we did not give."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a call needs to know of its tool."""

    structured: bool
    """Whether it promises structured content."""
    task: str | None
    """Whether its calls become tasks: `optional`, `required`, `after_input`."""
    headers: bool
    """Whether a parameter is mirrored in a header."""
    schema: Mapping[str, Any]
    says_on_error: bool = False
    """Whether the tool says by itself what becomes of its failures."""


@dataclass(slots=True, eq=False, repr=False)
class Lists:
    """The lists of a toolbox, as they were when they were last asked for."""

    box: Toolbox
    page: int = PAGE
    stale: bool = True
    tools: list[dict[str, Any]] = field(default_factory=list)
    prompts: list[dict[str, Any]] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    templates: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[str, Facts] = field(default_factory=dict)
    version: int = 0
    """Another number whenever the lists were made anew."""

    async def fresh(self) -> Lists:
        """Make the lists anew where something has changed; servers are asked for theirs."""
        found = await self.box.list()
        if self.stale or len(found) != len(self.tools):
            self._make(found)
        return self

    def _make(self, tools: Sequence[Tool]) -> None:
        self.stale = False
        self.tools = list(map(tool_entry, tools))
        self.facts = {tool.name: _facts_of(tool, entry) for tool, entry in zip(tools, self.tools, strict=True)}
        self.prompts = list(map(prompt_entry, self.box.prompts))
        behind, own = self.box.__behind__(), {item.uri: item for item in self.box.own_resources}
        listed = {uri: dict(entry) for uri, entry in behind.listed.items() if uri not in own}
        self.resources = [listed.get(link.uri) or link_entry(link) for link in self.box.resources]
        self.templates = [template_entry(item) for item in own.values() if item.parameters]
        self.templates += [dict(entry) for entry in behind.templates if entry.get("uriTemplate") not in own]
        self.version += 1

    def now(self) -> dict[str, Any]:
        """Return what each list holds at this moment, to tell which one a change has touched."""
        self._make(self.box.tools)
        return {"tools": self.tools, "prompts": self.prompts, "resources": [self.resources, self.templates]}

    def facts_of(self, name: str) -> Facts | None:
        """Return what a call needs to know of a tool; `None` where there is none of that name."""
        if self.stale:
            self._make(self.box.tools)
        found = self.facts.get(name)
        if found is None and name in self.box:
            tool = self.box[name]
            found = self.facts[name] = _facts_of(tool, tool_entry(tool))
        return found

    def part(self, entries: Sequence[Any], cursor: str | None) -> tuple[Sequence[Any], str | None]:
        """Return a page, and the cursor of the next one.

        Raises:
            BadCursor: the cursor is not one of ours.
        """
        start = 0 if cursor is None else _place(cursor)
        if start and start >= len(entries):
            raise BadCursor
        end = start + self.page
        return entries[start:end], _cursor(end) if end < len(entries) else None


def _facts_of(tool: Tool, entry: Mapping[str, Any]) -> Facts:
    schema = entry["inputSchema"]
    task = mcp_of(tool).get("task")
    return Facts(
        structured="outputSchema" in entry,
        task=task if task in ("optional", "required", "after_input") else None,
        headers="x-mcp-header" in str(schema),
        schema=schema,
        says_on_error=not isinstance(tool.options.on_error, Inherit),
    )


def _cursor(place: int) -> str:
    return base64.urlsafe_b64encode(f"page:{place}".encode()).decode("ascii")


def _place(cursor: str) -> int:
    try:
        word, _, place = base64.b64decode(cursor, altchars=b"-_", validate=True).decode("ascii").partition(":")
        number = int(place)
    except (binascii.Error, ValueError):
        raise BadCursor from None
    if word != "page" or number <= 0 or _cursor(number) != cursor:
        raise BadCursor
    return number


def completions(schema: Mapping[str, Any], name: str, begun: str) -> list[str]:
    """Return the values that a parameter may have and that begin as the user has begun."""
    part = schema.get("properties", {}).get(name, {})
    if "$ref" in part:
        part = schema.get("$defs", {}).get(str(part["$ref"]).removeprefix("#/$defs/"), {})
    values = part.get("enum") or ([part["const"]] if "const" in part else part.get("examples") or [])
    words = [str(value) for value in values if value is not None]
    return [word for word in words if word.casefold().startswith(begun.casefold())]
