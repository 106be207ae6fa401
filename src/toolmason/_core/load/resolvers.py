"""A name → a tool: from a fixed set, from what is installed, from an import path.

Lives here: the resolvers that we bring. Each has `resolve(name)` and `names`; a name that differs in case alone
fits where it is the only one. Not here: which resolver is asked when (`catalog`, `toolbox`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from toolmason._core.catalog.catalog import Catalog, local_items_from
from toolmason._core.catalog.discovery import import_target
from toolmason._core.define.tool import Tool
from toolmason._core.load.plugins import GROUP, from_entry_points


class _Shelf:
    """Tools that are put up when the first is asked for, once."""

    def __init__(self, fill: Callable[[], Catalog]) -> None:
        self._fill: Callable[[], Catalog] | None = fill
        self._catalog = Catalog()
        # Held while foreign modules are imported, and those may ask again.
        self._lock = threading.RLock()

    def _filled(self) -> Catalog:
        with self._lock:
            if self._fill is not None:
                self._catalog, self._fill = self._fill(), None
            return self._catalog

    def resolve(self, name: str) -> Tool | None:
        """Return the tool of that name, or `None`."""
        return self._filled().find(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it knows, sorted."""
        return tuple(sorted(self._filled().tools))


class StaticResolver(_Shelf):
    """Finds tools by name among sources that you give: whatever a toolbox takes."""

    def __init__(self, *sources: Any) -> None:
        super().__init__(lambda: _catalog_of(*sources))
        self._filled()  # what is no source is told now, not at the first call


class EntryPointResolver(_Shelf):
    """Finds tools by name among those that installed distributions offer; they are loaded at the first look-up."""

    def __init__(self, group: str = GROUP, *, app: Any = None, strict: bool = False) -> None:
        super().__init__(lambda: _catalog_of(from_entry_points(group, app, strict=strict)))


class ImportResolver(_Shelf):
    """Finds tools by name at import paths, `package.module:name`; they are imported at the first look-up."""

    def __init__(self, *targets: str) -> None:
        super().__init__(lambda: _catalog_of(*map(import_target, targets)))


def _catalog_of(*sources: Any) -> Catalog:
    catalog = Catalog()
    for source in sources:
        for item in local_items_from(source):
            catalog.add(item)
    return catalog
