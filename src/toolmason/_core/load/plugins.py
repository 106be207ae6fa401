"""Entry points and the modules of a package → the tools that they offer, and what is broken in them.

Lives here: loading, who offers what, clashes between distributions. Loading runs the code of the plugin.
Not here: making a toolbox of it (`gather`), or finding tools by name (`resolvers`).
"""

from __future__ import annotations

import importlib
import inspect
import logging
import pkgutil
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from toolmason._core.catalog.catalog import Item, ToolSource, local_items_from, refuse_builtin_name
from toolmason._core.catalog.discovery import load_module
from toolmason._core.catalog.resources import Resource
from toolmason._core.define.decorators import declared_on
from toolmason._core.define.tool import Tool
from toolmason._core.load.manifest import Shelf, find_manifest, has_manifest
from toolmason._core.load.supported_for import is_supported
from toolmason.errors import ConfigError, DefinitionError, DuplicateTool, PluginError, text_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


GROUP: Final = "toolmason.tools"
"""The group of entry points that tools are offered under."""

_log = logging.getLogger("toolmason")


@dataclass(eq=False, repr=False)
class Offers:
    """Tools and prompts, each with who offers it; a source of a toolbox."""

    strict: bool = False
    """Whether something broken is raised, and not only told."""
    found: list[PluginError] = field(default_factory=list)
    held: dict[tuple[bool, str], tuple[Item, str]] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[PluginError, ...]:
        """What had to be left out, and why."""
        return tuple(self.found)

    def __tools__(self) -> Iterator[Item]:
        return (item for item, _ in self.held.values())

    def take(self, items: Iterable[Item], who: str) -> None:
        """Add what someone offers.

        Raises:
            DuplicateTool: someone else offers another tool of that name; names both.
        """
        for item in items:
            key = isinstance(item, Tool), item.uri if isinstance(item, Resource) else item.name
            if key not in self.held:
                self.held[key] = item, who
            elif not _is_same(self.held[key][0], item):
                first, first_who = self.held[key]
                raise DuplicateTool(item.name, f"{first.origin} of {first_who}", f"{item.origin} of {who}")

    def refuse(self, problem: PluginError, cause: BaseException | None) -> None:
        """Report something broken.

        Raises:
            PluginError: this is strict.
        """
        if self.strict:
            raise problem from cause
        problem.__cause__ = cause
        _log.warning("skipped: %s", problem)
        self.found.append(problem)


def _is_same(one: Item, other: Item) -> bool:
    if isinstance(one, Tool) and isinstance(other, Tool):
        one, other = one.root, other.root
    fn = getattr(one, "fn", one)
    return one is other or fn == getattr(other, "fn", other)


# --- entry points ------------------------------------------------------------------------------


