"""Load tools from entry points and from the modules of a package, and collect the errors of broken ones."""

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

from toolmason._core.catalog.catalog import CatalogItem, ToolSource, iter_local_items, refuse_builtin_name
from toolmason._core.catalog.discovery import load_module
from toolmason._core.catalog.resources import Resource
from toolmason._core.define.decorators import get_declaration
from toolmason._core.define.tool import Tool, get_root
from toolmason._core.load.manifest import LoadedManifest, find_manifest, has_manifest
from toolmason._core.load.supported_for import is_supported
from toolmason.errors import ConfigError, DefinitionError, DuplicateTool, PluginError, safe_str

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


ENTRY_POINT_GROUP: Final = "toolmason.tools"
"""Entry point group for tools."""

_log = logging.getLogger("toolmason")


@dataclass(eq=False, repr=False)
class PluginItems:
    """Tools and prompts with the distribution or module that provides each; a source for a toolbox."""

    strict: bool = False
    """True to raise errors instead of logging them."""
    errors: list[PluginError] = field(default_factory=list)
    items: dict[tuple[bool, str], tuple[CatalogItem, str]] = field(default_factory=dict)

    @property
    def problems(self) -> tuple[PluginError, ...]:
        """The errors of the plugins that were skipped."""
        return tuple(self.errors)

    def __tools__(self) -> Iterator[CatalogItem]:
        return (item for item, _ in self.items.values())

    def add(self, items: Iterable[CatalogItem], owner: str) -> None:
        """Add the items of an owner.

        Raises:
            DuplicateTool: another owner provides a different tool of that name; names both.
        """
        for item in items:
            key = (isinstance(item, Tool), item.uri if isinstance(item, Resource) else item.name)
            if key not in self.items:
                self.items[key] = item, owner
            elif not _is_same_item(self.items[key][0], item):
                first, first_owner = self.items[key]
                raise DuplicateTool(item.name, f"{first.origin} of {first_owner}", f"{item.origin} of {owner}")

    def report_problem(self, problem: PluginError, cause: BaseException | None) -> None:
        """Log and store an error.

        Raises:
            PluginError: `strict` is set.
        """
        if self.strict:
            raise problem from cause
        problem.__cause__ = cause
        _log.warning("skipped: %s", problem)
        self.errors.append(problem)


def _is_same_item(first: CatalogItem, second: CatalogItem) -> bool:
    if isinstance(first, Tool) and isinstance(second, Tool):
        first, second = get_root(first), get_root(second)
    return first is second or getattr(first, "fn", first) == getattr(second, "fn", second)


# --- entry points ------------------------------------------------------------------------------


def from_entry_points(group: str, application: Any, *, strict: bool) -> PluginItems:
    """Load every entry point of a group, ordered by distribution and name.

    Raises:
        DuplicateTool: two of them provide a tool of the same name; names both distributions.
        PluginError: one is broken and `strict` is set.
    """
    from importlib.metadata import entry_points  # noqa: PLC0415 - 20 ms at start-up, needed only for discovery

    plugin_items = PluginItems(strict)
    points = {(point.name, point.value, _get_distribution_name(point)): point for point in entry_points(group=group)}
    for point in sorted(points.values(), key=_get_sort_key):
        distribution = _get_distribution_name(point)
        try:
            manifest = _find_manifest_for(point.value)
            items = list(_iter_supported_items(point.load(), application) if manifest is None else manifest.__tools__())
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin is foreign code; it must not stop the others
            plugin_items.report_problem(
                PluginError(point.name, point.value, _describe_error(error), distribution=distribution), error
            )
        else:
            plugin_items.add(items, f"distribution {distribution!r} (entry point {point.name!r})")
    return plugin_items


def _find_manifest_for(value: str) -> LoadedManifest | None:
    """Return the manifest of the package that an entry point names, to list its tools without importing them.

    A partial manifest is ignored, because it omits application-specific tools. Tools of classes that need constructor
    arguments are omitted, as they are when the package is loaded.
    """
    if ":" in value or not has_manifest(value):
        return None
    manifest = find_manifest(value)
    return None if manifest.manifest.partial else manifest.without_missing_instances()


def _get_sort_key(point: EntryPoint) -> tuple[str, str, str]:
    # Normalize distribution names as in PEP 503.
    return re.sub(r"[-_.]+", "-", _get_distribution_name(point)).lower(), point.name, point.value


