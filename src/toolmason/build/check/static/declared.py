"""Find the tools, prompts, classes and toolboxes that a file declares."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from toolmason.build.check.rules import Finding, SourceLocation, make_finding
from toolmason.build.check.static.imports import COMPOUND, ImportedNames
from toolmason.build.check.static.source_file import Source

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Kind: TypeAlias = Literal["tool", "prompt", "resource"]
Binding: TypeAlias = Literal["free", "instance", "class", "static"]
"""How the function is called: as a plain function, or as an instance, class or static method."""

_DECORATORS: Final[dict[str, Kind]] = {
    "toolmason.tool": "tool",
    "toolmason.prompt": "prompt",
    "toolmason.resource": "resource",
}
"""Kinds by decorator; a function with several is checked as the first of them."""
_EXCLUDE_DECORATOR: Final = "toolmason.tool.exclude"
_PROPERTY_DECORATORS: Final = frozenset({"property", "functools.cached_property", "abc.abstractproperty"})


def eval_literal(node: ast.expr | None) -> Any:
    """Return the value of a literal, or `...` if it is not a literal."""
    if node is None:
        return ...
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ...


def eval_text(node: ast.expr | None) -> str | None:
    """Return the value of a string literal, or None if it is not one."""
    value = eval_literal(node)
    return value if isinstance(value, str) else None


def iter_calls(node: ast.AST, is_closed: Callable[[ast.AST], bool]) -> Iterator[ast.Call]:
    """Yield the calls in a node, except those in parts that are closed."""
    for part in ast.iter_child_nodes(node):
        if not is_closed(part):
            if isinstance(part, ast.Call):
                yield part
            yield from iter_calls(part, is_closed)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeclaredTool:
    """A tool, prompt or resource as declared in source."""

    file: FileDeclarations
    kind: Kind = "tool"
    function_name: str
    """Name of the Python function."""
    location: SourceLocation
    node: FunctionNode | None = None
    """The function, or None for a tool with a hand-written schema."""
    keywords: Mapping[str, ast.keyword] = field(default_factory=dict)
    """Keyword arguments of the decorator."""
    has_all_keywords: bool = True
    """False if the call also has `**` arguments."""
    binding: Binding = "free"
    class_name: str = ""
    """Name of the enclosing class."""
    block: int = 0
    """Number of the enclosing block; distinguishes definitions in the same block from those in alternative branches."""
    made_by_factory: bool = False
    """True if created by `Tool.from_function` or `Tool.from_schema`, which have more options."""
    inherited_name: str | None = None
    """Name that an undecorated override inherits."""
    inherits_description: bool = False
    """True if an undecorated override inherits a description."""

    @property
    def name(self) -> str | None:
        """Name that the model sees, or None if the source does not show it."""
        expression = self.get_keyword("name")
        if expression is None or eval_literal(expression) is None:
            return self.inherited_name or (self.function_name if self.has_all_keywords else None)
        return eval_text(expression)

    @property
    def display_name(self) -> str:
        """Name for messages."""
        return self.name or self.function_name

    @property
    def docstring(self) -> str | None:
        """Docstring of the function."""
        return ast.get_docstring(self.node, clean=False) if self.node is not None else None

    def get_keyword(self, name: str) -> ast.expr | None:
        """Return a keyword argument of the decorator, or None."""
        keyword = self.keywords.get(name)
        return keyword.value if keyword is not None else None

    def is_true(self, name: str) -> bool:
        """Return True if an option is the literal `True`."""
        return eval_literal(self.get_keyword(name)) is True

    @property
    def has_approval_or_preview(self) -> bool:
        """True if a person approves the call, or sees what it does."""
        given = [eval_literal(self.get_keyword(word)) for word in ("approval", "preview") if word in self.keywords]
        return any(value not in (False, None) for value in given)


@dataclass(frozen=True, slots=True, eq=False)
class ClassDeclaration:
    """A class with its bases and members."""

    name: str
    node: ast.ClassDef
    file: FileDeclarations
    members: dict[str, DeclaredTool | FunctionNode | None] = field(default_factory=dict)
    """Tools, plain methods, and None for a member that removes an inherited tool."""
    duplicates: list[tuple[DeclaredTool, DeclaredTool]] = field(default_factory=list)
    """Pairs of tools bound to the same name in one class body; the second replaces the first."""


Definition: TypeAlias = ClassDeclaration | FunctionNode | ast.expr


@dataclass(frozen=True, slots=True, eq=False)
class FileDeclarations:
    """Declarations in one file."""

    source: Source
    imports: ImportedNames
    tools: list[DeclaredTool] = field(default_factory=list)
    """Decorated functions and methods in source order."""
    names: dict[str, Definition] = field(default_factory=dict)
    """Top-level classes, functions and assigned values."""
    findings: list[Finding] = field(default_factory=list)
    """Findings about decorators on objects that cannot be tools."""
    toolbox_calls: list[ast.Call] = field(default_factory=list)
    factory_calls: list[tuple[str, ast.Call]] = field(default_factory=list)
    """Calls of `Tool.from_function(...)` and `Tool.from_schema(...)`."""

    @property
    def classes(self) -> list[ClassDeclaration]:
        """Top-level classes."""
        return [item for item in self.names.values() if isinstance(item, ClassDeclaration)]


def read_declarations(source: Source, imports: ImportedNames) -> FileDeclarations:
    """Read the declarations of a file."""
    file = FileDeclarations(source, imports)
    _DeclarationReader(file).read(source.tree.body, None, "module")
    # Walking the whole tree costs more than parsing it, and most files create no toolbox.
    local_names = [name for name, path in imports.paths.items() if path == "toolmason.Toolbox"]
    may_make_tools = any(
        f"{name}(" in source.text for name in ("Toolbox", "from_function", "from_schema", *local_names)
    )
    for node in ast.walk(source.tree) if may_make_tools else ():
        if isinstance(node, ast.Call):
            called = imports.get_path(node.func)
            if called == "toolmason.Toolbox":
                file.toolbox_calls.append(node)
            elif called in ("toolmason.Tool.from_function", "toolmason.Tool.from_schema"):
                file.factory_calls.append((called.rpartition(".")[2], node))
    return file


def declare(file: FileDeclarations, node: FunctionNode, call: ast.expr | None = None, **more: Any) -> DeclaredTool:
    """Return the declaration of a function, with the keyword arguments of a decorator or factory."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return DeclaredTool(
        file=file,
        function_name=node.name,
        location=file.source.get_name_location(node),
        node=node,
        keywords={keyword.arg: keyword for keyword in keywords if keyword.arg},
        has_all_keywords=all(keyword.arg for keyword in keywords),
        **more,
    )


