"""Rules about several tools, misplaced decorators and experimental APIs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from toolmason._core.values.definition import apply_naming
from toolmason.build.check.rules import Finding, SourceLocation, make_finding
from toolmason.build.check.static.declared import (
    ClassDeclaration,
    DeclaredTool,
    FileDeclarations,
    FunctionNode,
    declare,
    eval_text,
    iter_calls,
)
from toolmason.build.check.static.project import Project, flatten

_EXPERIMENTAL_MARK = "toolmason.extend.experimental"


def check_sets(project: Project, *, experimental: bool = False) -> Iterator[Finding]:
    """Yield the findings between tools; `experimental` is True if experimental APIs are allowed."""
    for file in project.files:
        yield from file.findings
        yield from _check_module(file)
        for cls in file.classes:
            yield from _check_class(project, cls)
        for box in file.toolbox_calls:
            yield from _check_toolbox(project, file, box)
        if not experimental and not _allows_experimental(file):
            yield from _check_experimental_calls(project, file)


def _make_clash_finding(
    code: str, first: DeclaredTool, second: DeclaredTool, where: str, location: SourceLocation | None = None
) -> Finding:
    """Return a finding for two tools with the same name."""
    name = second.display_name
    message = f"two tools are named {name!r} {where}: {_format_location(first)} and {_format_location(second)}"
    def_line = second.location.line if location is None else 0
    return make_finding(code, location or second.location, message, tool=name, def_line=def_line)


def _check_names(
    code: str, first: DeclaredTool, second: DeclaredTool, where: str, location: SourceLocation | None = None
) -> Finding:
    """Return a finding for two tools whose names are equal or differ only in case."""
    found = _make_clash_finding(code, first, second, where, location)
    if first.display_name == second.display_name:
        return found
    message = f"the names {first.display_name!r} and {second.display_name!r} differ only in case {where}"
    return make_finding("TM207", found.location, message, tool=found.tool, def_line=found.def_line)


def _format_location(declaration: DeclaredTool) -> str:
    owner = f"{declaration.class_name}." if declaration.class_name else ""
    return f"`{owner}{declaration.function_name}` (line {declaration.location.line})"


def _find_name_pairs(tools: Iterable[DeclaredTool]) -> Iterator[tuple[DeclaredTool, DeclaredTool]]:
    """Yield each tool whose name, ignoring case, an earlier tool has, after that one."""
    seen: dict[str, DeclaredTool] = {}
    for tool in tools:
        if tool.name is not None and (first := seen.setdefault(tool.name.casefold(), tool)) is not tool:
            yield first, tool


def _check_module(file: FileDeclarations) -> Iterator[Finding]:
    tools = [tool for tool in file.tools if tool.kind == "tool" and tool.node is not None and not tool.node.col_offset]
    for first, second in _find_name_pairs(tools):
        if first.block == second.block:
            yield _check_names("TM108", first, second, "in this module")


def _check_class(project: Project, cls: ClassDeclaration) -> Iterator[Finding]:
    for first, second in cls.duplicates:
        where = f"in class {cls.name!r}, and the second replaces the first"
        yield _make_clash_finding("TM106", first, second, where)
    ancestor_tools = [project.get_tools(base).values() for base in project.get_ancestry(cls)[1:]]
    for first, second in _find_name_pairs(project.get_tools(cls).values()):
        if any(first in tools and second in tools for tools in ancestor_tools):
            continue  # already reported for the ancestor that has both
        own = second.class_name == cls.name and second.file is cls.file
        location = None if own else cls.file.source.get_name_location(cls.node)
        yield _check_names("TM106", first, second, f"in class {cls.name!r}", location)


def _check_toolbox(project: Project, file: FileDeclarations, box: ast.Call) -> Iterator[Finding]:
    keywords = {keyword.arg: keyword.value for keyword in box.keywords}
    naming = keywords.get("naming")
    if None in keywords or (naming is not None and eval_text(naming) != "snake"):
        return
    seen: dict[str, tuple[DeclaredTool, ast.expr]] = {}
    for item in flatten(box.args):
        location = file.source.get_location(item)
        if (cls := project.find_class(item, file)) is not None:
            unbound = [name for name, tool in project.get_tools(cls).items() if tool.binding == "instance"]
            if unbound:
                message = f"class {cls.name!r} has instance methods as tools: {', '.join(unbound)}; pass an instance"
                yield make_finding("TM123", location, message)
        for tool in _find_tools(project, file, item):
            is_renamed = naming is not None and tool.name is not None and tool.get_keyword("name") is None
            shown = replace(tool, inherited_name=apply_naming(tool.display_name, "snake")) if is_renamed else tool
            if shown.name is None:
                continue
            first, source = seen.setdefault(shown.name.casefold(), (shown, item))
            if source is not item:
                yield _check_names("TM107", first, shown, "in this toolbox", location)


def _find_tools(project: Project, file: FileDeclarations, item: ast.expr) -> Iterable[DeclaredTool]:
    """Return the tools of a toolbox argument: a function, a class, `Shop()`, or a name assigned to the latter."""
    owner, found = project.find(item, file) or (file, item)
    cls = project.find_class(found.func, owner) if isinstance(found, ast.Call) else found
    if isinstance(cls, ClassDeclaration):
        return project.get_tools(cls).values()
    if isinstance(found, FunctionNode):
        decorated = [tool for tool in owner.tools if tool.node is found]
        return decorated or [declare(owner, found)]
    return ()


def _allows_experimental(file: FileDeclarations) -> bool:
    if "allow_experimental" not in file.source.text:
        return False
    paths = file.imports.paths.values()
    return any(path.rpartition(".")[2] == "allow_experimental" for path in paths) or any(
        isinstance(node, ast.Attribute)
        and node.attr == "allow_experimental"
        and file.imports.get_path(node.value).startswith("toolmason")
        for node in ast.walk(file.source.tree)
    )


def _check_experimental_calls(project: Project, file: FileDeclarations) -> Iterator[Finding]:
    """Yield the calls of experimental functions and classes, except those in experimental code."""
    # Few files use experimental code, and walking a tree costs more than parsing it.
    names = {name for name in (*file.names, *file.imports.paths) if _is_experimental(project, file, ast.Name(name))}
    modules = {name for name, path in file.imports.paths.items() if project.has_module(path)}

    def is_marked(part: ast.AST) -> bool:
        return isinstance(part, FunctionNode | ast.ClassDef) and _has_mark(part, file)

    for call in iter_calls(file.source.tree, is_marked) if names or modules else ():
        root = next((part for part in ast.walk(call.func) if isinstance(part, ast.Name)), None)
        if root is not None and root.id in names | modules and _is_experimental(project, file, call.func):
            message = f"{ast.unparse(call.func)!r} is experimental and not allowed in this file"
            yield make_finding("TM125", file.source.get_location(call), message)


def _is_experimental(project: Project, file: FileDeclarations, node: ast.expr) -> bool:
    owner, found = project.find(node, file) or (file, None)
    definition = found.node if isinstance(found, ClassDeclaration) else found
    return isinstance(definition, FunctionNode | ast.ClassDef) and _has_mark(definition, owner)


def _has_mark(definition: FunctionNode | ast.ClassDef, file: FileDeclarations) -> bool:
    marks = (mark.func if isinstance(mark, ast.Call) else mark for mark in definition.decorator_list)
    return any(file.imports.get_path(mark) == _EXPERIMENTAL_MARK for mark in marks)
