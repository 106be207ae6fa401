"""Resolvers that find tools by name: among given sources, installed plugins or import paths."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

from toolmason._core.catalog.catalog import Catalog, iter_local_items
from toolmason._core.catalog.discovery import import_target
from toolmason._core.define.tool import Tool
from toolmason._core.load.plugins import ENTRY_POINT_GROUP, from_entry_points


class LazyCatalog:
    """A catalog that is loaded once, at the first lookup."""

    def __init__(self, load: Callable[[], Catalog]) -> None:
        self._load = cache(load)
        # Reentrant: loading imports foreign modules, which may look up names again.
        self._lock = threading.RLock()

    def _get_catalog(self) -> Catalog:
        with self._lock:
            return self._load()

    def resolve(self, name: str) -> Tool | None:
        """Return the tool of that name, or `None`."""
        return self._get_catalog().find(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The known names, sorted."""
        return tuple(sorted(self._get_catalog().tools))


class StaticResolver(LazyCatalog):
    """Resolver for tools of the given sources, which may be anything that a toolbox accepts."""

    def __init__(self, *sources: Any) -> None:
        super().__init__(lambda: _make_catalog(*sources))
        self._get_catalog()  # report an invalid source now instead of at the first call


class EntryPointResolver(LazyCatalog):
    """Resolver for tools of installed distributions, loaded at the first lookup."""

    def __init__(self, group: str = ENTRY_POINT_GROUP, *, app: Any = None, strict: bool = False) -> None:
        super().__init__(lambda: _make_catalog(from_entry_points(group, app, strict=strict)))


class ImportResolver(LazyCatalog):
    """Resolver for tools at import paths, `package.module:name`, imported at the first lookup."""

    def __init__(self, *targets: str) -> None:
        super().__init__(lambda: _make_catalog(*map(import_target, targets)))


def _make_catalog(*sources: Any) -> Catalog:
    catalog = Catalog()
    for source in sources:
        for item in iter_local_items(source):
            catalog.add(item)
    return catalog
