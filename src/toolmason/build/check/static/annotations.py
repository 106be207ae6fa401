"""An annotation in source → what it says: the type, the texts, who fills it in.

Lives here: `Annotated`, `Param(...)`, `Field(...)`, markers of injection, texts as annotations, aliases, whether a
literal default fits. Not here: functions and their parameters (`declared`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from toolmason.build.check.static.imports import Names

Expand: TypeAlias = Callable[[ast.expr, Names], "tuple[ast.expr, Names] | None"]
"""A name → the expression that it was assigned and the names around that, where the project shows it."""

ANNOTATED: Final = frozenset({"typing.Annotated", "typing_extensions.Annotated"})
OPTIONAL: Final = frozenset({"typing.Optional", "typing.Union", "typing_extensions.Union"})
LITERAL: Final = frozenset({"typing.Literal", "typing_extensions.Literal"})
INJECTED_TYPES: Final = frozenset({"toolmason.ToolContext", "toolmason.Config", "toolmason.ToolCall"})
_DEEPEST: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class Hint:
    """What an annotation says."""

    core: ast.expr | None = None
    """The type, without its `Annotated`."""
    names: Names = field(default_factory=Names)
    """What the names in `core` stand for; an alias may come from another file."""
    texts: tuple[str, ...] = ()
    param: ast.Call | None = None
    """The `Param(...)` in it."""
    fields: tuple[ast.Call, ...] = ()
    """The `Field(...)` calls in it."""
    injected: bool = False
    """Whether it carries a marker of injection."""
    whole: bool = True
    """Whether everything in it could be read; else a description or a marker may hide in it."""

    def word(self, name: str) -> ast.expr | None:
        """Return what `Param(name=...)` says."""
        return keyword_of(self.param, name)


def keyword_of(call: ast.Call | None, name: str) -> ast.expr | None:
    """Return the value of a keyword of a call."""
    return next((word.value for word in call.keywords if word.arg == name), None) if call is not None else None


def constant(node: ast.expr | None) -> Any:
    """Return the value of a literal; `...` where it is none."""
    if node is None:
        return ...
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ...


def text_of(node: ast.expr | None) -> str | None:
    """Return a literal text; `None` where it is none."""
    value = constant(node)
    return value if isinstance(value, str) else None


def parsed(node: ast.expr) -> ast.expr:
    """Return an annotation that is written as a text as the expression in it, at the place of the text."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return node
    try:
        inner = ast.parse(node.value.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return node
    for part in ast.walk(inner):
        ast.copy_location(part, node)
    return inner


def read_hint(node: ast.expr | None, names: Names, expand: Expand, depth: int = 0) -> Hint:
    """Read an annotation."""
    if node is None:
        return Hint()
    node = parsed(node)
    if isinstance(node, ast.Subscript) and names.dotted(node.value) in ANNOTATED:
        inner, *rest = node.slice.elts if isinstance(node.slice, ast.Tuple) and node.slice.elts else [node.slice]
        return _with_metadata(read_hint(inner, names, expand, depth + 1), rest, names, expand)
    if isinstance(node, ast.Name | ast.Attribute) and depth < _DEEPEST and (behind := expand(node, names)) is not None:
        return read_hint(*behind, expand, depth + 1)
    return Hint(node, names, injected=_injected_type(node, names))


def _with_metadata(hint: Hint, metadata: Iterable[ast.expr], names: Names, expand: Expand) -> Hint:
    texts, fields, param, injected, whole = list(hint.texts), list(hint.fields), hint.param, hint.injected, hint.whole
    for part in metadata:
        item, around = expand(part, names) or (part, names)
        name = around.dotted(item.func if isinstance(item, ast.Call) else item)
        last = name.rpartition(".")[2]
        if isinstance(item, ast.Constant):
            texts += [item.value] if isinstance(item.value, str) else []
        elif last in ("Inject", "ProjectDir"):
            injected = True
        elif isinstance(item, ast.Call) and last == "Param":
            param = param or item
        elif isinstance(item, ast.Call) and last == "Field":
            fields.append(item)
        else:
            whole = whole and not isinstance(item, ast.Name | ast.Attribute | ast.JoinedStr | ast.BinOp)
    return Hint(hint.core, hint.names, tuple(texts), param, tuple(fields), injected, whole)


def _injected_type(node: ast.expr, names: Names) -> bool:
    core = without_none(node, names)
    head = core.value if isinstance(core, ast.Subscript) else core
    return names.dotted(head) in INJECTED_TYPES


def without_none(node: ast.expr, names: Names) -> ast.expr:
    """Return `X` for `X | None` and `Optional[X]`."""
    rest = [part for part in branches(node, names) if not is_none(part)]
    return rest[0] if len(rest) == 1 else node


def branches(node: ast.expr, names: Names) -> list[ast.expr]:
    """Return the branches of a union; the type itself where it is none."""
    node = parsed(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*branches(node.left, names), *branches(node.right, names)]
    if isinstance(node, ast.Subscript) and (head := names.dotted(node.value)) in OPTIONAL:
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        both = [branch for part in inner for branch in branches(part, names)]
        return [*both, ast.Constant(None)] if head.endswith("Optional") else both
    return [node]


def is_none(node: ast.expr) -> bool:
    """Tell whether a type is `None`."""
    return isinstance(node, ast.Constant) and node.value is None


_SCALARS: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "bytes": (bytes, str),
}
_LISTS: Final = frozenset({"list", "set", "frozenset", "tuple", "typing.List", "typing.Set", "typing.Tuple"}) | {
    f"{module}.{name}"
    for module in ("collections.abc", "typing")
    for name in ("Sequence", "MutableSequence", "Set", "MutableSet", "Iterable")
}
_MAPS: Final = frozenset({"dict", "typing.Dict"}) | {
    f"{module}.{name}" for module in ("collections.abc", "typing") for name in ("Mapping", "MutableMapping")
}


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Tells whether literal values fit types as written."""

    expand: Expand

    def __call__(self, core: ast.expr, names: Names, value: Any, depth: int = 0) -> bool | None:
        """Tell whether a value fits; `None` where that cannot be known from the source."""
        if depth > _DEEPEST:
            return None
        verdicts = [self._one(branch, names, value, depth) for branch in branches(core, names)]
        return True if True in verdicts else None if None in verdicts else False

    def _one(self, core: ast.expr, names: Names, value: Any, depth: int) -> bool | None:
        if is_none(core):
            return value is None
        hint = read_hint(core, names, self.expand, depth)
        if hint.core is None or hint.param is not None or not hint.whole:
            return None
        core, names = hint.core, hint.names
        if len(branches(core, names)) > 1:
            return self(core, names, value, depth + 1)
        head, inner = (core.value, core.slice) if isinstance(core, ast.Subscript) else (core, None)
        name = names.dotted(head)
        if name in LITERAL and inner is not None:
            return _is_one_of(inner, value)
        if name in _SCALARS:
            kinds = _SCALARS[name]
            return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if name in _LISTS:
            return self._items(value, None if name in ("tuple", "typing.Tuple") else inner, names, depth)
        return isinstance(value, dict) if name in _MAPS else None

    def _items(self, value: Any, inner: ast.expr | None, names: Names, depth: int) -> bool | None:
        if not isinstance(value, list | tuple | set):
            return False
        if inner is None or isinstance(inner, ast.Tuple):
            return None if value else True
        verdicts = [self(inner, names, item, depth + 1) for item in value]
        return False if False in verdicts else None if None in verdicts else True


def _is_one_of(inner: ast.expr, value: Any) -> bool | None:
    known = [constant(part) for part in (inner.elts if isinstance(inner, ast.Tuple) else [inner])]
    if value in known:
        return True
    return None if ... in known else False
