"""Rules about several tools, misplaced decorators and experimental APIs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from toolmason._core.values.definition import apply_naming
from toolmason.build.check.rules import Finding, SourceLocation, make_finding
from toolmason.build.check.static.annotations import eval_text
from toolmason.build.check.static.declared import ClassDeclaration, DeclaredTool, FileDeclarations, declare
from toolmason.build.check.static.imports import ImportedNames
from toolmason.build.check.static.project import Project, flatten

_EXPERIMENTAL = "toolmason.experimental"


def check_sets(project: Project, *, experimental: bool = False) -> Iterator[Finding]:
    """Yield the findings between tools; `experimental` is True if experimental APIs are allowed."""
    for file in project.files:
        yield from _check_misplaced(file)
        yield from _check_module(file)
        for cls in file.classes.values():
            yield from _check_class(project, cls)
        for box in file.toolbox_calls:
            yield from _check_toolbox(project, file, box)
        if not experimental:
            yield from _check_experimental(file)


def _check_misplaced(file: FileDeclarations) -> Iterator[Finding]:
    for item in file.misplaced:
        message = f"@{item.kind} belongs on a function or method, not on {item.target}"
        yield make_finding("TM114", item.location, message, def_line=item.location.line)


def _make_duplicate_finding(
    code: str, name: str, first: DeclaredTool, second: DeclaredTool, where: str, location: SourceLocation | None = None
) -> Finding:
    def_line = second.node.lineno if second.node is not None and location is None else 0
    message = f"two tools are named {name!r} {where}: {_format_location(first)} and {_format_location(second)}"
    return make_finding(code, location or second.location, message, tool=name, def_line=def_line)


def _format_location(declaration: DeclaredTool) -> str:
    owner = f"{declaration.class_name}." if declaration.class_name else ""
    return f"`{owner}{declaration.function_name}` (line {declaration.location.line})"


def _find_name_pairs(tools: Iterable[DeclaredTool]) -> Iterator[tuple[str, DeclaredTool, DeclaredTool]]:
    """Yield each tool whose name, ignoring case, an earlier tool has."""
    seen: dict[str, DeclaredTool] = {}
    for tool in tools:
        if tool.name is not None and (first := seen.setdefault(tool.name.casefold(), tool)) is not tool:
            yield tool.name, first, tool


def _check_module(file: FileDeclarations) -> Iterator[Finding]:
    tools = [tool for tool in file.tools if not tool.class_name and tool.kind == "tool" and _is_top_level(file, tool)]
    for name, first, second in _find_name_pairs(tools):
        if first.block == second.block:
            yield _make_clash_finding("TM108", name, first, second, "in this module")


def _is_top_level(file: FileDeclarations, tool: DeclaredTool) -> bool:
    return tool.node is not None and tool.node.col_offset == 0 and tool.function_name in file.functions


def _make_clash_finding(
    code: str, name: str, first: DeclaredTool, second: DeclaredTool, where: str, location: SourceLocation | None = None
) -> Finding:
    """Return a finding for two tools with the same name, or with names that differ only in case."""
    if first.name == second.name:
        return _make_duplicate_finding(code, name, first, second, where, location)
    message = f"the names {first.name!r} and {second.name!r} differ only in case {where}"
    return make_finding(
        "TM207", location or second.location, message, tool=name, def_line=0 if location else second.location.line
    )


def _check_class(project: Project, cls: ClassDeclaration) -> Iterator[Finding]:
    for first, second in cls.duplicates:
        yield _make_duplicate_finding(
            "TM106", second.display_name, first, second, f"in class {cls.name!r}, and the second replaces the first"
        )
    ancestor_tools = [set(map(id, project.get_tools(base).values())) for base in project.get_ancestry(cls)[1:]]
    for name, first, second in _find_name_pairs(project.get_tools(cls).values()):
        if any(id(first) in tools and id(second) in tools for tools in ancestor_tools):
            continue  # already reported for the ancestor that has both
        own = second.class_name == cls.name and second.source is cls.file.source
        location = None if own else cls.file.source.get_name_location(cls.node)
        yield _make_clash_finding("TM106", name, first, second, f"in class {cls.name!r}", location)


def _check_toolbox(project: Project, file: FileDeclarations, box: ast.Call) -> Iterator[Finding]:
    keywords = {keyword.arg: keyword.value for keyword in box.keywords}
    naming = keywords.get("naming")
    if None in keywords or (naming is not None and eval_text(naming) != "snake"):
        return
    seen: dict[str, tuple[DeclaredTool, ast.expr]] = {}
    for item in flatten(box.args):
        cls = project.find_class(item, file.imports) if isinstance(item, ast.Name | ast.Attribute) else None
        if cls is not None:
            yield from _check_uninstantiated(project, file, cls, item)
        for tool in _find_tools(project, file, item):
            if tool.name is None:
                continue
            has_own_name = tool.get_keyword("name") is not None
            name = apply_naming(tool.name, "snake" if naming is not None and not has_own_name else None)
            first, source = seen.setdefault(name.casefold(), (tool, item))
            if source is item:
                continue
            location = file.source.get_location(item)
            if first.name == tool.name or naming is not None:
                yield _make_duplicate_finding("TM107", name, first, tool, "in this toolbox", location)
            else:
                yield _make_clash_finding("TM107", name, first, tool, "in this toolbox", location)


def _find_tools(project: Project, file: FileDeclarations, item: ast.expr) -> Iterator[DeclaredTool]:
    """Yield the tools of a toolbox argument, as far as the checked files define them."""
    if (cls := _find_class(project, file.imports, item)) is not None:
        yield from project.get_tools(cls).values()
    elif (
        isinstance(item, ast.Name | ast.Attribute) and (found := project.find_function(item, file.imports)) is not None
    ):
        source_file, node = found
        decorated = next((tool for tool in source_file.tools if tool.node is node), None)
        yield decorated or declare(source_file, node, None, "tool")


def _find_class(project: Project, imports: ImportedNames, item: ast.expr) -> ClassDeclaration | None:
    """Return the class of a toolbox argument: the class itself, `Shop()`, or a name assigned to either."""
    if isinstance(item, ast.Call):
        return project.find_class(item.func, imports)
    if not isinstance(item, ast.Name | ast.Attribute):
        return None
    assigned = project.expand_alias(item, imports)
    if assigned is not None and isinstance(assigned[0], ast.Call):
        return project.find_class(assigned[0].func, assigned[1])
    return project.find_class(item, imports)


def _check_uninstantiated(
    project: Project, file: FileDeclarations, cls: ClassDeclaration, item: ast.expr
) -> Iterator[Finding]:
    unbound = [name for name, tool in project.get_tools(cls).items() if tool.binding == "instance"]
    if unbound:
        message = f"class {cls.name!r} has instance methods as tools: {', '.join(unbound)}; pass an instance"
        yield make_finding("TM123", file.source.get_location(item), message)


def _check_experimental(file: FileDeclarations) -> Iterator[Finding]:
    paths = file.imports.paths.values()
    if "experimental" not in file.source.text or any(path.rpartition(".")[2] == "allow_experimental" for path in paths):
        return
    for node in ast.walk(file.source.tree):
        if isinstance(node, ast.ImportFrom) and node.module == _EXPERIMENTAL and not node.level:
            for alias in node.names:
                message = f"{alias.name!r} is experimental and not allowed in this file"
                yield make_finding("TM125", file.source.get_location(alias), message)
        elif isinstance(node, ast.Attribute):
            head = file.imports.get_path(node.value)
            if node.attr == "allow_experimental" and head.startswith("toolmason"):
                return
            if head == _EXPERIMENTAL:
                message = f"{node.attr!r} is experimental and not allowed in this file"
                yield make_finding("TM125", file.source.get_location(node), message)
