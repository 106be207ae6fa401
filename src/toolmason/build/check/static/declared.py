"""Find the tools, prompts, classes and toolboxes that a file declares."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from toolmason.build.check.rules import SourceLocation
from toolmason.build.check.static.annotations import eval_text
from toolmason.build.check.static.imports import COMPOUND, ImportedNames
from toolmason.build.check.static.source_file import Source

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Binding: TypeAlias = Literal["free", "instance", "class", "static"]
"""How the function is called: as a plain function, or as an instance, class or static method."""

DECORATORS: Final[dict[str, Literal["tool", "prompt"]]] = {"toolmason.tool": "tool", "toolmason.prompt": "prompt"}
EXCLUDE_DECORATOR: Final = "toolmason.tool.exclude"
_PROPERTY_DECORATORS: Final = frozenset({"property", "functools.cached_property", "abc.abstractproperty"})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DeclaredTool:
    """A tool or prompt as declared in source."""

    source: Source
    imports: ImportedNames
    kind: Literal["tool", "prompt"] = "tool"
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
    name_expression: ast.expr | None = None
    made_by_factory: bool = False
    """True if created by `Tool.from_function` or `Tool.from_schema`, which have more options."""
    inherited_name: str | None = None
    """Name that an undecorated override inherits."""
    inherits_description: bool = False
    """True if an undecorated override inherits a description."""

    @property
    def name(self) -> str | None:
        """Name that the model sees, or None if the source does not show it."""
        expression = self.name_expression if self.name_expression is not None else self.get_keyword("name")
        if expression is None or (isinstance(expression, ast.Constant) and expression.value is None):
            return self.inherited_name or (self.function_name if self.has_all_keywords else None)
        return eval_text(expression)

    @property
    def display_name(self) -> str:
        """Name for messages."""
        return self.name or self.function_name

    def get_keyword(self, name: str) -> ast.expr | None:
        """Return a keyword argument of the decorator, or None."""
        keyword = self.keywords.get(name)
        return keyword.value if keyword is not None else None

    def is_true(self, name: str) -> bool:
        """Return True if an option is the literal `True`."""
        value = self.get_keyword(name)
        return isinstance(value, ast.Constant) and value.value is True


@dataclass(frozen=True, slots=True, eq=False)
class MisplacedDecorator:
    """A decorator on an object that cannot be a tool."""

    location: SourceLocation
    kind: str
    target: str


@dataclass(frozen=True, slots=True, eq=False)
class ClassDeclaration:
    """A class with its bases and members."""

    name: str
    node: ast.ClassDef
    file: FileDeclarations
    block: int
    members: dict[str, DeclaredTool | FunctionNode | None] = field(default_factory=dict)
    """Tools, plain methods, and None for a member that removes an inherited tool."""
    duplicates: list[tuple[DeclaredTool, DeclaredTool]] = field(default_factory=list)
    """Pairs of tools bound to the same name in one class body; the second replaces the first."""


@dataclass(frozen=True, slots=True, eq=False)
class FileDeclarations:
    """Declarations in one file."""

    source: Source
    imports: ImportedNames
    tools: list[DeclaredTool] = field(default_factory=list)
    """Decorated functions and methods in source order."""
    misplaced: list[MisplacedDecorator] = field(default_factory=list)
    classes: dict[str, ClassDeclaration] = field(default_factory=dict)
    functions: dict[str, FunctionNode] = field(default_factory=dict)
    """Top-level functions."""
    aliases: dict[str, ast.expr] = field(default_factory=dict)
    """Values assigned to top-level names."""
    toolbox_calls: list[ast.Call] = field(default_factory=list)
    factory_calls: list[tuple[str, ast.Call]] = field(default_factory=list)
    """Calls of `Tool.from_function(...)` and `Tool.from_schema(...)`."""


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


def get_keywords(call: ast.expr | None) -> tuple[dict[str, ast.keyword], bool]:
    """Return the keyword arguments of a call, and False if it also has `**` arguments."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return {keyword.arg: keyword for keyword in keywords if keyword.arg}, all(keyword.arg for keyword in keywords)


