"""Resolve names, class hierarchies and tools across the checked files, without importing them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from toolmason.build.check.rules import UNREADABLE, Finding, SourceLocation, make_finding
from toolmason.build.check.static.declared import (
    ClassDeclaration,
    DeclaredTool,
    Definition,
    FileDeclarations,
    FunctionNode,
    declare,
    eval_text,
    read_declarations,
)
from toolmason.build.check.static.imports import PACKAGE, ImportedNames, read_imports, to_public_path
from toolmason.build.check.static.source_file import Source

_T = TypeVar("_T")
_MAX_HOPS = 8
_MAX_ANCESTORS = 64
"""Classes whose members a class can inherit, and its bases; a chain of more takes quadratic time."""


class Project:
    """The files of one check."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.unreadable: list[Finding] = []
        """Findings for files that are nested too deeply to check."""
        self._mro_cache: dict[int, list[ClassDeclaration]] = {}
        self._tools_cache: dict[int, dict[str, DeclaredTool]] = {}
        parsed = [
            (source, imports) for source in sources if (imports := self._read_safely(source, read_imports)) is not None
        ]
        exports = {source.module: imports for source, imports in parsed if source.module}
        for _, imports in parsed:
            for name, path in imports.paths.items():
                imports.paths[name] = _follow_reexports(path, exports)
        declarations = [
            self._read_safely(source, partial(read_declarations, imports=imports))
            for source, imports in _select_relevant(parsed)
        ]
        self.files = [file for file in declarations if file is not None]
        self._modules = {file.source.module: file for file in self.files if file.source.module}

    def _read_safely(self, source: Source, read: Callable[[Source], _T]) -> _T | None:
        try:
            return read(source)
        except RecursionError:
            self.unreadable.append(
                make_finding(UNREADABLE, SourceLocation(source.path), "the file is nested too deeply to check")
            )
            return None

    def find(self, node: ast.expr, file: FileDeclarations) -> tuple[FileDeclarations, Definition] | None:
        """Return the definition that an expression in a file names, and the file that has it; None if none has it."""
        imports = file.imports
        owner: FileDeclarations | None = file
        name = getattr(node, "id", "")
        if not name or name in imports.paths or name in imports.typing_only:
            module, _, name = imports.get_path(node).rpartition(".")
            owner = self._modules.get(module)
        found = owner.names.get(name) if owner is not None else None
        return None if owner is None or found is None else (owner, found)

    def has_module(self, path: str) -> bool:
        """Return True if a dotted path is, or begins with, a module of the checked files."""
        return any(module == path or module.startswith(f"{path}.") for module in self._modules)

    def find_class(self, node: ast.expr, file: FileDeclarations) -> ClassDeclaration | None:
        """Return the class that an expression names, or None if it is not in the checked files."""
        _, found = self.find(node, file) or (file, None)
        return found if isinstance(found, ClassDeclaration) else None

    # --- tools ---------------------------------------------------------------------------------

    def list_declarations(self) -> list[DeclaredTool]:
        """Return every tool and prompt: decorated, overriding, passed to a toolbox, or created by a factory."""
        found = [tool for file in self.files for tool in file.tools]
        for file in self.files:
            found += [tool for cls in file.classes for tool in self.get_tools(cls).values()]
            found += [*_find_undecorated(file), *_find_factory_tools(file)]
        unique: dict[int, DeclaredTool] = {}
        for tool in found:
            unique.setdefault(id(tool.node or tool), tool)
        return list(unique.values())

    # --- classes -------------------------------------------------------------------------------

    def get_ancestry(self, cls: ClassDeclaration) -> list[ClassDeclaration]:
        """Return a class and its ancestors in method resolution order, as far as they are in the checked files."""
        if (known := self._mro_cache.get(id(cls))) is not None:
            return known
        self._mro_cache[id(cls)] = []  # stops at a class that is its own ancestor
        bases = [self.find_class(strip_subscript(base), cls.file) for base in cls.node.bases]
        found = [base for base in bases if base is not None][:_MAX_ANCESTORS]
        order = [cls, *_merge_orders([*map(self.get_ancestry, found), found])][:_MAX_ANCESTORS]
        self._mro_cache[id(cls)] = order
        return order

    def get_tools(self, cls: ClassDeclaration) -> dict[str, DeclaredTool]:
        """Return the tools of a class by attribute name, including inherited ones, the most distant ancestor first."""
        if (known := self._tools_cache.get(id(cls))) is not None:
            return known
        found: dict[str, DeclaredTool] = {}
        for owner in reversed(self.get_ancestry(cls)):
            for name, member in owner.members.items():
                if isinstance(member, DeclaredTool):
                    found[name] = member
                elif member is None:
                    found.pop(name, None)
                elif name in found:
                    found[name] = _make_override(owner, member, found[name])
        tools = {name: tool for name, tool in found.items() if tool.kind == "tool"}
        self._tools_cache[id(cls)] = tools
        return tools