class _DeclarationReader:
    def __init__(self, file: FileDeclarations) -> None:
        self.file = file
        self.block_count = 0

    def read(self, body: Iterable[ast.stmt], owner: ClassDeclaration | None, scope: str) -> None:
        """Read statements; `scope` is "module", "class" or "function"."""
        self.block_count += 1
        block = self.block_count
        for node in body:
            if isinstance(node, FunctionNode):
                self._read_function(node, owner, scope, block)
                self.read(node.body, None, "function")
            elif isinstance(node, ast.ClassDef):
                self._read_class(node, scope)
            elif isinstance(node, ast.Assign | ast.AnnAssign) or type(node).__name__ == "TypeAlias":
                self._read_assignment(node, owner, scope)
            elif isinstance(node, COMPOUND):
                for part in ("body", "orelse", "finalbody"):
                    self.read(getattr(node, part, ()), owner, scope)
                for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                    self.read(branch.body, owner, scope)

    def _read_class(self, node: ast.ClassDef, scope: str) -> None:
        for decorator in node.decorator_list:
            if kind := _DECORATORS.get(self._get_path(decorator)):
                self._report_misplaced(decorator, kind, f"class {node.name!r}")
        declaration = ClassDeclaration(node.name, node, self.file)
        if scope == "module":
            self.file.names[node.name] = declaration
        self.read(node.body, declaration, "class")

    def _read_function(self, node: FunctionNode, owner: ClassDeclaration | None, scope: str, block: int) -> None:
        decorators = {self._get_path(item): item for item in reversed(node.decorator_list)}
        paths = decorators.keys()
        if scope == "module":
            self.file.names[node.name] = node
        marker = next((path for path in _DECORATORS if path in decorators), None)
        is_property = not paths.isdisjoint(_PROPERTY_DECORATORS)
        is_accessor = any(path.endswith((".setter", ".deleter")) for path in paths)
        member: DeclaredTool | FunctionNode | None = None
        if _EXCLUDE_DECORATOR in paths:
            pass
        elif marker is None:
            if is_accessor or any(path.endswith(".overload") for path in paths):
                return
            member = None if is_property else node
        elif is_property or is_accessor:
            self._report_misplaced(decorators[marker], _DECORATORS[marker], f"the property {node.name!r}")
        else:
            binding = _get_binding(paths, node.name) if owner is not None else "free"
            class_name = owner.name if owner is not None else ""
            options = {"kind": _DECORATORS[marker], "binding": binding, "class_name": class_name, "block": block}
            member = declare(self.file, node, decorators[marker], **options)
            self.file.tools.append(member)
        if owner is not None:
            previous = owner.members.get(node.name)
            if isinstance(previous, DeclaredTool) and isinstance(member, DeclaredTool) and previous.block == block:
                owner.duplicates.append((previous, member))
            owner.members[node.name] = member

    def _read_assignment(self, node: ast.stmt, owner: ClassDeclaration | None, scope: str) -> None:
        value: ast.expr | None = getattr(node, "value", None)
        targets = (
            node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", getattr(node, "name", None))]
        )
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                if owner is not None:
                    owner.members[target.id] = None
                elif scope == "module" and not isinstance(
                    self.file.names.get(target.id), ClassDeclaration | FunctionNode
                ):
                    self.file.names[target.id] = value

    def _report_misplaced(self, decorator: ast.expr, kind: str, target: str) -> None:
        location = self.file.source.get_location(decorator)
        message = f"@{kind} belongs on a function or method, not on {target}"
        self.file.findings.append(make_finding("TM114", location, message, def_line=location.line))

    def _get_path(self, decorator: ast.expr) -> str:
        return self.file.imports.get_path(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _get_binding(paths: Iterable[str], name: str) -> Binding:
    """Return how a method is bound, given its decorators."""
    if "staticmethod" in paths:
        return "static"
    return "class" if "classmethod" in paths or name in ("__init_subclass__", "__class_getitem__") else "instance"
