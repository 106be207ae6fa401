"""Rules about one tool: its parameters, descriptions, options and names.

Messages follow the errors of the core, so that a check and the runtime report the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

from toolmason._core.catalog.catalog import BUILT_IN_NAMES
from toolmason._core.define.decorators import Param, ToolKeywords
from toolmason._core.define.invocation import is_hashable, returns_function
from toolmason._text import find_close_names
from toolmason.build.check.provider_limits import PARAMETER_NAME_PATTERN, find_refusing_providers
from toolmason.build.check.rules import Finding, SourceLocation, make_finding
from toolmason.build.check.static.declared import DeclaredTool, eval_literal, eval_text
from toolmason.build.check.static.evaluate import Evaluator, Unknown
from toolmason.build.check.static.parameters import SourceParameter, read_docstring, read_parameters
from toolmason.build.check.static.project import Project

_CONTAINERS: Final = (list, dict, set, frozenset, tuple, Iterable, Mapping, Sequence)
_PLACEHOLDER_PATTERN: Final = r"\$\$\{|\$\{([^{}$:]+)(:-)?"
_PROMPT_OPTIONS: Final = frozenset({"name", "description", "role"})
_TOOL_OPTIONS: Final = frozenset(get_type_hints(ToolKeywords))
_PARAM_OPTIONS: Final = frozenset(item.name for item in fields(Param))
_FACTORY_OPTIONS: Final = frozenset({"input_schema", "params", "handler"})
_CHOICES: Final[Mapping[str, tuple[object, ...]]] = {
    "extra": ("ignore", "forbid", "allow"),
    "runs_on": (None, "loop", "thread", "process", "ray"),
    "repeats": ("detect", "allow"),
    "record": ("none", "shape", "full"),
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
        return read_parameters(self.declaration, self.project)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Nodes of the function; several rules read them, and walking a tree is slow."""
        return [] if self.declaration.node is None else list(ast.walk(self.declaration.node))

    @cached_property
    def calls(self) -> list[tuple[ast.Call, str]]:
        """Calls in the function, each with the path of what is called."""
        get_path = self.declaration.file.imports.get_path
        return [(node, get_path(node.func)) for node in self.nodes if isinstance(node, ast.Call)]

    @property
    def model_parameters(self) -> list[SourceParameter]:
        """Parameters that the model fills in."""
        return [parameter for parameter in self.parameters if not parameter.is_injected and parameter.kind == "plain"]

    def make_finding(self, code: str, node: Any, message: str, hint: str = "") -> Finding:
        """Return a finding about this tool, at a location, or at a node that has one, or at the tool."""
        declaration = self.declaration
        if isinstance(node, SourceLocation):
            location = node
        else:
            has_place = hasattr(node, "lineno")
            location = declaration.file.source.get_location(node) if has_place else declaration.location
        def_line = declaration.node.lineno if declaration.node is not None else 0
        return make_finding(code, location, message, tool=declaration.display_name, def_line=def_line, hint=hint)


def _suggest(name: str, known: Iterable[str]) -> str:
    matches = find_close_names(name, known, 1)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def check_definition(tool: CheckedTool) -> Iterator[Finding]:
    """Yield the findings about the definition of one tool."""
    yield from _check_texts(tool)
    yield from _check_options(tool)
    yield from _check_result(tool)
    for parameter in tool.parameters:
        yield from _check_marker(tool, parameter) if parameter.misplaced else _check_type(tool, parameter)
        yield from _check_param(tool, parameter)
    for parameter in tool.model_parameters:
        yield from _check_description(tool, parameter)
        yield from _check_template(tool, parameter)
    yield from _check_parameters(tool)


# --- descriptions ------------------------------------------------------------------------------


