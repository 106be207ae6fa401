"""Other looks at the same tools: some of them, under other names, together with others.

Lives here: the views of a toolbox. They share its tools, policy and connections, and copy nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Self

from typing_extensions import TypedDict, Unpack

from toolwright._core.catalog import Catalog, matches
from toolwright._core.tool import Tool
from toolwright.errors import DefinitionError


class EffectWords(TypedDict, total=False):
    """Effects to select by."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool


class Views(ABC):
    """What can be seen of a toolbox."""

    _catalog: Catalog

    @abstractmethod
    def _with(self, catalog: Catalog, *, closed: bool = False) -> Self:
        """Return a toolbox over another catalog, with everything else shared; a closed one asks no resolver."""

    def select(self, *patterns: str, tags: Iterable[str] = (), **effects: Unpack[EffectWords]) -> Self:
        """Return a view with the tools that match a pattern (any, where none are given), tags and effects.

        Patterns are those of file names: `get_*`.
        """
        wanted = frozenset([tags] if isinstance(tags, str) else tags)
        given = {name: bool(value) for name, value in effects.items()}

        def keep(tool: Tool) -> bool:
            return (not patterns or any(fnmatchcase(tool.name, p) for p in patterns)) and matches(tool, wanted, given)

        return self._with(self._catalog.where(keep), closed=True)

    def exclude(self, *patterns: str, tags: Iterable[str] = ()) -> Self:
        """Return a view without the tools that match a pattern or carry one of the tags."""
        unwanted = frozenset([tags] if isinstance(tags, str) else tags)

        def keep(tool: Tool) -> bool:
            return not any(fnmatchcase(tool.name, p) for p in patterns) and not (unwanted & tool.options.tags)

        return self._with(self._catalog.where(keep), closed=True)

    def prefixed(self, prefix: str) -> Self:
        """Return a view in which every tool's name begins with `prefix`."""
        return self._with(self._catalog.named(lambda name: f"{prefix}{name}"))

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return a view with some tools under other names: `{"old": "new"}`.

        Raises:
            DefinitionError: there is no tool of an old name.
        """
        if unknown := names.keys() - self._catalog.tools.keys():
            there = ", ".join(sorted(self._catalog.tools)) or "none"
            raise DefinitionError(f"renamed({{{min(unknown)!r}: ...}}): there is no such tool. There are: {there}.")
        return self._with(self._catalog.named(lambda name: names.get(name, name)))

    def __or__(self, other: Views) -> Self:
        """Return a toolbox with the tools of both, under this one's policy."""
        return self._with(self._catalog.joined(other._catalog))
