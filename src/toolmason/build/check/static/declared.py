"""A syntax tree → the tools, classes and toolboxes that it declares.

Lives here: finding `@tool` and `@prompt`, `Toolbox(...)`, `Tool.from_function(...)` and `Tool.from_schema(...)`.
Not here: what a name of another file means (`project`), or what is wrong with a declaration (the rules).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from toolmason.build.check.rules import Place
from toolmason.build.check.static.annotations import text_of
from toolmason.build.check.static.imports import COMPOUND, Names
from toolmason.build.check.static.source_file import Source

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Binding: TypeAlias = Literal["free", "instance", "class", "static"]
"""What is called: a plain function, or a method that gets its object, its class, or nothing."""

DECORATORS: Final[dict[str, Literal["tool", "prompt"]]] = {"toolmason.tool": "tool", "toolmason.prompt": "prompt"}
EXCLUDE: Final = "toolmason.tool.exclude"
_PROPERTIES: Final = frozenset({"property", "functools.cached_property", "abc.abstractproperty"})


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Declared:
    """A tool or prompt, as the source declares it."""

    source: Source
    names: Names
    kind: Literal["tool", "prompt"] = "tool"
    function: str
    """What Python calls it."""
    place: Place
    node: FunctionNode | None = None
    """The function; `None` for a tool with a hand-written schema."""
    words: Mapping[str, ast.keyword] = field(default_factory=dict)
    """What the decorator was given by name."""
    closed: bool = True
    """Whether those are all the words, or others come with `**`."""
    binding: Binding = "free"
    owner: str = ""
    """The class that it is written in."""
    block: int = 0
    """Tells definitions that stand side by side from those in other branches."""
    written_name: ast.expr | None = None
    maker: bool = False
    """Whether it is made by `Tool.from_function` or `Tool.from_schema`, which take more words."""
    inherited: str | None = None
    """The name that an undecorated override takes over from what it overrides."""
    inherited_text: bool = False
    """Whether it takes over a description, too."""

    @property
    def name(self) -> str | None:
        """What the model calls it; `None` where that cannot be read off the source."""
        written = self.written_name if self.written_name is not None else self.word("name")
        if written is None or (isinstance(written, ast.Constant) and written.value is None):
            return self.inherited or (self.function if self.closed else None)
        return text_of(written)

    @property
    def shown(self) -> str:
        """A name for messages."""
        return self.name or self.function

    def word(self, name: str) -> ast.expr | None:
        """Return what the decorator was given under a name."""
        keyword = self.words.get(name)
        return keyword.value if keyword is not None else None

    def says(self, name: str) -> bool:
        """Tell whether an option is literally `True`."""
        value = self.word(name)
        return isinstance(value, ast.Constant) and value.value is True


@dataclass(frozen=True, slots=True, eq=False)
class Misplaced:
    """A decorator on something that cannot be a tool."""

    place: Place
    kind: str
    what: str


@dataclass(frozen=True, slots=True, eq=False)
class ClassFacts:
    """A class: its bases and what stands in its body."""

    name: str
    node: ast.ClassDef
    facts: Facts
    block: int
    members: dict[str, Declared | FunctionNode | None] = field(default_factory=dict)
    """Tools, plain methods, and `None` for what ends an inherited tool."""
    repeated: list[tuple[Declared, Declared]] = field(default_factory=list)
    """Pairs of tools that one body binds to one name: the first is lost."""


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What one file declares."""

    source: Source
    names: Names
    tools: list[Declared] = field(default_factory=list)
    """Decorated functions and methods, in the order of the file."""
    misplaced: list[Misplaced] = field(default_factory=list)
    classes: dict[str, ClassFacts] = field(default_factory=dict)
    functions: dict[str, FunctionNode] = field(default_factory=dict)
    """Functions at the top of the module."""
    aliases: dict[str, ast.expr] = field(default_factory=dict)
    """What names at the top of the module were assigned, once each."""
    boxes: list[ast.Call] = field(default_factory=list)
    makers: list[tuple[str, ast.Call]] = field(default_factory=list)
    """`Tool.from_function(...)` and `Tool.from_schema(...)`."""


def read_facts(source: Source, names: Names) -> Facts:
    """Read what a file declares."""
    facts = Facts(source, names)
    _Reader(facts).read(source.tree.body, None, "module")
    # A walk over the whole tree costs more than parsing it, and most files make no toolbox.
    local = [name for name, path in names.meaning.items() if path == "toolmason.Toolbox"]
    made = any(f"{name}(" in source.text for name in ("Toolbox", "from_function", "from_schema", *local))
    for node in ast.walk(source.tree) if made else ():
        if isinstance(node, ast.Call):
            called = names.dotted(node.func)
            if called == "toolmason.Toolbox":
                facts.boxes.append(node)
            elif called in ("toolmason.Tool.from_function", "toolmason.Tool.from_schema"):
                facts.makers.append((called.rpartition(".")[2], node))
    return facts


