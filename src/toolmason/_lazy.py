"""Load the names of a public package when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package; `homes` maps a module to the names that it holds."""
    places = {name: module for module, names in homes.items() for name in names}

    def get(name: str) -> Any:
        home = places.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(home)
        value = module if home == f"toolmason.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)  # the next access does not come here
        return value

    def list_names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return get, list_names
