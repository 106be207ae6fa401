"""Rules TM1xx about one tool: its parameters, its texts, its options, as the source shows them.

Lives here: what would be refused when the tool is defined, and what a model would miss. The wording follows the
errors of the core, so that check and run time say the same. Not here: several tools together (`set_rules`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Final, get_type_hints

from toolmason._core.catalog.catalog import BUILT_IN
from toolmason._core.define.decorators import OptionWords, Param, ToolWords
from toolmason.build.check.provider_limits import PARAMETER_NAME, refused_by
from toolmason.build.check.rules import Finding, Place, finding
from toolmason.build.check.static.annotations import Fit, constant, text_of
from toolmason.build.check.static.declared import Declared
from toolmason.build.check.static.parameters import Taken, docstring_of, documentation_of
from toolmason.build.check.static.project import Project
from toolmason.build.check.static.typenames import is_opaque, unsupported_in

_PLACEHOLDER: Final = r"\$\$\{|\$\{([^{}$:]+)(:-)?"
_PROMPT_WORDS: Final = frozenset({"name", "description", "role"})
_TOOL_WORDS: Final = frozenset(get_type_hints(ToolWords)) | frozenset(get_type_hints(OptionWords))
_PARAM_WORDS: Final = frozenset(item.name for item in fields(Param))
_MAKER_WORDS: Final = frozenset({"input_schema", "params", "handler"})
_CHOICES: Final[Mapping[str, tuple[object, ...]]] = {
    "extra": ("ignore", "forbid", "allow"),
    "runs_on": (None, "loop", "thread", "process"),
    "repeats": ("detect", "allow"),
    "role": ("user", "assistant", "system"),
    "on_error": ("message", "redact", "raise"),
}
_LEAST: Final[Mapping[str, int]] = {"max_concurrency": 1, "max_calls": 1, "max_result_bytes": 256}


@dataclass(frozen=True, eq=False)
class Look:
    """One tool, as the rules see it."""

    project: Project
    declared: Declared

    @cached_property
    def parameters(self) -> tuple[Taken, ...]:
        """The parameters, read when they are first asked for."""
        return self.project.parameters(self.declared)

    @property
    def sent(self) -> list[Taken]:
        """The parameters that the model fills."""
        return [taken for taken in self.parameters if not taken.injected and taken.kind == "plain"]

    def place(self, node: Any) -> Place:
        """Return where a node stands; the tool's own place where it has none."""
        return self.declared.source.place(node) if hasattr(node, "lineno") else self.declared.place

    def say(self, code: str, node: Any, message: str) -> Finding:
        """Return a finding about this tool."""
        declared = self.declared
        place = node if isinstance(node, Place) else self.place(node)
        owner = declared.node.lineno if declared.node is not None else 0
        return finding(code, place, message, tool=declared.shown, owner=owner)


def check_definition(look: Look) -> Iterator[Finding]:
    """Yield what is wrong with one tool."""
    yield from _texts(look)
    yield from _options(look)
    for taken in look.parameters:
        yield from _signature(look, taken)
        yield from _param(look, taken)
    for taken in look.sent:
        yield from _described(look, taken)
        yield from _default(look, taken)
    yield from _together(look)


# --- texts -------------------------------------------------------------------------------------


def _texts(look: Look) -> Iterator[Finding]:
    declared, node = look.declared, look.declared.node
    given = declared.word("description")
    empty = text_of(given) == "" or (isinstance(given, ast.Constant) and given.value is None)
    written = declared.inherited_text or (given is not None and not empty) or not declared.closed
    kind = declared.kind
    if node is None:
        if empty:
            yield look.say("TM102", declared.place, f"{kind} {declared.shown!r} has no description")
        return
    if docstring_of(node) is None and (computed := _computed_text(node)) is not None:
        yield look.say("TM115", computed, f"the docstring of {declared.shown!r} is computed, so it is no docstring")
    elif not written and not documentation_of(declared).text.strip():
        yield look.say("TM102", declared.place, f"{kind} {declared.shown!r} has no description")
    names = {taken.name for taken in look.parameters} | {"self", "cls"}
    if any(taken.kind == "keywords" for taken in look.parameters):
        return
    for name in documentation_of(declared).parameters:
        if name not in names and docstring_of(node) is not None:
            near = get_close_matches(name, names, n=1)
            hint = f"; did it mean {near[0]!r}?" if near else ""
            message = f"the docstring of {declared.shown!r} describes {name!r}, which is no parameter{hint}"
            yield look.say("TM118", node.body[0], message)