def declare(
    file: FileDeclarations, node: FunctionNode, call: ast.expr | None, kind: Literal["tool", "prompt"]
) -> DeclaredTool:
    """Return the declaration of a function."""
    keywords, has_all_keywords = get_keywords(call)
    return DeclaredTool(
        source=file.source,
        imports=file.imports,
        kind=kind,
        function_name=node.name,
        location=file.source.get_name_location(node),
        node=node,
        keywords=keywords,
        has_all_keywords=has_all_keywords,
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
                self._read_class(node, scope, block)
            elif isinstance(node, ast.Assign | ast.AnnAssign) or type(node).__name__ == "TypeAlias":
                self._read_assignment(node, owner, scope)
            elif isinstance(node, COMPOUND):
                for part in ("body", "orelse", "finalbody"):
                    self.read(getattr(node, part, ()), owner, scope)
                for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                    self.read(branch.body, owner, scope)

    def _read_class(self, node: ast.ClassDef, scope: str, block: int) -> None:
        for decorator in node.decorator_list:
            if kind := self._get_kind(decorator):
                self.file.misplaced.append(
                    MisplacedDecorator(self.file.source.get_location(decorator), kind, f"class {node.name!r}")
                )
        declaration = ClassDeclaration(node.name, node, self.file, block)
        if scope == "module":
            self.file.classes[node.name] = declaration
        self.read(node.body, declaration, "class")

    def _read_function(self, node: FunctionNode, owner: ClassDeclaration | None, scope: str, block: int) -> None:
        decorators = [(item, self._get_path(item)) for item in node.decorator_list]
        paths = {path for _, path in decorators}
        if scope == "module":
            self.file.functions[node.name] = node
        if EXCLUDE_DECORATOR in paths:
            self._add_member(owner, node.name, None)
            return
        marker = next((item for item, path in decorators if path in DECORATORS), None)
        if marker is None:
            if not any(path.endswith((".overload", ".setter", ".deleter")) for path in paths):
                self._add_member(owner, node.name, None if paths & _PROPERTY_DECORATORS else node)
            return
        kind = DECORATORS[self._get_path(marker)]
        if paths & _PROPERTY_DECORATORS or any(path.endswith((".setter", ".deleter")) for path in paths):
            self.file.misplaced.append(
                MisplacedDecorator(self.file.source.get_location(marker), kind, f"the property {node.name!r}")
            )
            self._add_member(owner, node.name, None)
            return
        declared = replace(
            declare(self.file, node, marker, kind),
            binding=get_binding(paths, node.name) if owner is not None else "free",
            class_name=owner.name if owner is not None else "",
            block=block,
        )
        self.file.tools.append(declared)
        self._add_member(owner, node.name, declared)

    def _add_member(
        self, owner: ClassDeclaration | None, name: str, member: DeclaredTool | FunctionNode | None
    ) -> None:
        if owner is None:
            return
        previous = owner.members.get(name)
        if isinstance(previous, DeclaredTool) and isinstance(member, DeclaredTool) and previous.block == member.block:
            owner.duplicates.append((previous, member))
        owner.members[name] = member

    def _read_assignment(self, node: ast.stmt, owner: ClassDeclaration | None, scope: str) -> None:
        value: ast.expr | None = getattr(node, "value", None)
        targets = (
            node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", getattr(node, "name", None))]
        )
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                if owner is not None:
                    owner.members[target.id] = None
                elif scope == "module":
                    self.file.aliases[target.id] = value

    def _get_path(self, decorator: ast.expr) -> str:
        return self.file.imports.get_path(decorator.func if isinstance(decorator, ast.Call) else decorator)

    def _get_kind(self, decorator: ast.expr) -> str:
        return DECORATORS.get(self._get_path(decorator), "")


def get_binding(paths: Iterable[str], name: str) -> Binding:
    """Return how a method is bound, given its decorators."""
    if "staticmethod" in paths:
        return "static"
    return "class" if "classmethod" in paths or name in ("__init_subclass__", "__class_getitem__") else "instance"