def words_of(call: ast.expr | None) -> tuple[dict[str, ast.keyword], bool]:
    """Return the keywords of a call, and whether those are all."""
    keywords = call.keywords if isinstance(call, ast.Call) else []
    return {word.arg: word for word in keywords if word.arg}, all(word.arg for word in keywords)


def declare(facts: Facts, node: FunctionNode, call: ast.expr | None, kind: Literal["tool", "prompt"]) -> Declared:
    """Return the declaration of a function."""
    words, closed = words_of(call)
    return Declared(
        source=facts.source,
        names=facts.names,
        kind=kind,
        function=node.name,
        place=facts.source.place_of_name(node),
        node=node,
        words=words,
        closed=closed,
    )


class _Reader:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.blocks = 0

    def read(self, body: Iterable[ast.stmt], owner: ClassFacts | None, scope: str) -> None:
        """Read statements; `scope` is "module", "class" or "function"."""
        self.blocks += 1
        block = self.blocks
        for node in body:
            if isinstance(node, FunctionNode):
                self._function(node, owner, scope, block)
                self.read(node.body, None, "function")
            elif isinstance(node, ast.ClassDef):
                self._class(node, scope, block)
            elif isinstance(node, ast.Assign | ast.AnnAssign) or type(node).__name__ == "TypeAlias":
                self._assigned(node, owner, scope)
            elif isinstance(node, COMPOUND):
                for part in ("body", "orelse", "finalbody"):
                    self.read(getattr(node, part, ()), owner, scope)
                for branch in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
                    self.read(branch.body, owner, scope)

    def _class(self, node: ast.ClassDef, scope: str, block: int) -> None:
        for decorator in node.decorator_list:
            if kind := self._kind(decorator):
                self.facts.misplaced.append(Misplaced(self.facts.source.place(decorator), kind, f"class {node.name!r}"))
        found = ClassFacts(node.name, node, self.facts, block)
        if scope == "module":
            self.facts.classes[node.name] = found
        self.read(node.body, found, "class")

    def _function(self, node: FunctionNode, owner: ClassFacts | None, scope: str, block: int) -> None:
        decorators = [(item, self._path(item)) for item in node.decorator_list]
        paths = {path for _, path in decorators}
        if scope == "module":
            self.facts.functions[node.name] = node
        if EXCLUDE in paths:
            self._put(owner, node.name, None)
            return
        mark = next((item for item, path in decorators if path in DECORATORS), None)
        if mark is None:
            if not any(path.endswith((".overload", ".setter", ".deleter")) for path in paths):
                self._put(owner, node.name, None if paths & _PROPERTIES else node)
            return
        kind = DECORATORS[self._path(mark)]
        if paths & _PROPERTIES or any(path.endswith((".setter", ".deleter")) for path in paths):
            self.facts.misplaced.append(Misplaced(self.facts.source.place(mark), kind, f"the property {node.name!r}"))
            self._put(owner, node.name, None)
            return
        declared = replace(
            declare(self.facts, node, mark, kind),
            binding=binding_of(paths, node.name) if owner is not None else "free",
            owner=owner.name if owner is not None else "",
            block=block,
        )
        self.facts.tools.append(declared)
        self._put(owner, node.name, declared)

    def _put(self, owner: ClassFacts | None, name: str, member: Declared | FunctionNode | None) -> None:
        if owner is None:
            return
        before = owner.members.get(name)
        if isinstance(before, Declared) and isinstance(member, Declared) and before.block == member.block:
            owner.repeated.append((before, member))
        owner.members[name] = member

    def _assigned(self, node: ast.stmt, owner: ClassFacts | None, scope: str) -> None:
        value: ast.expr | None = getattr(node, "value", None)
        targets = (
            node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", getattr(node, "name", None))]
        )
        for target in targets:
            if isinstance(target, ast.Name) and value is not None:
                if owner is not None:
                    owner.members[target.id] = None
                elif scope == "module":
                    self.facts.aliases[target.id] = value

    def _path(self, decorator: ast.expr) -> str:
        return self.facts.names.dotted(decorator.func if isinstance(decorator, ast.Call) else decorator)

    def _kind(self, decorator: ast.expr) -> str:
        return DECORATORS.get(self._path(decorator), "")


def binding_of(paths: Iterable[str], name: str) -> Binding:
    """Return how a method is called, by its decorators."""
    if "staticmethod" in paths:
        return "static"
    return "class" if "classmethod" in paths or name in ("__init_subclass__", "__class_getitem__") else "instance"
