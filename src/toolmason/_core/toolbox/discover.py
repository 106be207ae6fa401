"""What is installed, or what a package holds → a toolbox.

Lives here: `discover` and `scan`. Both import modules, and so run their code. Not here: how (`plugins`).
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from toolmason._core.load.plugins import ENTRY_POINT_GROUP, from_entry_points, from_package
from toolmason._core.toolbox.toolbox import Toolbox


def discover(app: Any = None, group: str = ENTRY_POINT_GROUP, strict: bool = False) -> Toolbox:  # noqa: FBT001, FBT002 - as page 04 §1 writes it
    """Return a toolbox with the tools that installed distributions offer as entry points of a group.

    They are loaded by distribution and name. `app` is your application, or its class: bundles that are marked
    `@supported_for(...)` something else are left out. A plugin that is broken is logged, left out, and told in
    `problems` of the toolbox.

    Raises:
        DuplicateTool: two distributions offer a tool of one name; names both.
        PluginError: a plugin is broken, and `strict` is set.
    """
    return Toolbox(from_entry_points(group, app, strict=strict))


def scan(package: str | ModuleType, *, app: Any = None, strict: bool = False) -> Toolbox:
    """Return a toolbox with what is decorated in a package and in every module below it.

    It takes functions with `@tool` or `@prompt`, `Tool` objects, and public classes with such methods that need
    no arguments; not what they import from elsewhere. Every module is imported, with all its side effects, but
    for `__main__`. One that cannot be imported is logged, left out, and told in `problems` of the toolbox.

    Raises:
        ConfigError: there is no such package.
        DuplicateTool: two modules have a tool of one name; names both.
        PluginError: a module cannot be imported, and `strict` is set.
    """
    return Toolbox(from_package(package, app, strict=strict))
