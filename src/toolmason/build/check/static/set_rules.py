"""Rules about several tools together, and about what is no tool: clashes, misplaced decorators, experimental API.

Lives here: names within a class and its ancestors, within a module, within one `Toolbox(...)`.
Not here: one tool by itself (`definition_rules`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from toolmason._core.values.definition import apply_naming
from toolmason.build.check.rules import Finding, Place, finding
from toolmason.build.check.static.annotations import text_of
from toolmason.build.check.static.declared import ClassFacts, Declared, Facts, declare
from toolmason.build.check.static.imports import Names
from toolmason.build.check.static.project import Project, flat

_EXPERIMENTAL = "toolmason.extend"
_GATES = frozenset({"allow_experimental", "experimental", "experimental_is_allowed", "refuse_experimental"})


def check_sets(project: Project, *, experimental: bool = False) -> Iterator[Finding]:
    """Yield what is wrong between tools; `experimental` says that experimental API is allowed."""
    for facts in project.files:
        yield from _misplaced(facts)
        yield from _module(facts)
        for cls in facts.classes.values():
            yield from _hierarchy(project, cls)
        for box in facts.boxes:
            yield from _box(project, facts, box)
        if not experimental:
            yield from _experimental(facts)


def _misplaced(facts: Facts) -> Iterator[Finding]:
    for item in facts.misplaced:
        message = f"@{item.kind} goes on a function or method, not on {item.what}"
        yield finding("TM114", item.place, message, owner=item.place.line)


def _clash(code: str, name: str, first: Declared, second: Declared, where: str, place: Place | None = None) -> Finding:
    owner = second.node.lineno if second.node is not None and place is None else 0
    message = f"two tools are named {name!r} {where}: {_where(first)} and {_where(second)}"
    return finding(code, place or second.place, message, tool=name, owner=owner)


def _where(declared: Declared) -> str:
    owner = f"{declared.owner}." if declared.owner else ""
    return f"`{owner}{declared.function}` (line {declared.place.line})"


def _pairs(tools: Iterable[Declared]) -> Iterator[tuple[str, Declared, Declared]]:
    """Yield each tool whose name, in whatever case, an earlier one has."""
    seen: dict[str, Declared] = {}
    for tool in tools:
        if tool.name is not None and (first := seen.setdefault(tool.name.casefold(), tool)) is not tool:
            yield tool.name, first, tool


def _module(facts: Facts) -> Iterator[Finding]:
    tools = [tool for tool in facts.tools if not tool.owner and tool.kind == "tool" and _at_top(facts, tool)]
    for name, first, second in _pairs(tools):
        if first.block == second.block:
            yield _named(name, first, second, "TM108", "in this module")


def _at_top(facts: Facts, tool: Declared) -> bool:
    return tool.node is not None and tool.node.col_offset == 0 and tool.function in facts.functions


def _named(name: str, first: Declared, second: Declared, code: str, where: str, place: Place | None = None) -> Finding:
    if first.name == second.name:
        return _clash(code, name, first, second, where, place)
    message = f"the names {first.name!r} and {second.name!r} differ in case only {where}"
    return finding("TM207", place or second.place, message, tool=name, owner=0 if place else second.place.line)


def _hierarchy(project: Project, cls: ClassFacts) -> Iterator[Finding]:
    for first, second in cls.repeated:
        yield _clash("TM106", second.shown, first, second, f"in class {cls.name!r}, and the first is lost")
    above = [set(map(id, project.tools_in(base).values())) for base in project.ancestry(cls)[1:]]
    for name, first, second in _pairs(project.tools_in(cls).values()):
        if any(id(first) in tools and id(second) in tools for tools in above):
            continue  # told at the ancestor that has both
        own = second.owner == cls.name and second.source is cls.facts.source
        place = None if own else cls.facts.source.place_of_name(cls.node)
        yield _named(name, first, second, "TM106", f"in class {cls.name!r}", place)


def _box(project: Project, facts: Facts, box: ast.Call) -> Iterator[Finding]:
    words = {word.arg: word.value for word in box.keywords}
    naming = words.get("naming")
    if None in words or (naming is not None and text_of(naming) != "snake"):
        return
    seen: dict[str, tuple[Declared, ast.expr]] = {}
    for item in flat(box.args):
        cls = project.class_at(item, facts.names) if isinstance(item, ast.Name | ast.Attribute) else None
        if cls is not None:
            yield from _uninstantiated(project, facts, cls, item)
        for tool in _given(project, facts, item):
            if tool.name is None:
                continue
            kept = tool.word("name") is not None
            name = apply_naming(tool.name, "snake" if naming is not None and not kept else None)
            first, source = seen.setdefault(name.casefold(), (tool, item))
            if source is item:
                continue
            place = facts.source.place(item)
            if first.name == tool.name or naming is not None:
                yield _clash("TM107", name, first, tool, "in this toolbox", place)
            else:
                yield _named(name, first, tool, "TM107", "in this toolbox", place)


def _given(project: Project, facts: Facts, item: ast.expr) -> Iterator[Declared]:
    """Yield the tools that a source of a toolbox gives, as far as the project shows it."""
    if (cls := _class_behind(project, facts.names, item)) is not None:
        yield from project.tools_in(cls).values()
    elif isinstance(item, ast.Name | ast.Attribute) and (found := project.function_at(item, facts.names)) is not None:
        home, node = found
        decorated = next((tool for tool in home.tools if tool.node is node), None)
        yield decorated or declare(home, node, None, "tool")


def _class_behind(project: Project, names: Names, item: ast.expr) -> ClassFacts | None:
    """Return the class of a source: of the class itself, of `Shop()`, or of a name that was assigned one."""
    if isinstance(item, ast.Call):
        return project.class_at(item.func, names)
    if not isinstance(item, ast.Name | ast.Attribute):
        return None
    assigned = project.expand(item, names)
    if assigned is not None and isinstance(assigned[0], ast.Call):
        return project.class_at(assigned[0].func, assigned[1])
    return project.class_at(item, names)


def _uninstantiated(project: Project, facts: Facts, cls: ClassFacts, item: ast.expr) -> Iterator[Finding]:
    unbound = [name for name, tool in project.tools_in(cls).items() if tool.binding == "instance"]
    if unbound:
        message = f"class {cls.name!r} has instance methods as tools: {', '.join(unbound)}; give an instance"
        yield finding("TM123", facts.source.place(item), message)


def _experimental(facts: Facts) -> Iterator[Finding]:
    paths = facts.names.meaning.values()
    if "experimental" not in facts.source.text or any(
        path.rpartition(".")[2] == "allow_experimental" for path in paths
    ):
        return
    for node in ast.walk(facts.source.tree):
        if isinstance(node, ast.ImportFrom) and node.module == _EXPERIMENTAL and not node.level:
            for alias in node.names:
                if alias.name not in _GATES:
                    message = f"{alias.name!r} is experimental, and nothing here allows that"
                    yield finding("TM125", facts.source.place(alias), message)
        elif isinstance(node, ast.Attribute):
            head = facts.names.dotted(node.value)
            if head == _EXPERIMENTAL and node.attr == "allow_experimental":
                return
            if head == _EXPERIMENTAL and node.attr not in _GATES:
                message = f"{node.attr!r} is experimental, and nothing here allows that"
                yield finding("TM125", facts.source.place(node), message)