def _find_undecorated(file: FileDeclarations) -> Iterator[DeclaredTool]:
    """Yield undecorated functions that are passed to a toolbox."""
    for box in file.toolbox_calls:
        for item in flatten(box.args):
            if isinstance(item, ast.Name) and isinstance(node := file.names.get(item.id), FunctionNode):
                yield declare(file, node)


def _find_factory_tools(file: FileDeclarations) -> Iterator[DeclaredTool]:
    for factory, call in file.factory_calls:
        keywords = {keyword.arg: keyword for keyword in call.keywords if keyword.arg}
        first = call.args[0] if call.args else None
        if factory == "from_schema":
            given = zip(("name", "description"), call.args, strict=False)
            keywords |= {name: ast.keyword(name, value) for name, value in given}
            yield DeclaredTool(
                file=file,
                function_name=eval_text(keywords["name"].value if "name" in keywords else None) or "",
                location=file.source.get_location(call),
                keywords=keywords,
                has_all_keywords=all(keyword.arg for keyword in call.keywords),
                made_by_factory=True,
            )
        elif isinstance(first, ast.Name) and keywords.keys().isdisjoint(("params", "input_schema")):
            node = file.names.get(first.id)
            if isinstance(node, FunctionNode):
                yield declare(file, node, call, made_by_factory=True)


def _make_override(owner: ClassDeclaration, node: FunctionNode, overridden: DeclaredTool) -> DeclaredTool:
    """Return the tool for an undecorated override: its own signature with the overridden tool's metadata."""
    return replace(
        overridden,
        file=owner.file,
        function_name=node.name,
        location=owner.file.source.get_name_location(node),
        node=node,
        class_name=owner.name,
        inherited_name=overridden.name,
        inherits_description=overridden.inherits_description
        or overridden.get_keyword("description") is not None
        or overridden.docstring is not None,
    )


def strip_subscript(base: ast.expr) -> ast.expr:
    """Return `Base` for `Base[int]`."""
    return base.value if isinstance(base, ast.Subscript) else base


def _merge_orders(orders: Sequence[Sequence[ClassDeclaration]]) -> list[ClassDeclaration]:
    """Merge method resolution orders: take the first head that is in no other tail."""
    remaining = [list(order) for order in orders if order]
    merged: list[ClassDeclaration] = []
    while len(remaining) > 1 and len(merged) < _MAX_ANCESTORS:
        heads = (order[0] for order in remaining)
        # Python rejects a hierarchy without such a head; any order is good enough for it.
        head = next((cls for cls in heads if all(cls not in order[1:] for order in remaining)), remaining[0][0])
        merged.append(head)
        without_head = ([cls for cls in order if cls is not head] for order in remaining)
        remaining = [order for order in without_head if order]
    return merged + (remaining[0] if remaining else [])


def flatten(items: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """Yield the arguments of a toolbox, including those in lists."""
    for item in items:
        if isinstance(item, ast.List | ast.Tuple | ast.Set):
            yield from flatten(item.elts)
        else:
            yield item


def _follow_reexports(path: str, exports: dict[str, ImportedNames]) -> str:
    """Return the path of a name after following re-exports in the checked files."""
    for _ in range(_MAX_HOPS):
        module, _, name = path.rpartition(".")
        target = exports[module].paths.get(name) if module in exports else None
        if target is None or target == path:
            break
        path = target
    return to_public_path(path)


def _select_relevant(parsed: Sequence[tuple[Source, ImportedNames]]) -> Iterator[tuple[Source, ImportedNames]]:
    """Yield the files that import Toolmason, and those that they import from."""
    wanted: set[str] = set()
    direct: set[str] = set()
    for source, imports in parsed:
        paths = [*imports.paths.values(), *imports.typing_only.values()]
        if any(path.partition(".")[0] == PACKAGE for path in paths):
            direct.add(source.path)
            wanted |= {path.rpartition(".")[0] for path in paths}
    return (item for item in parsed if item[0].path in direct or item[0].module in wanted)
