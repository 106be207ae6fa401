"""Resolve the imported names of a file to dotted paths without importing anything."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from typing import Final

from toolmason.build.check.static.source_file import Source

PACKAGE: Final = "toolmason"
_PUBLIC_NAMES: Final = frozenset({*import_module(PACKAGE).__all__, "ParamSpec", "allow_experimental"})

COMPOUND: Final = (ast.If, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While, ast.Match)
"""Statements that contain statements and open no scope."""


@dataclass(frozen=True, slots=True, eq=False)
class ImportedNames:
    """Dotted paths of the names in one file."""

    paths: dict[str, str] = field(default_factory=dict)
    """Paths by local name, for names that exist at run time."""
    typing_only: dict[str, str] = field(default_factory=dict)
    """Paths by local name, for names imported under `if TYPE_CHECKING`."""

    def get_path(self, node: ast.expr | None) -> str:
        """Return the dotted path that an expression names, or an empty string."""
        if isinstance(node, ast.Name):
            return to_public_path(self.paths.get(node.id) or self.typing_only.get(node.id) or node.id)
        if isinstance(node, ast.Attribute) and (head := self.get_path(node.value)):
            return to_public_path(f"{head}.{node.attr}")
        return ""


def to_public_path(path: str) -> str:
    """Return the public path of a Toolmason name, regardless of the module it is imported from."""
    parts = path.split(".")
    if parts[0] != PACKAGE or "experimental" in parts[1:-1]:
        return path
    for index in range(len(parts) - 1, 0, -1):
        if parts[index] in _PUBLIC_NAMES:
            return ".".join([PACKAGE, *parts[index:]])
    return path


def read_imports(source: Source) -> ImportedNames:
    """Read all imports of a file, at any nesting level."""
    imports = ImportedNames()
    for node, typing_only in _find_imports(source.tree.body, typing_only=False):
        target = imports.typing_only if typing_only else imports.paths
        target.update(_find_bindings(node, source))
    for name in imports.paths.keys() & imports.typing_only.keys():
        del imports.typing_only[name]
    return imports


def _find_imports(body: Iterable[ast.AST], *, typing_only: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, typing_only
        elif isinstance(node, ast.If):
            test = getattr(node.test, "attr", getattr(node.test, "id", ""))
            yield from _find_imports(node.body, typing_only=typing_only or test == "TYPE_CHECKING")
            yield from _find_imports(node.orelse, typing_only=typing_only)
        elif not isinstance(node, ast.expr):
            for part in ("body", "handlers", "orelse", "finalbody", "cases"):
                yield from _find_imports(getattr(node, part, ()), typing_only=typing_only)


def _find_bindings(node: ast.Import | ast.ImportFrom, source: Source) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            head = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (head, head)
        return
    base = _resolve_base(node, source)
    for alias in node.names:
        if alias.name == "*":
            if base.split(".")[0] == PACKAGE:
                yield from ((name, f"{PACKAGE}.{name}") for name in sorted(_PUBLIC_NAMES))
            continue
        yield alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name


def _resolve_base(node: ast.ImportFrom, source: Source) -> str:
    if not node.level:
        return node.module or ""
    parts = source.module.split(".") if source.module else []
    levels_up = node.level - 1 if source.is_package else node.level
    base_parts = parts[: len(parts) - levels_up] if levels_up <= len(parts) else []
    return ".".join([*base_parts, *([node.module] if node.module else [])])
