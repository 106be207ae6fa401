"""Many files → one picture: names that come through other files, class hierarchies, every tool that is declared.

Lives here: re-exports, aliases of types, the order of a class's ancestors, overrides. Nothing is imported.
Not here: single files (`declared`), or what is wrong (the rules).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from toolmason.build.check.rules import UNREADABLE, Finding, Place, finding
from toolmason.build.check.static.annotations import text_of
from toolmason.build.check.static.declared import (
    ClassFacts,
    Declared,
    Facts,
    FunctionNode,
    declare,
    read_facts,
    words_of,
)
from toolmason.build.check.static.imports import OURS, Names, canonical, read_names
from toolmason.build.check.static.parameters import Taken, docstring_of, parameters_of
from toolmason.build.check.static.source_file import Source

_T = TypeVar("_T")
_MOST_HOPS = 8


class Project:
    """The files of one check, seen together."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.broken: list[Finding] = []
        """Files that are nested too deeply to be looked at."""
        self._orders: dict[int, list[ClassFacts]] = {}
        kept = [(source, names) for source in sources if (names := self._read(source, read_names)) is not None]
        exports = {source.module: names for source, names in kept if source.module}
        for _, names in kept:
            for name, path in names.meaning.items():
                names.meaning[name] = _followed(path, exports)
        facts = [self._read(source, partial(read_facts, names=names)) for source, names in _concerned(kept)]
        self.files = [found for found in facts if found is not None]
        self._modules = {facts.source.module: facts for facts in self.files if facts.source.module}
        self._around = {id(facts.names): facts for facts in self.files}

    def _read(self, source: Source, read: Callable[[Source], _T]) -> _T | None:
        try:
            return read(source)
        except RecursionError:
            self.broken.append(finding(UNREADABLE, Place(source.path), "it is nested too deeply to be checked"))
            return None

    # --- names ---------------------------------------------------------------------------------

    def expand(self, node: ast.expr, names: Names) -> tuple[ast.expr, Names] | None:
        """Return what a name was assigned at the top of its module, with the names around that."""
        facts, last = self._home(node, names)
        found = facts.aliases.get(last) if facts is not None else None
        return None if facts is None or found is None else (found, facts.names)

    def class_at(self, node: ast.expr, names: Names) -> ClassFacts | None:
        """Return the class of the project that an expression names."""
        facts, last = self._home(node, names)
        return facts.classes.get(last) if facts is not None else None

    def function_at(self, node: ast.expr, names: Names) -> tuple[Facts, FunctionNode] | None:
        """Return the function of the project that an expression names, and its file."""
        facts, last = self._home(node, names)
        found = facts.functions.get(last) if facts is not None else None
        return None if facts is None or found is None else (facts, found)

    def _home(self, node: ast.expr, names: Names) -> tuple[Facts | None, str]:
        """Return the file that a name belongs to, and what it is called there."""
        here = self._around.get(id(names))
        if isinstance(node, ast.Name) and node.id not in names.meaning and node.id not in names.typing_only:
            return here, node.id
        module, _, last = names.dotted(node).rpartition(".")
        return self._modules.get(module), last

    # --- tools ---------------------------------------------------------------------------------

    def parameters(self, declared: Declared) -> tuple[Taken, ...]:
        """Return the parameters of a tool or prompt."""
        return tuple(
            replace(taken, hint=replace(taken.hint, injected=True)) if self._is_context(taken) else taken
            for taken in parameters_of(declared, self.expand)
        )

    def _is_context(self, taken: Taken) -> bool:
        """Tell whether a parameter is of a class of the project that is a context."""
        core = taken.hint.core
        head = core.value if isinstance(core, ast.Subscript) else core
        if not isinstance(head, ast.Name | ast.Attribute):
            return False
        found = self.class_at(head, taken.hint.names)
        ancestors = self.ancestry(found) if found is not None else []
        bases = (base for cls in ancestors for base in cls.node.bases)
        names = (base.value if isinstance(base, ast.Subscript) else base for base in bases)
        return any(cls.facts.names.dotted(base) == "toolmason.ToolContext" for cls in ancestors for base in names)

    def declarations(self) -> Iterator[Declared]:
        """Yield every tool and prompt: decorated, overriding, given to a toolbox, or made by hand."""
        seen: set[int] = set()
        for facts in self.files:
            for declared in facts.tools:
                seen.add(id(declared.node))
                yield declared
        for facts in self.files:
            for cls in facts.classes.values():
                for declared in self.tools_in(cls).values():
                    if id(declared.node) not in seen:
                        seen.add(id(declared.node))
                        yield declared
            for declared in (*self._plain(facts), *self._made(facts)):
                if declared.node is None or id(declared.node) not in seen:
                    seen.add(id(declared.node))
                    yield declared

    def _plain(self, facts: Facts) -> Iterator[Declared]:
        """Yield functions without a decorator that a toolbox is given."""
        for box in facts.boxes:
            for item in flat(box.args):
                if isinstance(item, ast.Name) and (node := facts.functions.get(item.id)) is not None:
                    yield declare(facts, node, None, "tool")

    def _made(self, facts: Facts) -> Iterator[Declared]:
        for maker, call in facts.makers:
            words, closed = words_of(call)
            if maker == "from_schema":
                name, description = [*call.args, None, None][:2]
                named = {
                    "name": name or _value(words, "name"),
                    "description": description or _value(words, "description"),
                }
                kept = {key: ast.keyword(key, value) for key, value in named.items() if value is not None}
                yield Declared(
                    source=facts.source,
                    names=facts.names,
                    function=text_of(named["name"]) or "",
                    place=facts.source.place(call),
                    words={**words, **kept},
                    closed=closed,
                    maker=True,
                )
            elif call.args and isinstance(call.args[0], ast.Name) and "params" not in words:
                node = facts.functions.get(call.args[0].id)
                if node is not None and "input_schema" not in words:
                    yield replace(declare(facts, node, call, "tool"), written_name=_value(words, "name"), maker=True)

    # --- classes -------------------------------------------------------------------------------

    def ancestry(self, cls: ClassFacts) -> list[ClassFacts]:
        """Return a class and its ancestors in the order that Python looks them up, as far as the project shows them."""
        if (known := self._orders.get(id(cls))) is not None:
            return known
        self._orders[id(cls)] = []  # a class that is its own ancestor ends here
        bases = [self.class_at(_head(base), cls.facts.names) for base in cls.node.bases]
        found = [base for base in bases if base is not None]
        order = [cls, *_merged([*map(self.ancestry, found), found])]
        self._orders[id(cls)] = order
        return order

    def tools_in(self, cls: ClassFacts) -> dict[str, Declared]:
        """Return the tools of a class by what Python calls them, inherited ones too, the oldest ancestor's first."""
        found: dict[str, Declared] = {}
        for owner in reversed(self.ancestry(cls)):
            for name, member in owner.members.items():
                if isinstance(member, Declared):
                    found[name] = member
                elif member is None:
                    found.pop(name, None)
                elif name in found:
                    found[name] = _override(owner, member, found[name])
        return {name: tool for name, tool in found.items() if tool.kind == "tool"}