def from_entry_points(group: str, application: Any, *, strict: bool) -> Offers:
    """Load every entry point of a group, by distribution and name.

    Raises:
        DuplicateTool: two of them offer a tool of one name; names both distributions.
        PluginError: one is broken, and this is strict.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms at start-up, for programs that discover

    offers = Offers(strict)
    points = {(point.name, point.value, _distribution(point)): point for point in entry_points(group=group)}
    for point in sorted(points.values(), key=_rank):
        who = _distribution(point)
        try:
            shelf = _shelf_of(point.value)
            items = list(_offered(point.load(), application) if shelf is None else shelf.__tools__())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin is foreign code; it must not stop the others
            offers.refuse(PluginError(point.name, point.value, _reason(error), distribution=who), error)
        else:
            offers.take(items, f"distribution {who!r} (entry point {point.name!r})")
    return offers


def _shelf_of(value: str) -> Shelf | None:
    """Return the manifest of the package that an entry point names, which lists its tools without loading them.

    One that leaves out what is for some applications only will not do.
    """
    if ":" in value or not has_manifest(value):
        return None
    shelf = find_manifest(value)
    return None if shelf.manifest.partial else shelf


def _rank(point: EntryPoint) -> tuple[str, str, str]:
    # As PEP 503 says which names of distributions are the same.
    return re.sub(r"[-_.]+", "-", _distribution(point)).lower(), point.name, point.value


def _distribution(point: EntryPoint) -> str:
    try:
        found: Any = point.dist.name if point.dist is not None else None
    except Exception:  # noqa: BLE001 - the metadata of a distribution may be damaged in any way
        found = None
    return str(found or "(unknown)")


def _reason(error: BaseException) -> str:
    if isinstance(error, DefinitionError):
        return text_of(error).rstrip(".")
    return f"{type(error).__name__}: {text_of(error)}".rstrip(": .")


def _offered(source: Any, application: Any) -> Iterator[Item]:
    """Yield the tools and prompts of what an entry point names, as far as they are for an application."""
    if not is_supported(source, application):
        return
    made = instance_of(source) if isinstance(source, type) else source
    if isinstance(made, str):
        raise DefinitionError(f"it is the text {made!r}. Name a module, function, class or toolbox")
    for item in local_items_from(made):
        if isinstance(item, Tool):
            refuse_builtin_name(item)
        if is_supported(getattr(item.root if isinstance(item, Tool) else item, "fn", None), application):
            yield item


def instance_of(cls: type) -> Any:
    """Return an object of a bundle class that needs no arguments; a class that needs some stays a class."""
    try:
        inspect.signature(cls).bind()
    except (TypeError, ValueError):
        return cls
    return cls()


# --- the modules of a package ------------------------------------------------------------------


def from_package(package: str | ModuleType, application: Any, *, strict: bool) -> Offers:
    """Import every module of a package, and take what is decorated in it.

    Raises:
        ConfigError: there is no such package.
        DuplicateTool: two modules have a tool of one name.
        PluginError: a module cannot be imported, or a bundle cannot be made, and this is strict.
    """
    offers = Offers(strict)
    if isinstance(package, str):
        try:
            root = load_module(package, package)
        except ConfigError as error:
            if isinstance(error.__cause__, ModuleNotFoundError) or error.__cause__ is None:
                raise
            offers.refuse(PluginError(package, package, _reason(error.__cause__)), error.__cause__)
            return offers
    else:
        root = package
    modules = list(_modules(root, offers))
    bundles = [item for module in modules for item in _bundles(module)]
    for module in modules:
        for name, item in _decorated(module, root.__name__, bundles):
            if not (is_supported(module, application) and is_supported(item, application)):
                continue
            try:
                offers.take(_offered(item, application), f"module {module.__name__!r}")
            except DuplicateTool:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001 - making a bundle runs foreign code
                offers.refuse(PluginError(name, f"{module.__name__}:{name}", _reason(error)), error)
    return offers


def _modules(root: ModuleType, offers: Offers) -> Iterator[ModuleType]:
    """Yield a module and those below it, in the order of their names."""
    yield root
    for _, name, _ in sorted(pkgutil.iter_modules(getattr(root, "__path__", ()), f"{root.__name__}.")):
        # `__main__` is a program: importing it would run it.
        if name.rpartition(".")[2] == "__main__":
            continue
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a module that fails must not stop the others
            offers.refuse(PluginError(name, name, _reason(error)), error)
        else:
            yield from _modules(module, offers)


def _bundles(module: ModuleType) -> Iterator[type]:
    """Yield the public classes that a module defines, and that have decorated methods."""
    for name, item in vars(module).items():
        own = isinstance(item, type) and item.__module__ == module.__name__ and item.__name__ == name
        if own and not name.startswith("_") and not inspect.isabstract(item) and _is_bundle(item):
            yield item


def _is_bundle(cls: type) -> bool:
    return any(declared_on(item) is not None for owner in cls.__mro__ for item in vars(owner).values())


def _decorated(module: ModuleType, package: str, bundles: list[type]) -> Iterator[tuple[str, Any]]:
    for name, item in list(vars(module).items()):
        if isinstance(item, type):
            # A class that another bundle extends is there for that one.
            above = [other for bundle in bundles for other in bundle.__mro__ if bundle is not item]
            own = item.__module__ == module.__name__ and any(item is bundle for bundle in bundles)
            if own and not any(item is other for other in above):
                yield name, item
        elif isinstance(item, Tool) or (declared_on(item) is not None and not isinstance(item, ToolSource)):
            home = str(getattr(item, "__module__", package))
            if isinstance(item, Tool) or home == package or home.startswith(f"{package}."):
                yield name, item