def _get_distribution_name(point: EntryPoint) -> str:
    try:
        name: Any = point.dist.name if point.dist is not None else None
    except Exception:  # noqa: BLE001 - the metadata of a distribution may be damaged in any way
        name = None
    return str(name or "(unknown)")


def _describe_error(error: BaseException) -> str:
    if isinstance(error, DefinitionError):
        return safe_str(error).rstrip(".")
    return f"{type(error).__name__}: {safe_str(error)}".rstrip(": .")


def _iter_supported_items(source: Any, application: Any) -> Iterator[CatalogItem]:
    """Yield the tools and prompts of an entry point's object that support the application."""
    if not is_supported(source, application):
        return
    instance = make_instance(source) if isinstance(source, type) else source
    if isinstance(instance, str):
        raise DefinitionError(f"it is the string {instance!r}. Name a module, function, class or toolbox")
    for item in iter_local_items(instance):
        if isinstance(item, Tool):
            refuse_builtin_name(item)
        if is_supported(getattr(get_root(item) if isinstance(item, Tool) else item, "fn", None), application):
            yield item


def make_instance(cls: type) -> Any:
    """Return an instance of a class without required constructor arguments, else the class itself."""
    try:
        inspect.signature(cls).bind()
    except (TypeError, ValueError):
        return cls
    return cls()


# --- the modules of a package ------------------------------------------------------------------


def from_package(package: str | ModuleType, application: Any, *, strict: bool) -> PluginItems:
    """Import every module of a package and collect its decorated members.

    Raises:
        ConfigError: the package does not exist.
        DuplicateTool: two modules have a tool of the same name.
        PluginError: a module cannot be imported or a class cannot be instantiated, and `strict` is set.
    """
    plugin_items = PluginItems(strict)
    if isinstance(package, str):
        try:
            root = load_module(package, package)
        except ConfigError as error:
            if isinstance(error.__cause__, ModuleNotFoundError) or error.__cause__ is None:
                raise
            plugin_items.report_problem(
                PluginError(package, package, _describe_error(error.__cause__)), error.__cause__
            )
            return plugin_items
    else:
        root = package
    modules = list(_import_modules(root, plugin_items))
    bundles = [item for module in modules for item in _iter_bundles(module)]
    for module in modules:
        for name, item in _iter_decorated(module, root.__name__, bundles):
            if not (is_supported(module, application) and is_supported(item, application)):
                continue
            try:
                plugin_items.add(_iter_supported_items(item, application), f"module {module.__name__!r}")
            except DuplicateTool:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001 - instantiating a bundle runs foreign code
                plugin_items.report_problem(
                    PluginError(name, f"{module.__name__}:{name}", _describe_error(error)), error
                )
    return plugin_items


def _import_modules(root: ModuleType, plugin_items: PluginItems) -> Iterator[ModuleType]:
    """Yield a module and its submodules, ordered by name."""
    yield root
    for _, name, _ in sorted(pkgutil.iter_modules(getattr(root, "__path__", ()), f"{root.__name__}.")):
        # `__main__` is a program: importing it would run it.
        if name.rpartition(".")[2] == "__main__":
            continue
        try:
            module = importlib.import_module(name)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a failing module must not stop the others
            plugin_items.report_problem(PluginError(name, name, _describe_error(error)), error)
        else:
            yield from _import_modules(module, plugin_items)


def _iter_bundles(module: ModuleType) -> Iterator[type]:
    """Yield the public classes with decorated methods that a module defines."""
    for name, item in vars(module).items():
        is_own = isinstance(item, type) and item.__module__ == module.__name__ and item.__name__ == name
        if is_own and not name.startswith("_") and not inspect.isabstract(item):
            members = (member for owner in item.__mro__ for member in vars(owner).values())
            if any(get_declaration(member) is not None for member in members):
                yield item


def _iter_decorated(module: ModuleType, package: str, bundles: list[type]) -> Iterator[tuple[str, Any]]:
    for name, item in list(vars(module).items()):
        if isinstance(item, type):
            # Skip a class that another bundle extends: it only serves as its base.
            base_classes = [other for bundle in bundles for other in bundle.__mro__ if bundle is not item]
            is_own = item.__module__ == module.__name__ and any(item is bundle for bundle in bundles)
            if is_own and not any(item is other for other in base_classes):
                yield name, item
        elif isinstance(item, Tool) or (get_declaration(item) is not None and not isinstance(item, ToolSource)):
            defining_module = str(getattr(item, "__module__", package))
            if isinstance(item, Tool) or defining_module == package or defining_module.startswith(f"{package}."):
                yield name, item