def _override(owner: ClassFacts, node: FunctionNode, above: Declared) -> Declared:
    """Return the tool that an undecorated override is: its own signature, the metadata of what it overrides."""
    own = declare(owner.facts, node, None, above.kind)
    text = above.inherited_text or above.word("description") is not None or _has_text(above)
    return replace(
        own,
        words=above.words,
        closed=above.closed,
        binding=above.binding,
        owner=owner.name,
        block=above.block,
        inherited=above.name,
        inherited_text=text,
    )


def _has_text(declared: Declared) -> bool:
    return declared.node is not None and docstring_of(declared.node) is not None


def _value(words: dict[str, ast.keyword], name: str) -> ast.expr | None:
    return words[name].value if name in words else None


def _head(base: ast.expr) -> ast.expr:
    return base.value if isinstance(base, ast.Subscript) else base


def _merged(lines: Sequence[Sequence[ClassFacts]]) -> list[ClassFacts]:
    """Merge the orders of several bases: the first that no other order still has further down."""
    rest = [list(line) for line in lines if line]
    order: list[ClassFacts] = []
    while rest:
        free = next((line[0] for line in rest if all(line[0] not in other[1:] for other in rest)), rest[0][0])
        order.append(free)
        rest = [kept for line in rest if (kept := [cls for cls in line if cls is not free])]
    return order


def flat(items: Iterable[ast.expr]) -> Iterator[ast.expr]:
    """Yield the sources that a toolbox is given, those in lists too."""
    for item in items:
        if isinstance(item, ast.List | ast.Tuple | ast.Set):
            yield from flat(item.elts)
        else:
            yield item


def _followed(path: str, exports: dict[str, Names]) -> str:
    """Return where a name comes from in the end, through the files of the project."""
    for _ in range(_MOST_HOPS):
        module, _, last = path.rpartition(".")
        onward = exports[module].meaning.get(last) if module in exports else None
        if onward is None or onward == path:
            break
        path = onward
    return canonical(path)


def _concerned(kept: Sequence[tuple[Source, Names]]) -> Iterator[tuple[Source, Names]]:
    """Yield the files that use us, and those that they take names from; other files hold nothing to look at."""
    paths = [{*names.meaning.values(), *names.typing_only.values()} for _, names in kept]
    direct = [any(path.partition(".")[0] == OURS for path in found) for found in paths]
    wanted = {path.rpartition(".")[0] for found, ours in zip(paths, direct, strict=True) if ours for path in found}
    for (source, names), ours in zip(kept, direct, strict=True):
        if ours or source.module in wanted:
            yield source, names
