"""Resolve names, class hierarchies and tools across the checked files, without importing them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from toolmason.build.check.rules import UNREADABLE, Finding, SourceLocation, make_finding
from toolmason.build.check.static.annotations import eval_text
from toolmason.build.check.static.declared import (
    ClassDeclaration,
    DeclaredTool,
    FileDeclarations,
    FunctionNode,
    declare,
    get_keywords,
    read_declarations,
)
from toolmason.build.check.static.imports import PACKAGE, ImportedNames, read_imports, to_public_path
from toolmason.build.check.static.parameters import SourceParameter, get_docstring, read_parameters
from toolmason.build.check.static.source_file import Source

_T = TypeVar("_T")
_MAX_HOPS = 8


class Project:
    """The files of one check."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.unreadable: list[Finding] = []
        """Findings for files that are nested too deeply to check."""
        self._mro_cache: dict[int, list[ClassDeclaration]] = {}
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
        self._files_by_imports = {id(file.imports): file for file in self.files}

    def _read_safely(self, source: Source, read: Callable[[Source], _T]) -> _T | None:
        try:
            return read(source)
        except RecursionError:
            self.unreadable.append(
                make_finding(UNREADABLE, SourceLocation(source.path), "the file is nested too deeply to check")
            )
            return None

    # --- names ---------------------------------------------------------------------------------

    def expand_alias(self, node: ast.expr, imports: ImportedNames) -> tuple[ast.expr, ImportedNames] | None:
        """Return the value assigned to a top-level name and the imports of its file, or None."""
        file, name = self._find_file(node, imports)
        found = file.aliases.get(name) if file is not None else None
        return None if file is None or found is None else (found, file.imports)

    def find_class(self, node: ast.expr, imports: ImportedNames) -> ClassDeclaration | None:
        """Return the class that an expression names, or None if it is not in the checked files."""
        file, name = self._find_file(node, imports)
        return file.classes.get(name) if file is not None else None

    def find_function(self, node: ast.expr, imports: ImportedNames) -> tuple[FileDeclarations, FunctionNode] | None:
        """Return the file and function that an expression names, or None if it is not in the checked files."""
        file, name = self._find_file(node, imports)
        found = file.functions.get(name) if file is not None else None
        return None if file is None or found is None else (file, found)

    def _find_file(self, node: ast.expr, imports: ImportedNames) -> tuple[FileDeclarations | None, str]:
        """Return the file that defines a name, and the name there."""
        own_file = self._files_by_imports.get(id(imports))
        if isinstance(node, ast.Name) and node.id not in imports.paths and node.id not in imports.typing_only:
            return own_file, node.id
        module, _, name = imports.get_path(node).rpartition(".")
        return self._modules.get(module), name

    # --- tools ---------------------------------------------------------------------------------

    def get_parameters(self, declaration: DeclaredTool) -> tuple[SourceParameter, ...]:
        """Return the parameters of a tool or prompt."""
        return tuple(
            replace(parameter, annotation=replace(parameter.annotation, injected=True))
            if self._is_context(parameter)
            else parameter
            for parameter in read_parameters(declaration, self.expand_alias)
        )

    def _is_context(self, parameter: SourceParameter) -> bool:
        """Return True if the parameter's type is a subclass of `ToolContext`."""
        type_node = parameter.annotation.type_node
        head = type_node.value if isinstance(type_node, ast.Subscript) else type_node
        if not isinstance(head, ast.Name | ast.Attribute):
            return False
        found = self.find_class(head, parameter.annotation.imports)
        ancestors = self.get_ancestry(found) if found is not None else []
        bases = (base for cls in ancestors for base in cls.node.bases)
        names = (base.value if isinstance(base, ast.Subscript) else base for base in bases)
        return any(cls.file.imports.get_path(base) == "toolmason.ToolContext" for cls in ancestors for base in names)

    def iter_declarations(self) -> Iterator[DeclaredTool]:
        """Yield every tool and prompt: decorated, overriding, passed to a toolbox, or created by a factory."""
        seen: set[int] = set()
        for file in self.files:
            for declaration in file.tools:
                seen.add(id(declaration.node))
                yield declaration
        for file in self.files:
            for cls in file.classes.values():
                for declaration in self.get_tools(cls).values():
                    if id(declaration.node) not in seen:
                        seen.add(id(declaration.node))
                        yield declaration
            for declaration in (*self._find_undecorated(file), *self._find_factory_tools(file)):
                if declaration.node is None or id(declaration.node) not in seen:
                    seen.add(id(declaration.node))
                    yield declaration

    def _find_undecorated(self, file: FileDeclarations) -> Iterator[DeclaredTool]:
        """Yield undecorated functions that are passed to a toolbox."""
        for box in file.toolbox_calls:
            for item in flatten(box.args):
                if isinstance(item, ast.Name) and (node := file.functions.get(item.id)) is not None:
                    yield declare(file, node, None, "tool")

    def _find_factory_tools(self, file: FileDeclarations) -> Iterator[DeclaredTool]:
        for factory, call in file.factory_calls:
            keywords, has_all_keywords = get_keywords(call)
            if factory == "from_schema":
                name, description = [*call.args, None, None][:2]
                named = {
                    "name": name or _get_value(keywords, "name"),
                    "description": description or _get_value(keywords, "description"),
                }
                named_keywords = {key: ast.keyword(key, value) for key, value in named.items() if value is not None}
                yield DeclaredTool(
                    source=file.source,
                    imports=file.imports,
                    function_name=eval_text(named["name"]) or "",
                    location=file.source.get_location(call),
                    keywords={**keywords, **named_keywords},
                    has_all_keywords=has_all_keywords,
                    made_by_factory=True,
                )
            elif call.args and isinstance(call.args[0], ast.Name) and "params" not in keywords:
                node = file.functions.get(call.args[0].id)
                if node is not None and "input_schema" not in keywords:
                    yield replace(
                        declare(file, node, call, "tool"),
                        name_expression=_get_value(keywords, "name"),
                        made_by_factory=True,
                    )

    # --- classes -------------------------------------------------------------------------------

    def get_ancestry(self, cls: ClassDeclaration) -> list[ClassDeclaration]:
        """Return a class and its ancestors in method resolution order, as far as they are in the checked files."""
        if (known := self._mro_cache.get(id(cls))) is not None:
            return known
        self._mro_cache[id(cls)] = []  # stops at a class that is its own ancestor
        bases = [self.find_class(_strip_subscript(base), cls.file.imports) for base in cls.node.bases]
        found = [base for base in bases if base is not None]
        order = [cls, *_merge_orders([*map(self.get_ancestry, found), found])]
        self._mro_cache[id(cls)] = order
        return order

    def get_tools(self, cls: ClassDeclaration) -> dict[str, DeclaredTool]:
        """Return the tools of a class by attribute name, including inherited ones, the most distant ancestor first."""
        found: dict[str, DeclaredTool] = {}
        for owner in reversed(self.get_ancestry(cls)):
            for name, member in owner.members.items():
                if isinstance(member, DeclaredTool):
                    found[name] = member
                elif member is None:
                    found.pop(name, None)
                elif name in found:
                    found[name] = _make_override(owner, member, found[name])
        return {name: tool for name, tool in found.items() if tool.kind == "tool"}