def _computed_text(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
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
    return value if isinstance(text, ast.JoinedStr) or text_of(text) is not None else None


# --- options -----------------------------------------------------------------------------------


def _options(look: Look) -> Iterator[Finding]:
    declared = look.declared
    known = _PROMPT_WORDS if declared.kind == "prompt" else _TOOL_WORDS | (_MAKER_WORDS if declared.maker else set())
    if declared.inherited is not None:
        return  # the words stand at what it overrides, and are told there
    for name, word in declared.words.items():
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield look.say("TM116", word, f"@{declared.kind} has no option {name!r}{hint}")
        elif (wrong := _wrong_value(name, constant(word.value))) is not None:
            yield look.say("TM117", word, f"{name}={ast.unparse(word.value)}: {wrong}")
    taken = declared.name is not None and declared.name.casefold() in BUILT_IN and declared.kind == "tool"
    if taken and declared.closed and not declared.says("overrides_builtin"):
        yield look.say("TM122", declared.place, f"{declared.name!r} is the name of a built-in tool")


def _wrong_value(name: str, value: Any) -> str | None:
    if value is ...:
        return None
    if name in _CHOICES and value not in _CHOICES[name]:
        return "give " + ", ".join(repr(choice) for choice in _CHOICES[name])
    if name in _LEAST and (not isinstance(value, int) or value < _LEAST[name]) and value is not None:
        return f"give {_LEAST[name]} or more, or leave it out"
    if name == "timeout" and value is not None and not (isinstance(value, int | float) and value > 0):
        return "give seconds above 0, or None for no time-out"
    if name == "name" and isinstance(value, str) and not value.strip():
        return "give a name, or leave it out to use the function's"
    return None


# --- one parameter -----------------------------------------------------------------------------


def _signature(look: Look, taken: Taken) -> Iterator[Finding]:
    if taken.kind == "args":
        yield look.say("TM105", taken.node, f"`*{taken.name}` cannot be called by name")
        return
    if not taken.typed:
        if taken.kind == "plain" and taken.name != "project_dir":
            yield look.say("TM103", taken.node, f"parameter {taken.name!r} has no type")
        return
    for name in _typing_only(look.declared, taken):
        message = f"the type of {taken.name!r} names {name!r}, which is imported only for type checkers"
        yield look.say("TM124", taken.node.annotation, message)
        return
    if taken.injected or taken.hint.word("schema") is not None or taken.hint.core is None:
        return
    if bad := unsupported_in(taken.hint.core, taken.hint.names, look.project):
        yield look.say(
            "TM104", taken.node.annotation, f"parameter {taken.name!r} is of type `{bad}`, which has no JSON Schema"
        )


def _typing_only(declared: Declared, taken: Taken) -> Iterator[str]:
    annotation = taken.node.annotation
    for part in ast.walk(annotation) if annotation is not None else ():
        if isinstance(part, ast.Name) and part.id in declared.names.typing_only:
            yield part.id
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            words = set(re.findall(r"\w+", part.value)) if part is annotation else set()
            yield from sorted(words & declared.names.typing_only.keys())


def _param(look: Look, taken: Taken) -> Iterator[Finding]:
    call = taken.hint.param
    if call is None:
        return
    for word in call.keywords:
        if word.arg is not None and word.arg not in _PARAM_WORDS:
            near = get_close_matches(word.arg, _PARAM_WORDS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            yield look.say("TM116", word, f"Param has no option {word.arg!r}{hint}")
    if taken.injected:
        yield look.say("TM120", taken.node, f"parameter {taken.name!r} is injected, so `Param(...)` has no effect")
    elif constant(taken.hint.word("required")) is True and taken.value is not None:
        message = f"parameter {taken.name!r} is required and has the default {ast.unparse(taken.value)}"
        yield look.say("TM109", taken.node, message)


def _described(look: Look, taken: Taken) -> Iterator[Finding]:
    text = taken.description
    flat = constant(look.declared.word("flatten")) not in (..., None, False)
    if text is None and taken.typed and not flat and not is_opaque(taken.hint, look.project):
        yield look.say("TM101", taken.node, f"parameter {taken.name!r} of {look.declared.shown!r} has no description")
    elif text and _squeezed(text) in {_squeezed(taken.name), f"the{_squeezed(taken.name)}", _squeezed(taken.label)}:
        yield look.say("TM403", taken.node, f"the description of {taken.name!r} only repeats its name: {text!r}")


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


def _default(look: Look, taken: Taken) -> Iterator[Finding]:
    value, core = taken.value, taken.hint.core
    template = constant(taken.hint.word("template")) is True
    if template:
        yield from _template(look, taken)
        return
    if value is None or core is None or taken.hint.word("schema") is not None:
        return
    literal = constant(value)
    if literal is None and taken.hint.word("default") is not None:
        return  # `Param(default=None)` says "left out", whatever the type
    if literal is not ... and Fit(look.project.expand)(core, taken.hint.names, literal) is False:
        message = f"the default {ast.unparse(value)} of parameter {taken.name!r} does not fit `{ast.unparse(core)}`"
        yield look.say("TM110", value, message)


def _template(look: Look, taken: Taken) -> Iterator[Finding]:
    text = text_of(taken.value)
    if taken.value is None or (text is None and constant(taken.value) is not ...):
        yield look.say("TM112", taken.node, f"parameter {taken.name!r} is a template, and its default is no text")
        return
    sent = [other.name for other in look.sent]
    known = {*sent[: sent.index(taken.name)], "project_dir"}
    for match in re.finditer(_PLACEHOLDER, text or ""):
        name, fallback = match.groups()
        if name is not None and fallback is None and name not in known:
            why = "which stands after it" if name in sent else "which is no parameter"
            message = f"the template of {taken.name!r} names {name!r}, {why}"
            yield look.say("TM111", taken.value, message)


# --- all parameters ----------------------------------------------------------------------------


def _together(look: Look) -> Iterator[Finding]:
    declared = look.declared
    labels: dict[str, str] = {}
    for taken in look.sent:
        other = labels.setdefault(taken.label, taken.name)
        if other != taken.name:
            message = f"parameters {other!r} and {taken.name!r} are both called {taken.label!r}"
            yield look.say("TM119", taken.node, message)
    if declared.inherited is not None or declared.node is None:
        return
    names = {taken.name for taken in look.parameters if taken.kind == "plain"}
    lock = text_of(declared.word("lock"))
    open_ended = any(taken.kind == "keywords" for taken in look.parameters)
    if lock is not None and lock not in names and not open_ended:
        near = get_close_matches(lock, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        yield look.say("TM113", declared.words["lock"], f"lock={lock!r} names no parameter of {declared.shown!r}{hint}")
    if declared.says("flatten") and len(look.sent) != 1:
        message = f"flatten=True needs exactly one parameter that the model fills; there are {len(look.sent)}"
        yield look.say("TM121", declared.words["flatten"], message)


LONGEST_DESCRIPTION: Final = 1024


def check_names(look: Look, longest: int = LONGEST_DESCRIPTION) -> Iterator[Finding]:
    """Yield the names and texts of one tool that some provider refuses."""
    declared = look.declared
    if declared.kind == "prompt":
        return
    if declared.name and declared.inherited is None and (refusing := refused_by(declared.name)):
        yield look.say(
            "TM201", declared.words.get("name"), f"the name {declared.name!r} is refused by {', '.join(refusing)}"
        )
    for taken in look.sent:
        if not re.fullmatch(PARAMETER_NAME, taken.label):
            yield look.say("TM202", taken.node, f"the parameter name {taken.label!r} is refused by anthropic")
    given = declared.word("description")
    text = text_of(given) if given is not None else documentation_of(declared).text
    if text is not None and len(text) > longest:
        message = f"the description of {declared.shown!r} has {len(text):,} characters; {longest:,} are the most"
        yield look.say("TM203", given if given is not None else declared.place, message)
    for taken in look.sent:
        if taken.description and len(taken.description) > longest:
            message = (
                f"the description of {taken.name!r} has {len(taken.description):,} characters; {longest:,} are the most"
            )
            yield look.say("TM203", taken.node, message)
