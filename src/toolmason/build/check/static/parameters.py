"""Read the parameters of a declared tool from source, as the core reads those of a function."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

from toolmason._core.define.decorators import MISSING, Param
from toolmason._core.define.docstrings import Docstring, parse_docstring
from toolmason._core.define.inputs import compile_inputs
from toolmason._core.define.signature import Parameter, Signature, is_marker, lacks_value, make_parameter
from toolmason.build.check.static.declared import DeclaredTool, FunctionNode, eval_literal
from toolmason.build.check.static.evaluate import Evaluator, Unknown, parse_string
from toolmason.build.check.static.project import Project
from toolmason.errors import DefinitionError, UnsupportedType

Argument: TypeAlias = tuple[ast.arg, Literal["plain", "args", "keywords"], ast.expr | None]
"""An argument of a function, its kind and its default."""


@dataclass(frozen=True, slots=True, eq=False)
class SourceParameter:
    """One parameter as written in source."""

    node: ast.arg
    kind: Literal["plain", "args", "keywords"]
    default: ast.expr | None
    """Python default."""
    defined: Parameter
    """The parameter as the core reads it."""
    calls: tuple[ast.Call, ...]
    """The `Param(...)` and `Field(...)` calls, those of aliases included."""
    declaration: DeclaredTool
    project: Project
    misplaced: ast.expr | None
    """The default, or the type, in which a marker such as `Inject` has no effect."""

    @property
    def name(self) -> str:
        """Name in Python."""
        return self.node.arg

    @property
    def is_injected(self) -> bool:
        """True if the application provides the value."""
        return self.defined.injector is not None

    @property
    def type(self) -> Any:
        """The type inside `Annotated`."""
        hint = self.defined.hint
        return get_args(hint)[0] if get_origin(hint) is Annotated else hint

    @property
    def type_node(self) -> ast.expr:
        """The type inside `Annotated` as written."""
        node = parse_string(self.node.annotation or ast.Name("object"))
        while isinstance(node, ast.Subscript) and self._get_path(node.value).endswith(".Annotated"):
            node = parse_string(node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice)
        return node

    @property
    def param(self) -> ast.Call | None:
        """The `Param(...)` call."""
        return next((call for call in self.calls if self._get_path(call.func).endswith("Param")), None)

    @property
    def default_node(self) -> ast.expr | None:
        """Expression of the value used if the model omits the argument, or None if it is required."""
        if not self.defined.has_default:
            return None
        named = [get_keyword(call, name) for call in self.calls for name in ("default", "default_factory")]
        positional = [call.args[0] for call in self.calls if call.args]
        return next((node for node in (*named, *positional) if node is not None), self.default)

    @property
    def description(self) -> str | None:
        """The description; an empty string if there is one that the source does not show."""
        text: Any = self.defined.description
        if text is None and any(item is Unknown for item in getattr(self.defined.hint, "__metadata__", ())):
            return ""
        return text if text is None or isinstance(text, str) else ""

    @property
    def lacks_value(self) -> bool:
        """True if the type is known and does not admit `None`."""
        return self.type is not Unknown and lacks_value(Param(required=False), self.type)

    def get_param_keyword(self, name: str) -> ast.expr | None:
        """Return a keyword argument of `Param(...)`."""
        return get_keyword(self.param, name)

    def find_problem(self) -> Literal["type", "default"] | None:
        """Return what keeps the core from defining the parameter: its type, its default, or None."""
        if self.is_injected or self.get_param_keyword("schema") is not None:
            return None
        is_template = self.get_param_keyword("template") is not None
        default = MISSING if is_template or self.defined.default is Unknown else self.defined.default
        signature = Signature((replace(self.defined, default=default, description=None),), MISSING)
        try:
            # The core names the function, here `object`, only in the error, which is not shown.
            compile_inputs(object, signature, extra="ignore", strict_types=False, flatten=False)
        except UnsupportedType:
            return "type"
        except DefinitionError:
            return "default"
        except RecursionError:
            raise
        except Exception:  # noqa: BLE001 - pydantic may raise anything for a hint that is not a type
            return None
        return None

    def find_unsupported(self) -> str:
        """Return the smallest part of the type that has no JSON Schema, as written."""
        node = self.type_node
        while True:
            parts: list[ast.expr] = []
            if isinstance(node, ast.Subscript):
                parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            elif isinstance(node, ast.BinOp):
                parts = [node.left, node.right]
            inner = next((part for part in parts if self._lacks_schema(part)), None)
            if inner is None:
                return ast.unparse(node)
            node = parse_string(inner)

    def _lacks_schema(self, node: ast.expr) -> bool:
        hint = Evaluator(self.project).evaluate(node, self.declaration.file)
        is_type = hint is not ... and not isinstance(hint, list)  # as in `Callable[[int], str]`
        return is_type and replace(self, defined=Parameter(self.name, hint)).find_problem() == "type"

    def _get_path(self, node: ast.expr) -> str:
        return self.declaration.file.imports.get_path(node)


def get_keyword(call: ast.Call | None, name: str) -> ast.expr | None:
    """Return the value of a keyword argument of a call."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None) if call is not None else None


@lru_cache(maxsize=64)
def read_docstring(text: str | None) -> Docstring:
    """Return a parsed docstring; cached, because every group of rules reads that of the same tool."""
    return parse_docstring(text)


def read_parameters(declaration: DeclaredTool, project: Project) -> tuple[SourceParameter, ...]:
    """Return the parameters of a declaration, without `self` or `cls`."""
    if declaration.node is None:
        return ()
    arguments = list(_list_arguments(declaration.node))
    if declaration.binding in ("instance", "class") and arguments and arguments[0][1] == "plain":
        del arguments[0]
    descriptions = read_docstring(declaration.docstring).parameters
    return tuple(_read_parameter(argument, declaration, project, descriptions) for argument in arguments)


def _list_arguments(node: FunctionNode) -> Iterator[Argument]:
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


def _read_parameter(
    argument: Argument, declaration: DeclaredTool, project: Project, descriptions: Mapping[str, str]
) -> SourceParameter:
    node, kind, default = argument
    evaluator = Evaluator(project)
    hint: Any = object if node.annotation is None else evaluator.evaluate(node.annotation, declaration.file)
    value: Any = inspect.Parameter.empty if default is None else eval_literal(default)
    if isinstance(default, ast.Call | ast.Name | ast.Attribute):
        found = evaluator.evaluate(default, declaration.file)
        value = found if isinstance(default, ast.Call) or is_marker(found) else value
    misplaced = default if is_marker(value) else None
    value = Unknown if value in (..., object) or misplaced is not None else value
    raw = inspect.Parameter(node.arg, inspect.Parameter.KEYWORD_ONLY, default=value)
    try:
        defined = make_parameter(object, raw, hint, None, descriptions)
    except DefinitionError:
        misplaced, defined = node.annotation, make_parameter(object, raw, Unknown, None, descriptions)
    read = (*getattr(hint, "__metadata__", ()), value)
    calls = tuple(call for found, call in evaluator.calls if found in read)
    return SourceParameter(node, kind, default, defined, calls, declaration, project, misplaced)
