"""A name → a tool: from a fixed set, from what is installed, from an import path.

Lives here: the resolvers that we bring. Each has `resolve(name)` and `names`; a name that differs in case alone
fits where it is the only one. Not here: which resolver is asked when (`catalog`, `toolbox`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from toolmason._core.catalog.catalog import Catalog, iter_local_items
from toolmason._core.catalog.discovery import import_target
from toolmason._core.define.tool import Tool
from toolmason._core.load.plugins import ENTRY_POINT_GROUP, from_entry_points


class LazyCatalog:
    """Tools that are put up when the first is asked for, once."""

    def __init__(self, load: Callable[[], Catalog]) -> None:
        self._load: Callable[[], Catalog] | None = load
        self._catalog = Catalog()
        # Held while foreign modules are imported, and those may ask again.
        self._lock = threading.RLock()

    def _get_catalog(self) -> Catalog:
        with self._lock:
            if self._load is not None:
                self._catalog, self._load = self._load(), None
            return self._catalog

    def resolve(self, name: str) -> Tool | None:
        """Return the tool of that name, or `None`."""
        return self._get_catalog().find(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names that it knows, sorted."""
        return tuple(sorted(self._get_catalog().tools))


class StaticResolver(LazyCatalog):
    """Finds tools by name among sources that you give: whatever a toolbox takes."""

    def __init__(self, *sources: Any) -> None:
        super().__init__(lambda: _make_catalog(*sources))
        self._get_catalog()  # what is no source is told now, not at the first call


class EntryPointResolver(LazyCatalog):
    """Finds tools by name among those that installed distributions offer; they are loaded at the first look-up."""

    def __init__(self, group: str = ENTRY_POINT_GROUP, *, app: Any = None, strict: bool = False) -> None:
        super().__init__(lambda: _make_catalog(from_entry_points(group, app, strict=strict)))


class ImportResolver(LazyCatalog):
    """Finds tools by name at import paths, `package.module:name`; they are imported at the first look-up."""

    def __init__(self, *targets: str) -> None:
        super().__init__(lambda: _make_catalog(*map(import_target, targets)))


def _make_catalog(*sources: Any) -> Catalog:
    catalog = Catalog()
    for source in sources:
        for item in iter_local_items(source):
            catalog.add(item)
    return catalog
