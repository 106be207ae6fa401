"""Load the names of a public package when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, names_by_module: Mapping[str, Sequence[str]], *, unlisted: Sequence[str] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package; `names_by_module` lists the names that each module provides.

    `unlisted` names need another package, so `dir()` omits them: `help()` would load them.
    """
    module_by_name = {name: module for module, names in names_by_module.items() for name in names}

    def get(name: str) -> Any:
        module_name = module_by_name.get(name)
        if module_name is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(module_name)
        value = module if module_name == f"toolmason.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)  # later accesses bypass `__getattr__`
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_by_name}.difference(unlisted))

    return get, list_names
