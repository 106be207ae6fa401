"""Find the Python files of a target without importing them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from toolmason._core.load.packages import find_module_spec, prepend_to_sys_path
from toolmason.errors import ConfigError

_SKIPPED_FOLDERS: Final = frozenset({"__pycache__", "node_modules", "site-packages"})
_OUTPUT_FOLDERS: Final = frozenset({"build", "dist", "venv"})
"""Folders that are skipped unless they are packages; `build` may be one."""


@dataclass(frozen=True, slots=True)
class PythonFile:
    """A Python file to check."""

    path: Path
    display_path: str
    """Path in messages: relative to the current folder if the file is below it."""
    module: str
    """Dotted module name, derived from the enclosing packages."""


@dataclass(frozen=True, slots=True)
class Target:
    """The files of one target."""

    text: str
    files: tuple[PythonFile, ...]
    name: str = ""
    """Name after the colon."""


def find_target(text: str, exclude: Sequence[str] = ()) -> Target:
    """Find the files of a target: a file, a folder, a module or a package, each with or without `:name`.

    Raises:
        ConfigError: the file or module does not exist, or the folder has no Python file.
    """
    place, colon, name = text.rpartition(":")
    if not (colon and place) or Path(text).exists():
        place, name = text, ""
    path = Path(place)
    if place and path.is_file():
        return Target(text, (_make_file(path),), name)
    if place and path.is_dir():
        files = tuple(sorted(map(_make_file, _find_files(path, exclude)), key=lambda file: file.display_path))
        if not files:
            raise ConfigError(f"{text!r}: the folder has no Python files. Check the path and `exclude`.")
        return Target(text, files, name)
    if place.endswith(".py") or "/" in place or os.sep in place:
        raise ConfigError(f"{text!r}: file {place!r} does not exist. Check the path.")
    module_path = _find_module_path(place, text)
    paths = [module_path / "__init__.py" if module_path.is_dir() else module_path]
    if module_path.is_dir() and not name:
        paths = list(_find_files(module_path, exclude))
    return Target(text, tuple(sorted(map(_make_file, paths), key=lambda file: file.display_path)), name)


def format_path(path: Path) -> str:
    """Return a path for messages: relative to the current folder if below it, with forward slashes."""
    # Keep the name of a symlink: it is the path that the user sees.
    for absolute in (Path(os.path.abspath(path)), path.resolve()):  # noqa: PTH100 - `absolute` keeps `..`
        if absolute.is_relative_to(Path.cwd()):
            return _to_printable(absolute.relative_to(Path.cwd()))
    return _to_printable(path)


def _to_printable(path: Path) -> str:
    # File names need not be UTF-8; an undecodable one must still be printable.
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")


def _make_file(path: Path) -> PythonFile:
    return PythonFile(path, format_path(path), _get_module_name(path))


def _get_module_name(path: Path) -> str:
    parts = [] if path.stem == "__init__" else [path.stem]
    folder = path.resolve().parent
    while (folder / "__init__.py").is_file() and folder.parent != folder:
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _find_files(folder: Path, exclude: Sequence[str]) -> Iterator[Path]:
    """Yield the Python files below a folder, except virtual environments, caches, hidden and excluded folders."""
    for root, folders, names in os.walk(folder):
        here = Path(root)
        folders[:] = [
            name
            for name in sorted(folders)
            if not name.startswith(".")
            and name not in _SKIPPED_FOLDERS
            and not (name in _OUTPUT_FOLDERS and not (here / name / "__init__.py").is_file())
            and not (here / name / "pyvenv.cfg").exists()
            and not _is_excluded(here / name, exclude)
        ]
        for name in sorted(names):
            if name.endswith(".py") and not _is_excluded(here / name, exclude):
                yield here / name


def _is_excluded(path: Path, patterns: Sequence[str]) -> bool:
    names = (format_path(path), path.name) if patterns else ()
    return any(fnmatch(name, pattern) or name == pattern for pattern in patterns for name in names)


def _find_module_path(name: str, text: str) -> Path:
    """Return the file or folder of a module, without importing it or its parents."""
    with prepend_to_sys_path(Path.cwd()):
        is_name = all(part.isidentifier() for part in name.split("."))
        spec = find_module_spec(name, use_loaded=False) if is_name else None
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if folders:
        return Path(folders[0])
    if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
        return Path(spec.origin)
    raise ConfigError(f"{text!r}: no Python source found for {name!r}. Check the spelling, or give a path.")
