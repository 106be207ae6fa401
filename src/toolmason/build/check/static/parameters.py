"""A declaration → its parameters: type, texts, default, and who fills each one in.

Lives here: what `signature` does at run time, as far as the source alone can tell. Not here: what is wrong with them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

from toolmason._core.define.docstrings import Docstring, read
from toolmason.build.check.static.annotations import Expand, Hint, keyword_of, read_hint, text_of
from toolmason.build.check.static.declared import Declared, FunctionNode

Kind: TypeAlias = Literal["plain", "args", "keywords"]


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """One parameter, as the source shows it."""

    name: str
    node: ast.arg
    kind: Kind
    hint: Hint
    default: ast.expr | None = None
    """The Python default, where it is not a `Field(...)`."""
    documented: str | None = None

    @property
    def typed(self) -> bool:
        """Whether it has an annotation."""
        return self.node.annotation is not None

    @property
    def injected(self) -> bool:
        """Whether the application fills it."""
        return self.hint.injected or self.name == "project_dir"

    @property
    def label(self) -> str:
        """What the model calls it."""
        return text_of(self.hint.word("name")) or self.name

    @property
    def value(self) -> ast.expr | None:
        """What stands in when the model leaves it out; `None` where nothing does."""
        written = self.hint.word("default") or self.default
        if written is not None:
            return written
        for call in self.hint.fields:
            for name in ("default", "default_factory"):
                if (found := keyword_of(call, name)) is not None:
                    return found
            if call.args and not (isinstance(call.args[0], ast.Constant) and call.args[0].value is ...):
                return call.args[0]
        return None

    @property
    def description(self) -> str | None:
        """Its description; an empty text where one is given that the source does not tell."""
        fields = [keyword_of(call, "description") for call in self.hint.fields]
        for node in (self.hint.word("description"), *fields):
            if node is not None and (text := text_of(node)) != "" and not _is_none(node):
                return "" if text is None else text
        found = next((text for text in (*self.hint.texts, self.documented) if text), None)
        return "" if found is None and not self.hint.whole else found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def docstring_of(node: FunctionNode) -> str | None:
    """Return the docstring of a function."""
    return ast.get_docstring(node, clean=False)


def documentation_of(declared: Declared) -> Docstring:
    """Return what the docstring of a tool says."""
    return _documentation(docstring_of(declared.node) if declared.node is not None else None)


@lru_cache(maxsize=64)
def _documentation(text: str | None) -> Docstring:
    # Each family of rules asks for the texts of the same tool.
    return read(text)


def parameters_of(declared: Declared, expand: Expand) -> tuple[Taken, ...]:
    """Return the parameters of a declaration, without the object or class that a method gets."""
    if declared.node is None:
        return ()
    texts = documentation_of(declared).parameters
    found = list(_arguments(declared.node))
    if declared.binding in ("instance", "class") and found and found[0][1] == "plain":
        del found[0]
    return tuple(_taken(declared, node, kind, default, texts, expand) for node, kind, default in found)


def _arguments(node: FunctionNode) -> Iterator[tuple[ast.arg, Kind, ast.expr | None]]:
    given = node.args
    before = [*given.posonlyargs, *given.args]
    padding = [None] * (len(before) - len(given.defaults))
    for argument, default in zip(before, [*padding, *given.defaults], strict=True):
        yield argument, "plain", default
    if given.vararg is not None:
        yield given.vararg, "args", None
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield argument, "plain", default
    if given.kwarg is not None:
        yield given.kwarg, "keywords", None


def _taken(
    declared: Declared, node: ast.arg, kind: Kind, default: ast.expr | None, texts: Mapping[str, str], expand: Expand
) -> Taken:
    hint = read_hint(node.annotation, declared.names, expand)
    if isinstance(default, ast.Call) and declared.names.dotted(default.func).rpartition(".")[2] == "Field":
        hint = Hint(hint.core, hint.names, hint.texts, hint.param, (*hint.fields, default), hint.injected, hint.whole)
        default = None
    return Taken(node.arg, node, kind, hint, default, texts.get(node.arg))