def _check_texts(tool: CheckedTool) -> Iterator[Finding]:
    declaration = tool.declaration
    node, name = declaration.node, declaration.display_name
    given = declaration.get_keyword("description")
    is_empty = given is not None and not str(eval_literal(given) or "").strip()
    has_description = (
        declaration.inherits_description or (given is not None and not is_empty) or not declaration.has_all_keywords
    )
    docstring = read_docstring(declaration.docstring)
    if node is not None and declaration.docstring is None and (computed := _find_computed_text(node)) is not None:
        yield tool.make_finding("TM115", computed, f"the docstring of {name!r} is computed, so Python ignores it")
    elif is_empty if node is None else not (has_description or docstring.text.strip()):
        yield tool.make_finding("TM102", declaration.location, f"{declaration.kind} {name!r} has no description")
    if node is None or any(parameter.kind == "keywords" for parameter in tool.parameters):
        return
    parameter_names = {parameter.name for parameter in tool.parameters} | {"self", "cls"}
    for described in docstring.parameters:
        if described not in parameter_names:
            hint = _suggest(described, parameter_names)
            message = f"the docstring of {name!r} describes {described!r}, which is not a parameter{hint}"
            yield tool.make_finding("TM118", node.body[0], message)


def _find_computed_text(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    value = node.body[0].value if isinstance(node.body[0], ast.Expr) else None
    text = value
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
            message = f"@{declaration.kind} has no option {name!r}{_suggest(name, known)}"
            yield tool.make_finding("TM116", keyword, message)
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
        known = [choice for choice in _CHOICES[name] if isinstance(choice, str)]
        suggestion = _suggest(value, known) if isinstance(value, str) else ""
        return f"must be one of {', '.join(map(repr, _CHOICES[name]))}{suggestion}"
    if name in _MINIMUMS and (not isinstance(value, int) or value < _MINIMUMS[name]) and value is not None:
        return f"must be at least {_MINIMUMS[name]}, or omitted"
    if name == "timeout" and value is not None and not (isinstance(value, int | float) and value > 0):
        return "must be positive seconds, or None for no timeout"
    if name == "name" and isinstance(value, str) and not value.strip():
        return "must not be empty; omit it to use the function's name"
    return None


def _check_result(tool: CheckedTool) -> Iterator[Finding]:
    declaration = tool.declaration
    returns = declaration.node.returns if declaration.node is not None else None
    if returns is None or declaration.get_keyword("converter") is not None:
        return
    if returns_function(Evaluator(tool.project).evaluate(returns, declaration.file)):
        message = f"{declaration.display_name!r} returns `{ast.unparse(returns)}`, and a function has no JSON form"
        yield tool.make_finding("TM127", returns, message)


# --- one parameter -----------------------------------------------------------------------------


def _check_marker(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    node, kind, marker = parameter.misplaced or parameter.node, "<the whole type>", "Inject(...)"
    if node is parameter.default:
        kind, marker = ast.unparse(parameter.type_node), ast.unparse(node)
    hint = f"Write `{parameter.name}: Annotated[{kind}, {marker}]`."
    yield tool.make_finding("TM110", node, f"the marker of {parameter.name!r} has no effect in this place", hint)


def _check_type(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    name, annotation = parameter.name, parameter.node.annotation
    if parameter.kind == "args":
        yield tool.make_finding("TM105", parameter.node, f"`*{name}` cannot be passed by name")
    elif annotation is None:
        if parameter.kind == "plain" and name != "project_dir":
            yield tool.make_finding("TM103", parameter.node, f"parameter {name!r} has no type")
    elif hidden := _find_typing_only_names(annotation, tool.declaration.file.imports.typing_only):
        message = f"the type of {name!r} uses {hidden[0]!r}, which is imported only under `if TYPE_CHECKING`"
        yield tool.make_finding("TM124", annotation, message)
    elif (problem := parameter.find_problem()) == "type":
        message = f"parameter {name!r} has type `{parameter.find_unsupported()}`, which has no JSON Schema"
        yield tool.make_finding("TM104", annotation, message)
    elif problem == "default" and (default := parameter.default_node) is not None:
        message = f"the default {ast.unparse(default)} of {name!r} does not match `{ast.unparse(parameter.type_node)}`"
        yield tool.make_finding("TM110", default, message)
    elif parameter.is_injected or parameter.get_param_keyword("schema") is not None:
        return
    elif ast.unparse(parameter.type_node) == "object":
        hint = "Write the type of the value, or `Any` if every value is accepted."
        yield tool.make_finding("TM126", annotation, f"the type of {name!r} accepts every value: `object`", hint)
    elif bare := _find_bare_container(parameter.type):
        example = _ITEM_EXAMPLES.get(bare.rpartition(".")[2].lower(), "")
        hint = f"Write the types of its items: {example}." if example else ""
        yield tool.make_finding("TM126", annotation, f"the items of {name!r} have no type: `{bare}`", hint)


_ITEM_EXAMPLES: Final = {
    "dict": "`dict[str, int]`, a TypedDict or a dataclass",
    "mapping": "`Mapping[str, int]`, a TypedDict or a dataclass",
    "set": "`set[str]`",
    "frozenset": "`frozenset[str]`",
    "tuple": "`tuple[str, ...]`",
}
"""Types that are not written like a list."""


_MAX_HINT_CHARS: Final = 60


def _find_bare_container(hint: Any) -> str:
    """Return the name of the first container in a type that has no item types, or an empty string."""
    kind = hint if get_args(hint) else get_origin(hint) or hint  # `typing.List` has an origin and no arguments
    if is_hashable(kind) and kind in _CONTAINERS:
        return str(getattr(hint, "__name__", hint))
    inner = get_args(hint)[:1] if get_origin(hint) is Annotated else get_args(hint)
    return "" if get_origin(hint) is Literal else next(filter(None, map(_find_bare_container, inner)), "")


def _find_typing_only_names(annotation: ast.expr, typing_only: Mapping[str, str]) -> list[str]:
    names = [part.id for part in ast.walk(annotation) if isinstance(part, ast.Name)]
    if (text := eval_text(annotation)) is not None:
        names = re.findall(r"\w+", text)
    return sorted(typing_only.keys() & names)


def _check_param(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    name, default = parameter.name, parameter.default_node
    if parameter.param is None:
        return
    for keyword in parameter.param.keywords:
        if keyword.arg is not None and keyword.arg not in _PARAM_OPTIONS:
            message = f"Param has no option {keyword.arg!r}{_suggest(keyword.arg, _PARAM_OPTIONS)}"
            yield tool.make_finding("TM116", keyword, message)
    if parameter.is_injected:
        yield tool.make_finding(
            "TM120", parameter.node, f"parameter {name!r} is injected, so `Param(...)` has no effect"
        )
    elif eval_literal(parameter.get_param_keyword("required")) is True and default is not None:
        message = f"parameter {name!r} is required and has the default {ast.unparse(default)}"
        yield tool.make_finding("TM109", parameter.node, message)
    elif eval_literal(parameter.get_param_keyword("required")) is False and default is None and parameter.lacks_value:
        message = f"parameter {name!r} is optional but has no default, and its type does not admit None"
        yield tool.make_finding("TM128", parameter.node, message)


def _check_description(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    text, name = parameter.description, parameter.name
    is_flattened = eval_literal(tool.declaration.get_keyword("flatten")) not in (..., None, False)
    # A type of another package may bring a description.
    if text is None and parameter.node.annotation and not is_flattened and parameter.type is not Unknown:
        message = f"parameter {name!r} of {tool.declaration.display_name!r} has no description"
        written = ast.unparse(parameter.node.annotation)
        meaning = f'`{name}: Annotated[{written}, "what it means"]`' if len(written) <= _MAX_HINT_CHARS else ""
        hint = f"Write {meaning}, or describe it in the docstring's `Args:`." if meaning else ""
        yield tool.make_finding("TM101", parameter.node, message, hint)
    elif text and _normalize(text) in map(_normalize, (name, f"the {name}", parameter.defined.label)):
        message = f"the description of {name!r} only repeats its name: {text!r}"
        yield tool.make_finding("TM403", parameter.node, message)


def _normalize(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def _check_template(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    if eval_literal(parameter.get_param_keyword("template")) is not True:
        return
    text, default = parameter.defined.default, parameter.default_node
    if text is not Unknown and not isinstance(text, str):
        message = f"parameter {parameter.name!r} is a template without a string default"
        yield tool.make_finding("TM112", parameter.node, message)
    model_names = [other.name for other in tool.model_parameters]
    known = {*model_names[: model_names.index(parameter.name)], "project_dir"}
    for match in re.finditer(_PLACEHOLDER_PATTERN, text) if isinstance(text, str) else ():
        name, fallback = match.groups()
        if name is not None and fallback is None and name not in known:
            problem = "which comes after it" if name in model_names else "which is not a parameter"
            yield tool.make_finding("TM111", default, f"the template of {parameter.name!r} names {name!r}, {problem}")


# --- all parameters ----------------------------------------------------------------------------


def _check_parameters(tool: CheckedTool) -> Iterator[Finding]:
    declaration = tool.declaration
    names_by_label: dict[str, str] = {}
    for parameter in tool.model_parameters:
        label = parameter.defined.label
        other = names_by_label.setdefault(label, parameter.name)
        if other != parameter.name:
            message = f"parameters {other!r} and {parameter.name!r} are both named {label!r}"
            yield tool.make_finding("TM119", parameter.node, message)
    if declaration.inherited_name is not None or declaration.node is None:
        return
    parameter_names = {parameter.name for parameter in tool.parameters if parameter.kind == "plain"}
    lock = eval_text(declaration.get_keyword("lock"))
    open_ended = any(parameter.kind == "keywords" for parameter in tool.parameters)
    if lock is not None and lock not in parameter_names and not open_ended:
        hint = _suggest(lock, parameter_names)
        message = f"lock={lock!r} names no parameter of {declaration.display_name!r}{hint}"
        yield tool.make_finding("TM113", declaration.keywords["lock"], message)
    if declaration.is_true("flatten") and len(tool.model_parameters) != 1:
        message = f"flatten=True needs exactly one parameter that the model fills in, not {len(tool.model_parameters)}"
        yield tool.make_finding("TM121", declaration.keywords["flatten"], message)
    elif declaration.is_true("flatten") and tool.model_parameters[0].param is not None:
        parameter = tool.model_parameters[0]
        message = f"the fields of {parameter.name!r} are the arguments, so its `Param(...)` has no effect"
        yield tool.make_finding("TM121", parameter.node, message)


MAX_DESCRIPTION_CHARS: Final = 1024


def check_names(tool: CheckedTool, max_chars: int = MAX_DESCRIPTION_CHARS) -> Iterator[Finding]:
    """Yield the names and descriptions of one tool that a provider rejects."""
    declaration = tool.declaration
    if declaration.kind == "prompt":
        return
    name = declaration.name if declaration.inherited_name is None else None
    if name and (providers := find_refusing_providers(name)):
        message = f"the name {name!r} is rejected by {', '.join(providers)}"
        yield tool.make_finding("TM201", declaration.keywords.get("name"), message)
    given = declaration.get_keyword("description")
    text = eval_text(given) if given is not None else read_docstring(declaration.docstring).text
    texts: list[tuple[str, str | None, Any]] = [(declaration.display_name, text, given)]
    for parameter in tool.model_parameters:
        texts.append((parameter.name, parameter.description, parameter.node))
        label = parameter.defined.label
        if not re.fullmatch(PARAMETER_NAME_PATTERN, label):
            message = f"the parameter name {label!r} is rejected by anthropic"
            yield tool.make_finding("TM202", parameter.node, message)
    for what, text, node in texts:
        if text is not None and len(text) > max_chars:
            message = f"the description of {what!r} has {len(text):,} characters; the limit is {max_chars:,}"
            yield tool.make_finding("TM203", node, message)
