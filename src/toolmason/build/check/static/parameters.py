"""Read the parameters of a declared tool from source."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from toolmason._core.define.docstrings import Docstring, parse_docstring
from toolmason.build.check.static.annotations import (
    ExpandAlias,
    ParsedAnnotation,
    eval_text,
    get_keyword,
    read_annotation,
)
from toolmason.build.check.static.declared import DeclaredTool, FunctionNode

ParameterKind: TypeAlias = Literal["plain", "args", "keywords"]


@dataclass(frozen=True, slots=True, eq=False)
class SourceParameter:
    """One parameter as written in source."""

    name: str
    node: ast.arg
    kind: ParameterKind
    annotation: ParsedAnnotation
    default: ast.expr | None = None
    """Python default, unless it is a `Field(...)`."""
    docstring_text: str | None = None

    @property
    def has_annotation(self) -> bool:
        """True if the parameter is annotated."""
        return self.node.annotation is not None

    @property
    def is_injected(self) -> bool:
        """True if the application provides the value."""
        return self.annotation.injected or self.name == "project_dir"

    @property
    def model_name(self) -> str:
        """Name that the model sees."""
        return eval_text(self.annotation.get_param_keyword("name")) or self.name

    @property
    def default_value(self) -> ast.expr | None:
        """Value used if the model omits the argument, or None if it is required."""
        explicit_default = self.annotation.get_param_keyword("default") or self.default
        if explicit_default is not None:
            return explicit_default
        for call in self.annotation.fields:
            for name in ("default", "default_factory"):
                if (found := get_keyword(call, name)) is not None:
                    return found
            if call.args and not (isinstance(call.args[0], ast.Constant) and call.args[0].value is ...):
                return call.args[0]
        return None

    @property
    def description(self) -> str | None:
        """The description; an empty string if there is one that the source does not show."""
        fields = [get_keyword(call, "description") for call in self.annotation.fields]
        for node in (self.annotation.get_param_keyword("description"), *fields):
            if node is not None and (text := eval_text(node)) != "" and not _is_none(node):
                return "" if text is None else text
        found = next((text for text in (*self.annotation.texts, self.docstring_text) if text), None)
        return "" if found is None and not self.annotation.is_complete else found


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def get_docstring(node: FunctionNode) -> str | None:
    """Return the docstring of a function."""
    return ast.get_docstring(node, clean=False)


def read_docstring(declaration: DeclaredTool) -> Docstring:
    """Return the parsed docstring of a tool."""
    return _parse_docstring(get_docstring(declaration.node) if declaration.node is not None else None)


@lru_cache(maxsize=64)
def _parse_docstring(text: str | None) -> Docstring:
    # Cached: every group of rules reads the docstring of the same tool.
    return parse_docstring(text)


def read_parameters(declaration: DeclaredTool, expand: ExpandAlias) -> tuple[SourceParameter, ...]:
    """Return the parameters of a declaration, without `self` or `cls`."""
    if declaration.node is None:
        return ()
    descriptions = read_docstring(declaration).parameters
    arguments = list(_list_arguments(declaration.node))
    if declaration.binding in ("instance", "class") and arguments and arguments[0][1] == "plain":
        del arguments[0]
    return tuple(
        _make_parameter(declaration, node, kind, default, descriptions, expand) for node, kind, default in arguments
    )


def _list_arguments(node: FunctionNode) -> Iterator[tuple[ast.arg, ParameterKind, ast.expr | None]]:
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    padding = [None] * (len(positional) - len(args.defaults))
    for argument, default in zip(positional, [*padding, *args.defaults], strict=True):
        yield argument, "plain", default
    if args.vararg is not None:
        yield args.vararg, "args", None
    for argument, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield argument, "plain", default
    if args.kwarg is not None:
        yield args.kwarg, "keywords", None


def _make_parameter(
    declaration: DeclaredTool,
    node: ast.arg,
    kind: ParameterKind,
    default: ast.expr | None,
    descriptions: Mapping[str, str],
    expand: ExpandAlias,
) -> SourceParameter:
    annotation = read_annotation(node.annotation, declaration.imports, expand)
    if isinstance(default, ast.Call) and declaration.imports.get_path(default.func).rpartition(".")[2] == "Field":
        annotation = replace(annotation, fields=(*annotation.fields, default))
        default = None
    return SourceParameter(node.arg, node, kind, annotation, default, descriptions.get(node.arg))
