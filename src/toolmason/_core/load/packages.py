"""Locate a package (folder, zip file or namespace package) and read its files without importing it."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from toolmason.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PackageLocation:
    """A folder of a package, on disk or in an archive."""

    package: str
    folder: str
    get_data: Callable[[str], bytes] | None = field(default=None, repr=False)
    """Function that reads from an archive; `None` for a folder on disk."""

    def read(self, *parts: str) -> bytes | None:
        """Return the contents of a file of the package, or None if it does not exist."""
        path = self._path(*parts)
        try:
            if self.get_data is not None:
                return self.get_data(path)
            with open(path, "rb") as file:  # noqa: PTH123 - a hundred are read at start-up, and `Path` doubles the cost
                return file.read()
        except OSError:
            return None

    def _path(self, *parts: str) -> str:
        return os.path.join(self.folder, *parts)  # noqa: PTH118 - a location in an archive is a string, not a path

    def read_source(self, module: str) -> bytes | None:
        """Return the source of a module of the package, or None if it is not available."""
        parts = module.split(".")[len(self.package.split(".")) :]
        if self.get_data is None and parts and not os.path.isdir(self._path(*parts)):  # noqa: PTH112 - as above
            return self.read(*parts[:-1], f"{parts[-1]}.py")
        package_source = self.read(*parts, "__init__.py")
        if package_source is not None or not parts:
            return package_source
        return self.read(*parts[:-1], f"{parts[-1]}.py")


def find_module_spec(name: str, *, use_loaded: bool = True) -> ModuleSpec | None:
    """Return the spec of a module, or None; `use_loaded` is False to search again for a module that is loaded.

    Unlike `importlib.util.find_spec`, imports no parent packages.
    """
    path: Any = None
    spec: ModuleSpec | None = None
    parts = name.split(".")
    for size in range(1, len(parts) + 1):
        parent = ".".join(parts[:size])
        loaded = sys.modules.get(parent) if use_loaded else None
        spec = getattr(loaded, "__spec__", None) or _find_on_meta_path(parent, path)
        if spec is None:
            return None
        path = spec.submodule_search_locations
        if path is None and size < len(parts):
            return None
    return spec


def _find_on_meta_path(name: str, path: Any) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find: Any = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find is None else find(name, path)
        if spec is not None:
            return spec
    return None


@contextlib.contextmanager
def prepend_to_sys_path(folder: Path | None) -> Generator[None]:
    """Search a folder for modules first, within this context."""
    added = [] if folder is None else [str(folder)]
    sys.path[:0] = added
    try:
        yield
    finally:
        for path in added:
            sys.path.remove(path)


def find_package_locations(package: str) -> list[PackageLocation]:
    """Return the folders of a package. A namespace package may have several.

    Raises:
        ConfigError: the package does not exist, or is a single module.
    """
    if not all(part.isidentifier() for part in package.split(".")):
        raise ConfigError(f"{package!r} is not a package name. Use `package` or `package.inner`.")
    spec = find_module_spec(package)
    if spec is None:
        raise ConfigError(
            f"Package {package!r} not found. Check the spelling, install it, or run from the project's folder."
        )
    if spec.submodule_search_locations is None:
        raise ConfigError(
            f"{package!r} is a single module, but a manifest needs a package folder. "
            "Make it a package, or pass the module to a toolbox."
        )
    return [make_package_location(package, place) for place in spec.submodule_search_locations]


def make_package_location(package: str, folder: str) -> PackageLocation:
    """Return the location of a package folder, on disk or in an archive."""
    if Path(folder).is_dir():
        return PackageLocation(package, folder)
    return PackageLocation(package, folder, getattr(pkgutil.get_importer(folder), "get_data", None))


def hash_source(source: bytes) -> str:
    """Return the hash of a source file, independent of line endings."""
    import hashlib  # noqa: PLC0415 - 2 ms at start-up, needed only to read a manifest

    return hashlib.sha256(source.replace(b"\r\n", b"\n")).hexdigest()


def iter_package_modules(location: PackageLocation) -> Iterator[tuple[str, bool]]:
    """Yield the module names of a package on disk, in order, and whether each is a package, without importing any."""
    if location.read("__init__.py") is not None:
        yield location.package, True
    yield from _iter_submodules(location.package, location.folder)


def _iter_submodules(name: str, folder: str) -> Iterator[tuple[str, bool]]:
    for info in sorted(pkgutil.iter_modules([folder]), key=lambda item: item.name):
        module_name = f"{name}.{info.name}"
        yield module_name, info.ispkg
        if info.ispkg:
            yield from _iter_submodules(module_name, str(Path(folder) / info.name))
