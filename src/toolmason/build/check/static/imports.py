"""The imports of a file → what its names stand for, without importing anything.

Lives here: `from toolmason import tool as t`, `import toolmason as tw`, relative imports, imports for typing only.
Not here: names that come through another file of the project (`project`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from toolmason.build.check.static.source_file import Source

OURS: Final = "toolmason"
_KNOWN: Final = frozenset(
    {
        "Config",
        "Inject",
        "Param",
        "ParamSpec",
        "ProjectDir",
        "Retry",
        "Tool",
        "ToolCall",
        "ToolContext",
        "Toolbox",
        "allow_experimental",
        "prompt",
        "tool",
    }
)


COMPOUND: Final = (ast.If, ast.Try, ast.TryStar, ast.With, ast.AsyncWith, ast.For, ast.AsyncFor, ast.While, ast.Match)
"""Statements that hold other statements, and open no scope."""
_HOLDERS: Final = (
    *COMPOUND,
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.ExceptHandler,
    ast.match_case,
)


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """What the names of one file stand for, as dotted paths."""

    meaning: dict[str, str] = field(default_factory=dict)
    typing_only: dict[str, str] = field(default_factory=dict)
    """Names that exist for type checkers alone."""

    def dotted(self, node: ast.expr | None) -> str:
        """Return the dotted path that an expression names; an empty text where it names none."""
        if isinstance(node, ast.Name):
            return canonical(self.meaning.get(node.id) or self.typing_only.get(node.id) or node.id)
        if isinstance(node, ast.Attribute) and (head := self.dotted(node.value)):
            return canonical(f"{head}.{node.attr}")
        return ""


def canonical(path: str) -> str:
    """Return a name of ours by its public path, wherever it was imported from."""
    parts = path.split(".")
    if parts[0] != OURS or "experimental" in parts[1:-1]:
        return path
    for at in range(len(parts) - 1, 0, -1):
        if parts[at] in _KNOWN:
            return ".".join([OURS, *parts[at:]])
    return path


def read_names(source: Source) -> Names:
    """Read the imports of a file, wherever they stand in it."""
    names = Names()
    for node, typing_only in _imports(source.tree.body, typing_only=False):
        held = names.typing_only if typing_only else names.meaning
        held.update(_bound(node, source))
    for name in names.meaning.keys() & names.typing_only.keys():
        del names.typing_only[name]
    return names


def _imports(body: Iterable[ast.AST], *, typing_only: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, typing_only
        elif isinstance(node, ast.If):
            yield from _imports(node.body, typing_only=typing_only or _is_type_checking(node.test))
            yield from _imports(node.orelse, typing_only=typing_only)
        elif isinstance(node, _HOLDERS):
            for part in ("body", "handlers", "orelse", "finalbody", "cases"):
                yield from _imports(getattr(node, part, ()), typing_only=typing_only)


def _is_type_checking(test: ast.expr) -> bool:
    name = test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""
    return name == "TYPE_CHECKING"


def _bound(node: ast.Import | ast.ImportFrom, source: Source) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            head = alias.name.partition(".")[0]
            yield (alias.asname, alias.name) if alias.asname else (head, head)
        return
    base = _base(node, source)
    for alias in node.names:
        if alias.name == "*":
            if base.split(".")[0] == OURS:
                yield from ((name, f"{OURS}.{name}") for name in sorted(_KNOWN))
            continue
        yield alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name


def _base(node: ast.ImportFrom, source: Source) -> str:
    if not node.level:
        return node.module or ""
    parts = source.module.split(".") if source.module else []
    above = node.level - 1 if source.is_package else node.level
    kept = parts[: len(parts) - above] if above <= len(parts) else []
    return ".".join([*kept, *([node.module] if node.module else [])])
