"""Read the type, description and injection of a parameter from its annotation in source."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from toolmason.build.check.static.imports import ImportedNames

ExpandAlias: TypeAlias = Callable[[ast.expr, ImportedNames], "tuple[ast.expr, ImportedNames] | None"]
"""Function that returns the expression assigned to a name, with the imports of its file, or None."""

ANNOTATED: Final = frozenset({"typing.Annotated", "typing_extensions.Annotated"})
UNION_TYPES: Final = frozenset({"typing.Optional", "typing.Union", "typing_extensions.Union"})
LITERAL: Final = frozenset({"typing.Literal", "typing_extensions.Literal"})
INJECTED_TYPES: Final = frozenset({"toolmason.ToolContext", "toolmason.Config", "toolmason.ToolCall"})
_MAX_DEPTH: Final = 20


@dataclass(frozen=True, slots=True, eq=False)
class ParsedAnnotation:
    """A parsed annotation."""

    type_node: ast.expr | None = None
    """The type inside `Annotated`."""
    imports: ImportedNames = field(default_factory=ImportedNames)
    """Imports that resolve the names in `type_node`; an alias may come from another file."""
    texts: tuple[str, ...] = ()
    param: ast.Call | None = None
    """The `Param(...)` call."""
    fields: tuple[ast.Call, ...] = ()
    """The `Field(...)` calls."""
    injected: bool = False
    """True if the application provides the value."""
    is_complete: bool = True
    """False if a part could not be read and may hold a description or an injection marker."""

    def get_param_keyword(self, name: str) -> ast.expr | None:
        """Return a keyword argument of `Param(...)`."""
        return get_keyword(self.param, name)


def get_keyword(call: ast.Call | None, name: str) -> ast.expr | None:
    """Return the value of a keyword argument of a call."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None) if call is not None else None


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


def parse_string_annotation(node: ast.expr) -> ast.expr:
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


def read_annotation(
    node: ast.expr | None, imports: ImportedNames, expand: ExpandAlias, depth: int = 0
) -> ParsedAnnotation:
    """Parse an annotation."""
    if node is None:
        return ParsedAnnotation()
    node = parse_string_annotation(node)
    if isinstance(node, ast.Subscript) and imports.get_path(node.value) in ANNOTATED:
        inner, *rest = node.slice.elts if isinstance(node.slice, ast.Tuple) and node.slice.elts else [node.slice]
        return _with_metadata(read_annotation(inner, imports, expand, depth + 1), rest, imports, expand)
    if (
        isinstance(node, ast.Name | ast.Attribute)
        and depth < _MAX_DEPTH
        and (expanded := expand(node, imports)) is not None
    ):
        return read_annotation(*expanded, expand, depth + 1)
    return ParsedAnnotation(node, imports, injected=_is_injected_type(node, imports))


def _with_metadata(
    annotation: ParsedAnnotation, metadata: Iterable[ast.expr], imports: ImportedNames, expand: ExpandAlias
) -> ParsedAnnotation:
    texts = list(annotation.texts)
    fields = list(annotation.fields)
    param = annotation.param
    injected = annotation.injected
    is_complete = annotation.is_complete
    for part in metadata:
        item, item_imports = expand(part, imports) or (part, imports)
        name = item_imports.get_path(item.func if isinstance(item, ast.Call) else item)
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
            is_complete = is_complete and not isinstance(item, ast.Name | ast.Attribute | ast.JoinedStr | ast.BinOp)
    return ParsedAnnotation(
        annotation.type_node, annotation.imports, tuple(texts), param, tuple(fields), injected, is_complete
    )


def _is_injected_type(node: ast.expr, imports: ImportedNames) -> bool:
    type_node = strip_none(node, imports)
    head = type_node.value if isinstance(type_node, ast.Subscript) else type_node
    return imports.get_path(head) in INJECTED_TYPES


def strip_none(node: ast.expr, imports: ImportedNames) -> ast.expr:
    """Return `X` for `X | None` and `Optional[X]`."""
    rest = [part for part in split_union(node, imports) if not is_none(part)]
    return rest[0] if len(rest) == 1 else node


def split_union(node: ast.expr, imports: ImportedNames) -> list[ast.expr]:
    """Return the members of a union, or the type itself if it is not a union."""
    node = parse_string_annotation(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*split_union(node.left, imports), *split_union(node.right, imports)]
    if isinstance(node, ast.Subscript) and (head := imports.get_path(node.value)) in UNION_TYPES:
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        both = [branch for part in inner for branch in split_union(part, imports)]
        return [*both, ast.Constant(None)] if head.endswith("Optional") else both
    return [node]


def is_none(node: ast.expr) -> bool:
    """Return True if a type is `None`."""
    return isinstance(node, ast.Constant) and node.value is None


_SCALAR_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "bytes": (bytes, str),
}
_SEQUENCE_TYPES: Final = frozenset(
    {"list", "set", "frozenset", "tuple", "typing.List", "typing.Set", "typing.Tuple"}
) | {
    f"{module}.{name}"
    for module in ("collections.abc", "typing")
    for name in ("Sequence", "MutableSequence", "Set", "MutableSet", "Iterable")
}
_MAPPING_TYPES: Final = frozenset({"dict", "typing.Dict"}) | {
    f"{module}.{name}" for module in ("collections.abc", "typing") for name in ("Mapping", "MutableMapping")
}


@dataclass(frozen=True, slots=True, eq=False)
class LiteralChecker:
    """Checks whether literal values match types as written."""

    expand: ExpandAlias

    def __call__(self, type_node: ast.expr, imports: ImportedNames, value: Any, depth: int = 0) -> bool | None:
        """Return True if the value matches, or None if the source does not show whether it does."""
        if depth > _MAX_DEPTH:
            return None
        outcomes = [self._check_branch(branch, imports, value, depth) for branch in split_union(type_node, imports)]
        if True in outcomes:
            return True
        return None if None in outcomes else False

    def _check_branch(self, type_node: ast.expr, imports: ImportedNames, value: Any, depth: int) -> bool | None:
        if is_none(type_node):
            return value is None
        annotation = read_annotation(type_node, imports, self.expand, depth)
        if annotation.type_node is None or annotation.param is not None or not annotation.is_complete:
            return None
        type_node, imports = annotation.type_node, annotation.imports
        if len(split_union(type_node, imports)) > 1:
            return self(type_node, imports, value, depth + 1)
        head, inner = (type_node.value, type_node.slice) if isinstance(type_node, ast.Subscript) else (type_node, None)
        name = imports.get_path(head)
        if name in LITERAL and inner is not None:
            return _is_one_of(inner, value)
        if name in _SCALAR_TYPES:
            kinds = _SCALAR_TYPES[name]
            return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if name in _SEQUENCE_TYPES:
            return self._check_items(value, None if name in ("tuple", "typing.Tuple") else inner, imports, depth)
        return isinstance(value, dict) if name in _MAPPING_TYPES else None

    def _check_items(self, value: Any, inner: ast.expr | None, imports: ImportedNames, depth: int) -> bool | None:
        if not isinstance(value, list | tuple | set):
            return False
        if inner is None or isinstance(inner, ast.Tuple):
            return None if value else True
        outcomes = [self(inner, imports, item, depth + 1) for item in value]
        if False in outcomes:
            return False
        return None if None in outcomes else True


def _is_one_of(inner: ast.expr, value: Any) -> bool | None:
    known = [eval_literal(part) for part in (inner.elts if isinstance(inner, ast.Tuple) else [inner])]
    if value in known:
        return True
    return None if ... in known else False
