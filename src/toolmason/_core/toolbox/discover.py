"""Make a toolbox from installed plugins or from a package.

Both functions import modules, which runs their code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from toolmason._core.load.plugins import ENTRY_POINT_GROUP, from_entry_points, from_package
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._explain import explain_arguments

if TYPE_CHECKING:  # 15 ms at start-up, needed only with settings
    from toolmason._core.config.config import Config


@explain_arguments
def discover(
    app: Any = None,
    group: str = ENTRY_POINT_GROUP,
    strict: bool = False,  # noqa: FBT001, FBT002 - public signature
    *,
    config: Config | Mapping[str, Any] | None = None,
    project_dir: str | Path | None = None,
) -> Toolbox:
    """Return a toolbox with the tools that installed distributions offer as entry points of a group.

    Plugins load in order of distribution and name. `app` is your application or its class: bundles marked
    `@supported_for(...)` for another one are skipped. A broken plugin is logged, skipped and listed in
    `Toolbox.problems`. `config` and `project_dir` are those of the toolbox.

    Raises:
        DuplicateTool: two distributions offer tools with the same name; the message names both.
        PluginError: a plugin is broken, and `strict` is set.
    """
    return Toolbox(from_entry_points(group, app, strict=strict), config=config, project_dir=project_dir)


@explain_arguments
def scan(
    package: str | ModuleType,
    *,
    app: Any = None,
    strict: bool = False,
    config: Config | Mapping[str, Any] | None = None,
    project_dir: str | Path | None = None,
) -> Toolbox:
    """Return a toolbox with the decorated objects of a package and all modules below it.

    This includes functions with `@tool` or `@prompt`, `Tool` objects, and public classes with such methods whose
    constructor needs no arguments, but not names imported from elsewhere. Every module except `__main__` is
    imported, with all its side effects. A module that cannot be imported is logged, skipped and listed in
    `Toolbox.problems`. `config` and `project_dir` are those of the toolbox.

    Raises:
        ConfigError: the package does not exist.
        DuplicateTool: two modules define tools with the same name; the message names both.
        PluginError: a module cannot be imported, and `strict` is set.
    """
    return Toolbox(from_package(package, app, strict=strict), config=config, project_dir=project_dir)
