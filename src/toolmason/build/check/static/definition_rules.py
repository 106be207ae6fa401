"""Rules about one tool: its parameters, descriptions, options and names.

Messages follow the errors of the core, so that a check and the runtime report the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, get_type_hints

from toolmason._core.catalog.catalog import BUILT_IN_NAMES
from toolmason._core.define.decorators import Param, ToolKeywords, ToolOptionKeywords
from toolmason.build.check.provider_limits import PARAMETER_NAME_PATTERN, find_refusing_providers
from toolmason.build.check.rules import Finding, SourceLocation, make_finding
from toolmason.build.check.static.annotations import LiteralChecker, eval_literal, eval_text
from toolmason.build.check.static.declared import DeclaredTool
from toolmason.build.check.static.parameters import SourceParameter, get_docstring, read_docstring
from toolmason.build.check.static.project import Project
from toolmason.build.check.static.typenames import find_unsupported, may_hide_description

_PLACEHOLDER_PATTERN: Final = r"\$\$\{|\$\{([^{}$:]+)(:-)?"
_PROMPT_OPTIONS: Final = frozenset({"name", "description", "role"})
_TOOL_OPTIONS: Final = frozenset(get_type_hints(ToolKeywords)) | frozenset(get_type_hints(ToolOptionKeywords))
_PARAM_OPTIONS: Final = frozenset(item.name for item in fields(Param))
_FACTORY_OPTIONS: Final = frozenset({"input_schema", "params", "handler"})
_CHOICES: Final[Mapping[str, tuple[object, ...]]] = {
    "extra": ("ignore", "forbid", "allow"),
    "runs_on": (None, "loop", "thread", "process"),
    "repeats": ("detect", "allow"),
    "role": ("user", "assistant", "system"),
    "on_error": ("message", "redact", "raise"),
}
_MINIMUMS: Final[Mapping[str, int]] = {"max_concurrency": 1, "max_calls": 1, "max_result_bytes": 256}


@dataclass(frozen=True, eq=False)
class CheckedTool:
    """A declared tool with its project."""

    project: Project
    declaration: DeclaredTool

    @cached_property
    def parameters(self) -> tuple[SourceParameter, ...]:
        """Parameters, read on first access."""
        return self.project.get_parameters(self.declaration)

    @property
    def model_parameters(self) -> list[SourceParameter]:
        """Parameters that the model fills in."""
        return [parameter for parameter in self.parameters if not parameter.is_injected and parameter.kind == "plain"]

    def get_location(self, node: Any) -> SourceLocation:
        """Return the location of a node, or that of the tool if the node has none."""
        return self.declaration.source.get_location(node) if hasattr(node, "lineno") else self.declaration.location

    def make_finding(self, code: str, node: Any, message: str) -> Finding:
        """Return a finding about this tool."""
        declaration = self.declaration
        location = node if isinstance(node, SourceLocation) else self.get_location(node)
        def_line = declaration.node.lineno if declaration.node is not None else 0
        return make_finding(code, location, message, tool=declaration.display_name, def_line=def_line)


def check_definition(tool: CheckedTool) -> Iterator[Finding]:
    """Yield the findings about the definition of one tool."""
    yield from _check_texts(tool)
    yield from _check_options(tool)
    for parameter in tool.parameters:
        yield from _check_type(tool, parameter)
        yield from _check_param(tool, parameter)
    for parameter in tool.model_parameters:
        yield from _check_description(tool, parameter)
        yield from _check_default(tool, parameter)
    yield from _check_parameters(tool)


# --- descriptions ------------------------------------------------------------------------------


def _check_texts(tool: CheckedTool) -> Iterator[Finding]:
    declaration = tool.declaration
    node = declaration.node
    given = declaration.get_keyword("description")
    empty = eval_text(given) == "" or (isinstance(given, ast.Constant) and given.value is None)
    has_description = (
        declaration.inherits_description or (given is not None and not empty) or not declaration.has_all_keywords
    )
    kind = declaration.kind
    if node is None:
        if empty:
            yield tool.make_finding(
                "TM102", declaration.location, f"{kind} {declaration.display_name!r} has no description"
            )
        return
    if get_docstring(node) is None and (computed := _find_computed_text(node)) is not None:
        yield tool.make_finding(
            "TM115", computed, f"the docstring of {declaration.display_name!r} is computed, so Python ignores it"
        )
    elif not has_description and not read_docstring(declaration).text.strip():
        yield tool.make_finding(
            "TM102", declaration.location, f"{kind} {declaration.display_name!r} has no description"
        )
    parameter_names = {parameter.name for parameter in tool.parameters} | {"self", "cls"}
    if any(parameter.kind == "keywords" for parameter in tool.parameters):
        return
    for name in read_docstring(declaration).parameters:
        if name not in parameter_names and get_docstring(node) is not None:
            matches = get_close_matches(name, parameter_names, n=1)
            hint = f"; did you mean {matches[0]!r}?" if matches else ""
            message = (
                f"the docstring of {declaration.display_name!r} describes {name!r}, which is not a parameter{hint}"
            )
            yield tool.make_finding("TM118", node.body[0], message)


def _find_computed_text(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    first = node.body[0]
    if not isinstance(first, ast.Expr):
        return None
    value = first.value
    text: ast.expr | None = None
    if isinstance(value, ast.JoinedStr):
        return value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod | ast.Add):
        text = value.left
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        text = value.func.value
    return value if isinstance(text, ast.JoinedStr) or eval_text(text) is not None else None


# --- options -----------------------------------------------------------------------------------


def _check_options(tool: CheckedTool) -> Iterator[Finding]:
    declaration = tool.declaration
    if declaration.inherited_name is not None:
        return  # options are reported for the overridden method
    known = _PROMPT_OPTIONS if declaration.kind == "prompt" else _TOOL_OPTIONS
    if declaration.kind != "prompt" and declaration.made_by_factory:
        known |= _FACTORY_OPTIONS
    for name, keyword in declaration.keywords.items():
        if name not in known:
            matches = get_close_matches(name, known, n=1)
            hint = f"; did you mean {matches[0]!r}?" if matches else ""
            yield tool.make_finding("TM116", keyword, f"@{declaration.kind} has no option {name!r}{hint}")
        elif (problem := _find_option_problem(name, eval_literal(keyword.value))) is not None:
            yield tool.make_finding("TM117", keyword, f"{name}={ast.unparse(keyword.value)}: {problem}")
    is_builtin = (
        declaration.name is not None and declaration.name.casefold() in BUILT_IN_NAMES and declaration.kind == "tool"
    )
    if is_builtin and declaration.has_all_keywords and not declaration.is_true("overrides_builtin"):
        yield tool.make_finding("TM122", declaration.location, f"{declaration.name!r} is the name of a built-in tool")


def _find_option_problem(name: str, value: Any) -> str | None:
    if value is ...:
        return None
    if name in _CHOICES and value not in _CHOICES[name]:
        return "must be one of " + ", ".join(repr(choice) for choice in _CHOICES[name])
    if name in _MINIMUMS and (not isinstance(value, int) or value < _MINIMUMS[name]) and value is not None:
        return f"must be at least {_MINIMUMS[name]}, or omitted"
    if name == "timeout" and value is not None and not (isinstance(value, int | float) and value > 0):
        return "must be positive seconds, or None for no timeout"
    if name == "name" and isinstance(value, str) and not value.strip():
        return "must not be empty; omit it to use the function's name"
    return None


# --- one parameter -----------------------------------------------------------------------------


def _check_type(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    if parameter.kind == "args":
        yield tool.make_finding("TM105", parameter.node, f"`*{parameter.name}` cannot be passed by name")
        return
    if not parameter.has_annotation:
        if parameter.kind == "plain" and parameter.name != "project_dir":
            yield tool.make_finding("TM103", parameter.node, f"parameter {parameter.name!r} has no type")
        return
    for name in _find_typing_only_names(tool.declaration, parameter):
        message = f"the type of {parameter.name!r} uses {name!r}, which is imported only under `if TYPE_CHECKING`"
        yield tool.make_finding("TM124", parameter.node.annotation, message)
        return
    if (
        parameter.is_injected
        or parameter.annotation.get_param_keyword("schema") is not None
        or parameter.annotation.type_node is None
    ):
        return
    if unsupported := find_unsupported(parameter.annotation.type_node, parameter.annotation.imports, tool.project):
        yield tool.make_finding(
            "TM104",
            parameter.node.annotation,
            f"parameter {parameter.name!r} has type `{unsupported}`, which has no JSON Schema",
        )


def _find_typing_only_names(declaration: DeclaredTool, parameter: SourceParameter) -> Iterator[str]:
    annotation = parameter.node.annotation
    for part in ast.walk(annotation) if annotation is not None else ():
        if isinstance(part, ast.Name) and part.id in declaration.imports.typing_only:
            yield part.id
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            words = set(re.findall(r"\w+", part.value)) if part is annotation else set()
            yield from sorted(words & declaration.imports.typing_only.keys())


def _check_param(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    call = parameter.annotation.param
    if call is None:
        return
    for keyword in call.keywords:
        if keyword.arg is not None and keyword.arg not in _PARAM_OPTIONS:
            matches = get_close_matches(keyword.arg, _PARAM_OPTIONS, n=1)
            hint = f"; did you mean {matches[0]!r}?" if matches else ""
            yield tool.make_finding("TM116", keyword, f"Param has no option {keyword.arg!r}{hint}")
    if parameter.is_injected:
        yield tool.make_finding(
            "TM120", parameter.node, f"parameter {parameter.name!r} is injected, so `Param(...)` has no effect"
        )
    elif (
        eval_literal(parameter.annotation.get_param_keyword("required")) is True and parameter.default_value is not None
    ):
        message = f"parameter {parameter.name!r} is required and has the default {ast.unparse(parameter.default_value)}"
        yield tool.make_finding("TM109", parameter.node, message)


def _check_description(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    text = parameter.description
    is_flattened = eval_literal(tool.declaration.get_keyword("flatten")) not in (..., None, False)
    if (
        text is None
        and parameter.has_annotation
        and not is_flattened
        and not may_hide_description(parameter.annotation, tool.project)
    ):
        yield tool.make_finding(
            "TM101",
            parameter.node,
            f"parameter {parameter.name!r} of {tool.declaration.display_name!r} has no description",
        )
    elif text and _normalize(text) in {
        _normalize(parameter.name),
        f"the{_normalize(parameter.name)}",
        _normalize(parameter.model_name),
    }:
        yield tool.make_finding(
            "TM403", parameter.node, f"the description of {parameter.name!r} only repeats its name: {text!r}"
        )


def _normalize(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def _check_default(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    value = parameter.default_value
    type_node = parameter.annotation.type_node
    if eval_literal(parameter.annotation.get_param_keyword("template")) is True:
        yield from _check_template(tool, parameter)
        return
    if value is None or type_node is None or parameter.annotation.get_param_keyword("schema") is not None:
        return
    literal = eval_literal(value)
    if literal is None and parameter.annotation.get_param_keyword("default") is not None:
        return  # `Param(default=None)` means "omitted", regardless of the type
    if (
        literal is not ...
        and LiteralChecker(tool.project.expand_alias)(type_node, parameter.annotation.imports, literal) is False
    ):
        message = f"the default {ast.unparse(value)} of {parameter.name!r} does not match `{ast.unparse(type_node)}`"
        yield tool.make_finding("TM110", value, message)


def _check_template(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    text = eval_text(parameter.default_value)
    if parameter.default_value is None or (text is None and eval_literal(parameter.default_value) is not ...):
        yield tool.make_finding(
            "TM112", parameter.node, f"parameter {parameter.name!r} is a template without a string default"
        )
        return
    model_names = [other.name for other in tool.model_parameters]
    known = {*model_names[: model_names.index(parameter.name)], "project_dir"}
    for match in re.finditer(_PLACEHOLDER_PATTERN, text or ""):
        name, fallback = match.groups()
        if name is not None and fallback is None and name not in known:
            problem = "which comes after it" if name in model_names else "which is not a parameter"
            message = f"the template of {parameter.name!r} names {name!r}, {problem}"
            yield tool.make_finding("TM111", parameter.default_value, message)


# --- all parameters ----------------------------------------------------------------------------


def _check_parameters(tool: CheckedTool) -> Iterator[Finding]:
    declaration = tool.declaration
    names_by_model_name: dict[str, str] = {}
    for parameter in tool.model_parameters:
        other = names_by_model_name.setdefault(parameter.model_name, parameter.name)
        if other != parameter.name:
            message = f"parameters {other!r} and {parameter.name!r} are both named {parameter.model_name!r}"
            yield tool.make_finding("TM119", parameter.node, message)
    if declaration.inherited_name is not None or declaration.node is None:
        return
    parameter_names = {parameter.name for parameter in tool.parameters if parameter.kind == "plain"}
    lock = eval_text(declaration.get_keyword("lock"))
    open_ended = any(parameter.kind == "keywords" for parameter in tool.parameters)
    if lock is not None and lock not in parameter_names and not open_ended:
        matches = get_close_matches(lock, parameter_names, n=1)
        hint = f"; did you mean {matches[0]!r}?" if matches else ""
        yield tool.make_finding(
            "TM113",
            declaration.keywords["lock"],
            f"lock={lock!r} names no parameter of {declaration.display_name!r}{hint}",
        )
    if declaration.is_true("flatten") and len(tool.model_parameters) != 1:
        message = f"flatten=True needs exactly one parameter that the model fills in, not {len(tool.model_parameters)}"
        yield tool.make_finding("TM121", declaration.keywords["flatten"], message)


MAX_DESCRIPTION_CHARS: Final = 1024


def check_names(tool: CheckedTool, max_chars: int = MAX_DESCRIPTION_CHARS) -> Iterator[Finding]:
    """Yield the names and descriptions of one tool that a provider rejects."""
    declaration = tool.declaration
    if declaration.kind == "prompt":
        return
    if (
        declaration.name
        and declaration.inherited_name is None
        and (providers := find_refusing_providers(declaration.name))
    ):
        yield tool.make_finding(
            "TM201",
            declaration.keywords.get("name"),
            f"the name {declaration.name!r} is rejected by {', '.join(providers)}",
        )
    for parameter in tool.model_parameters:
        if not re.fullmatch(PARAMETER_NAME_PATTERN, parameter.model_name):
            yield tool.make_finding(
                "TM202", parameter.node, f"the parameter name {parameter.model_name!r} is rejected by anthropic"
            )
    given = declaration.get_keyword("description")
    text = eval_text(given) if given is not None else read_docstring(declaration).text
    if text is not None and len(text) > max_chars:
        message = (
            f"the description of {declaration.display_name!r} has {len(text):,} characters; the limit is {max_chars:,}"
        )
        yield tool.make_finding("TM203", given if given is not None else declaration.location, message)
    for parameter in tool.model_parameters:
        if parameter.description and len(parameter.description) > max_chars:
            count = f"{len(parameter.description):,} characters; the limit is {max_chars:,}"
            message = f"the description of {parameter.name!r} has {count}"
            yield tool.make_finding("TM203", parameter.node, message)
