"""A target of a check → the files that it means, and what of it is to be loaded. Nothing is imported here.

Lives here: paths, folders, modules and packages by name. Not here: reading files (`source`), loading (`loaded`).
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from toolmason.errors import ConfigError

_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_OUTPUTS: Final = frozenset({"build", "dist", "venv"})
"""Left out unless they are packages: `build` may be one."""


@dataclass(frozen=True, slots=True)
class PythonFile:
    """A file to read."""

    path: Path
    shown: str
    """Its path for people: from the current folder where it is below that."""
    module: str
    """Its dotted name, as far as the packages around it tell."""


@dataclass(frozen=True, slots=True)
class Target:
    """What one target means."""

    text: str
    files: tuple[PythonFile, ...]
    name: str = ""
    """What stands after the colon."""


def find_target(text: str, exclude: Sequence[str] = ()) -> Target:
    """Find the files of a target: a file, a folder, a module or package by name, each with or without `:name`.

    Raises:
        ConfigError: there is no such file or module, or no Python file in it.
    """
    place, name = (text, "") if text and Path(text).exists() else _parted(text)
    path = Path(place)
    if place and path.is_file():
        return Target(text, (_file(path),), name)
    if place and path.is_dir():
        files = tuple(sorted(map(_file, _below(path, exclude)), key=lambda file: file.shown))
        if not files:
            raise ConfigError(f"{text!r}: there is no Python file in it. Check the path and `exclude`.")
        return Target(text, files, name)
    if place.endswith(".py") or "/" in place or os.sep in place:
        raise ConfigError(f"{text!r}: there is no file {place!r}. Check the path.")
    found = _module_path(place, text)
    files = tuple(map(_file, _below(found, exclude))) if found.is_dir() and not name else (_file(_init(found)),)
    return Target(text, tuple(sorted(files, key=lambda file: file.shown)), name)


def shown_path(path: Path) -> str:
    """Return a path for people: from the current folder where it is below that, with forward slashes."""
    # A link keeps its own name: it is what the person sees.
    for whole in (Path(os.path.abspath(path)), path.resolve()):  # noqa: PTH100 - `absolute` keeps `..`
        if whole.is_relative_to(Path.cwd()):
            return _printable(whole.relative_to(Path.cwd()))
    return _printable(path)


def _printable(path: Path) -> str:
    # A name that is not UTF-8 is legal, and must not stop the report from being printed.
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def _parted(text: str) -> tuple[str, str]:
    place, colon, name = text.rpartition(":")
    return (place, name) if colon and place else (text, "")


def _init(path: Path) -> Path:
    return path / "__init__.py" if path.is_dir() else path


def _file(path: Path) -> PythonFile:
    return PythonFile(path, shown_path(path), _module_of(path))


def _module_of(path: Path) -> str:
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.resolve().parent
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _below(folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    """Yield the Python files below a folder, without environments, caches, hidden folders and what is excluded."""
    for root, folders, names in os.walk(folder):
        here = Path(root)
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith(".")
            and name not in _SKIPPED
            and not (name in _OUTPUTS and not (here / name / "__init__.py").is_file())
            and not (here / name / "pyvenv.cfg").exists()
            and not _excluded(here / name, exclude)
        ]
        for name in sorted(names):
            if name.endswith(".py") and not _excluded(here / name, exclude):
                yield here / name


def _excluded(path: Path, patterns: Sequence[str]) -> bool:
    if not patterns:
        return False
    shown = shown_path(path)
    return any(fnmatch(shown, pattern) or fnmatch(path.name, pattern) or shown == pattern for pattern in patterns)


def _module_path(name: str, text: str) -> Path:
    """Return the file or folder of a module, found as Python would find it, without importing its parents."""
    spec: importlib.machinery.ModuleSpec | None = None
    search: Sequence[str] | None = [str(Path.cwd()), *sys.path]
    parts = name.split(".")
    for size in range(1, len(parts) + 1):
        whole = ".".join(parts[:size])
        if search is None or not all(part.isidentifier() for part in parts):
            spec = None
            break
        spec = importlib.machinery.PathFinder.find_spec(whole, list(search))
        if spec is None and size == 1:
            spec = _installed(whole)
        search = spec.submodule_search_locations if spec is not None else None
        if spec is None:
            break
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if folders:
        return Path(folders[0])
    if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
        return Path(spec.origin)
    raise ConfigError(f"{text!r}: there is no Python source for {name!r}. Check the spelling, or give a path.")


def _installed(name: str) -> importlib.machinery.ModuleSpec | None:
    """Find a top-level package through the finders of editable installs; no top-level name is imported for that."""
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