def _make_override(owner: ClassDeclaration, node: FunctionNode, overridden: DeclaredTool) -> DeclaredTool:
    """Return the tool for an undecorated override: its own signature with the overridden tool's metadata."""
    own = declare(owner.file, node, None, overridden.kind)
    has_description = (
        overridden.inherits_description
        or overridden.get_keyword("description") is not None
        or _has_docstring(overridden)
    )
    return replace(
        own,
        keywords=overridden.keywords,
        has_all_keywords=overridden.has_all_keywords,
        binding=overridden.binding,
        class_name=owner.name,
        block=overridden.block,
        inherited_name=overridden.name,
        inherits_description=has_description,
    )


def _has_docstring(declaration: DeclaredTool) -> bool:
    return declaration.node is not None and get_docstring(declaration.node) is not None


def _get_value(keywords: dict[str, ast.keyword], name: str) -> ast.expr | None:
    return keywords[name].value if name in keywords else None


def _strip_subscript(base: ast.expr) -> ast.expr:
    return base.value if isinstance(base, ast.Subscript) else base


def _merge_orders(orders: Sequence[Sequence[ClassDeclaration]]) -> list[ClassDeclaration]:
    """Merge method resolution orders: take the first head that is in no other tail."""
    remaining = [list(order) for order in orders if order]
    merged: list[ClassDeclaration] = []
    while remaining:
        heads = (order[0] for order in remaining)
        # Python rejects a hierarchy without such a head; any order is good enough for it.
        head = next((cls for cls in heads if all(cls not in order[1:] for order in remaining)), remaining[0][0])
        merged.append(head)
        without_head = ([cls for cls in order if cls is not head] for order in remaining)
        remaining = [order for order in without_head if order]
    return merged


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
    paths_by_file = [{*imports.paths.values(), *imports.typing_only.values()} for _, imports in parsed]
    uses_package = [any(path.partition(".")[0] == PACKAGE for path in paths) for paths in paths_by_file]
    wanted = {
        path.rpartition(".")[0]
        for paths, is_direct in zip(paths_by_file, uses_package, strict=True)
        if is_direct
        for path in paths
    }
    for (source, imports), is_direct in zip(parsed, uses_package, strict=True):
        if is_direct or source.module in wanted:
            yield source, imports
