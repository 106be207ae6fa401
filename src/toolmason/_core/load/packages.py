"""The name of a package → where its files are, and reading them, without importing anything.

Lives here: finding a package on the import path (folders, zip files, namespace packages), the hash of a module's
source. Not here: what is in the files (`manifest`), or importing modules (`members`).
"""

from __future__ import annotations

import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from toolmason.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Home:
    """A folder of a package, on disk or in an archive."""

    package: str
    folder: str
    get_data: Callable[[str], bytes] | None = field(default=None, repr=False)
    """Reads from an archive; `None` where the folder is one on disk."""

    def read(self, *parts: str) -> bytes | None:
        """Return the content of a file of the package; `None` where there is none."""
        path = self._path(*parts)
        try:
            if self.get_data is not None:
                return self.get_data(path)
            with open(path, "rb") as file:  # noqa: PTH123 - a hundred are read at a start, and `Path` doubles the cost
                return file.read()
        except OSError:
            return None

    def _path(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)  # noqa: PTH118 - a place in an archive is a text, not a path

    def source_of(self, module: str) -> bytes | None:
        """Return the source of a module of the package; `None` where there is none to read."""
        parts = module.split(".")[len(self.package.split(".")) :]
        if self.get_data is None and parts and not os.path.isdir(self._path(*parts)):  # noqa: PTH112 - as above
            return self.read(*parts[:-1], f"{parts[-1]}.py")
        as_package = self.read(*parts, "__init__.py")
        if as_package is not None or not parts:
            return as_package
        return self.read(*parts[:-1], f"{parts[-1]}.py")


def spec_of(name: str) -> ModuleSpec | None:
    """Return where a module would be loaded from. Python's own function would import the packages above it."""
    path: Any = None
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for size in range(1, len(parts) + 1):
        above = ".".join(parts[:size])
        spec = getattr(sys.modules.get(above), "__spec__", None) or _looked_up(above, path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
        if path is None and size < len(parts):
            return None
    return spec


def _looked_up(name: str, path: Any) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find: Any = getattr(finder, "find_spec", None)
        found: ModuleSpec | None = None if find is None else find(name, path)
        if found is not None:
            return found
    return None


def homes_of(package: str) -> list[Home]:
    """Return the folders of a package, of which a namespace package may have several.

    Raises:
        ConfigError: there is no such package, or it is a single module.
    """
    if not all(part.isidentifier() for part in package.split(".")):
        raise ConfigError(f"{package!r} is not the name of a package. Write `package` or `package.inner`.")
    spec = spec_of(package)
    if spec is None:
        raise ConfigError(
            f"There is no package {package!r}. Check the spelling, install it, or run from the project's folder."
        )
    if spec.submodule_search_locations is None:
        raise ConfigError(
            f"{package!r} is a single module, and a manifest lives in the folder of a package. "
            "Make it a package, or give the module itself to a toolbox."
        )
    return [home_at(package, place) for place in spec.submodule_search_locations]


def home_at(package: str, folder: str) -> Home:
    """Return the folder of a package, whether it is on disk or in an archive."""
    if Path(folder).is_dir():
        return Home(package, folder)
    return Home(package, folder, getattr(pkgutil.get_importer(folder), "get_data", None))


def source_hash(source: bytes) -> str:
    """Return the hash of a source file, the same whatever ends its lines."""
    import hashlib  # noqa: PLC0415 - 2 ms at start-up, for programs that read a manifest

    return hashlib.sha256(source.replace(b"\r\n", b"\n")).hexdigest()


def modules_under(home: Home) -> Iterator[tuple[str, bool]]:
    """Yield the modules of a package on disk with whether each is a package, in order, without importing any."""
    if home.read("__init__.py") is not None:
        yield home.package, True
    yield from _modules_below(home.package, home.folder)


def _modules_below(name: str, folder: str) -> Iterator[tuple[str, bool]]:
    for found in sorted(pkgutil.iter_modules([folder]), key=lambda item: item.name):
        below = f"{name}.{found.name}"
        yield below, found.ispkg
        if found.ispkg:
            yield from _modules_below(below, str(Path(folder) / found.name))
