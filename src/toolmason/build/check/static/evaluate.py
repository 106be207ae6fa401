"""Evaluate type hints in source, so that the core can read them as it reads those of a function.

Only the standard library, pydantic and Toolmason are imported. A class of the checked files gets a stand-in, and a name
from elsewhere is unknown.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from importlib import import_module
from typing import Annotated, Any, Final, Literal, Union

from pydantic import Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from toolmason._core.define.context import Inject, ToolContext
from toolmason._core.define.decorators import Param
from toolmason.build.check.static.declared import ClassDeclaration, FileDeclarations, eval_literal
from toolmason.build.check.static.project import Project, strip_subscript


class Unknown:
    """A type or value that the source does not show; as a type it accepts every value."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        del source, handler
        return core_schema.any_schema()


_KNOWN_PACKAGES: Final = sys.stdlib_module_names - {"antigravity", "this"} | {"pydantic", "toolmason"}
"""Packages whose names are looked up: all but two modules that do something when they are imported."""
_SCHEMA_HOOKS: Final = frozenset({"__get_pydantic_core_schema__", "__get_validators__", "__pydantic_core_schema__"})
_METADATA: Final[Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]]] = {
    "Param": (Param, ("description", "name", "default")),
    "Field": (Field, ("default", "default_factory", "description")),
    "Inject": (Inject, ()),
    "Depends": (Inject, ()),  # hidden from the model as well; the factory is not evaluated
}
"""Calls that are evaluated, with the keywords that are read from them."""


_MAX_ALIASES: Final = 50
"""Aliases that the hint of one parameter may use: each may use others twice."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluator:
    """Evaluates the hint and the default of one parameter."""

    project: Project
    calls: list[tuple[Any, ast.Call]] = field(default_factory=list)
    """The evaluated `Param(...)`, `Field(...)` and `Inject(...)`, each with its value."""
    open_aliases: list[ast.expr] = field(default_factory=list)
    seen_aliases: list[ast.expr] = field(default_factory=list)

    def evaluate(self, node: ast.expr, file: FileDeclarations, *, is_type: bool = True) -> Any:
        """Return the value of an expression, `object` for an odd type, or `Unknown`."""
        node = parse_string(node) if is_type else node
        if isinstance(node, ast.Name | ast.Attribute):
            return self._evaluate_name(node, file, is_type=is_type)
        if isinstance(node, ast.Call):
            return self._evaluate_call(node, file)
        if isinstance(node, ast.Constant):
            return node.value if not is_type or node.value in (None, ...) else object
        if not is_type:
            value = eval_literal(node)
            return Unknown if value is ... else value
        if isinstance(node, ast.Subscript):
            return self._evaluate_subscript(node, file)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return _subscript(Union, (self.evaluate(node.left, file), self.evaluate(node.right, file)))
        return [self.evaluate(item, file) for item in node.elts] if isinstance(node, ast.List) else object

    def _evaluate_name(self, node: ast.expr, file: FileDeclarations, *, is_type: bool) -> Any:
        found = self.project.find(node, file)
        if found is None:
            return _look_up(file.imports.get_path(node))
        owner, definition = found
        if isinstance(definition, ClassDeclaration):
            return self._make_stand_in(definition)
        is_open = definition in self.open_aliases
        if not isinstance(definition, ast.expr) or is_open or len(self.seen_aliases) >= _MAX_ALIASES:
            return object
        self.seen_aliases.append(definition)
        self.open_aliases.append(definition)
        value = self.evaluate(definition, owner, is_type=is_type)
        self.open_aliases.pop()
        return value

    def _make_stand_in(self, cls: ClassDeclaration) -> type:
        """Return a type that the core treats as it would treat the class."""
        ancestry = self.project.get_ancestry(cls)
        paths = [item.file.imports.get_path(strip_subscript(base)) for item in ancestry for base in item.node.bases]
        if "toolmason.ToolContext" in paths:
            return ToolContext
        is_bare = not (cls.node.bases or cls.node.keywords or cls.node.decorator_list)
        # Pydantic has no schema for a bare class, and accepts anything for `object`.
        return type(cls.name, (), {}) if is_bare and not (_SCHEMA_HOOKS & cls.members.keys()) else object

    def _evaluate_call(self, node: ast.Call, file: FileDeclarations) -> Any:
        make, names = _METADATA.get(file.imports.get_path(node.func).rpartition(".")[2], (None, ()))
        if make is None:
            return object
        given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
        given |= zip(names, node.args[:1], strict=False)
        values = {name: self.evaluate(given[name], file, is_type=False) for name in names if name in given}
        if not isinstance(values.get("name", ""), str):
            del values["name"]
        try:
            value = make(**values)
        except (TypeError, ValueError):
            value = make()
        self.calls.append((value, node))
        return value

    def _evaluate_subscript(self, node: ast.Subscript, file: FileDeclarations) -> Any:
        head = self.evaluate(node.value, file)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if head is Literal:
            values = [eval_literal(part) for part in parts]
            return object if ... in values else _subscript(head, tuple(values))
        first_values = 1 if head is Annotated else len(parts)
        values = [self.evaluate(part, file, is_type=index < first_values) for index, part in enumerate(parts)]
        return object if head is Unknown else _subscript(head, tuple(values) if len(values) != 1 else values[0])


def _subscript(head: Any, arguments: Any) -> Any:
    try:
        return head[arguments]
    except Exception:  # noqa: BLE001 - a hint may name any object of the standard library
        return object


@lru_cache(maxsize=1024)
def _look_up(path: str) -> Any:
    """Return a builtin, or a name of the standard library, pydantic or Toolmason; import no submodule."""
    head, *rest = path.split(".")
    if not rest:
        return getattr(builtins, head, Unknown)
    head = "typing" if head == "typing_extensions" else head
    if head not in _KNOWN_PACKAGES:
        return Unknown
    try:
        return reduce(getattr, rest, import_module(head))
    except (ImportError, AttributeError):
        return object


def parse_string(node: ast.expr) -> ast.expr:
    """Return the expression inside a string annotation, located at the string; other annotations are unchanged."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return node
    try:
        inner = ast.parse(node.value.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return node
    for part in ast.walk(inner):
        ast.copy_location(part, node)
    return inner
