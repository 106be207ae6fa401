"""Rules about contradictory effects, model-filled secrets and identities, instructions, and code execution."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final

from pydantic import SecretBytes, SecretStr

from toolmason.build.check.rules import Finding
from toolmason.build.check.static.declared import eval_literal, eval_text
from toolmason.build.check.static.definition_rules import CheckedTool
from toolmason.build.check.static.parameters import SourceParameter

_SECRET_NAME: Final = re.compile(
    r"(?:^|_)(?:passwords?|passwd|pwd|passphrase|secrets?|api_?keys?|(?:access|auth|bearer|refresh|id|api)_?tokens?"
    r"|private_?keys?|secret_?keys?|client_?secret|credentials?|authorization|connection_?string)$"
)
_SECRET_TYPES: Final = (SecretStr, SecretBytes)
_IDENTITY_NAME: Final = re.compile(r"(?:tenant|current_user|auth_user|request_user|session|acting_user)(?:_?id)?")
_DESTRUCTIVE_NAME: Final = re.compile(
    r"(?:delete|remove|drop|destroy|purge|truncate|wipe|erase|uninstall)(?:_|[A-Z]|$)"
)
_INSTRUCTION: Final = re.compile(
    r"\b(?:ignore|disregard|forget|override)\s+(?:\w+\s+){0,3}(?:instructions?|prompts?|rules|guidelines)\b"
    r"|\b(?:do\s+not|don't|never)\s+(?:tell|inform|notify|alert|mention|reveal|show|disclose)\b[^.\n]{0,40}\busers?\b"
    r"|\b(?:without\s+telling|hide\s+(?:\w+\s+){0,3}from|keep\s+(?:\w+\s+){0,3}secret\s+from)\s+(?:the\s+)?users?\b"
    r"|\byou\s+(?:must|should|have\s+to)\s+(?:always\s+|first\s+)?(?:call|invoke|use|run)\b"
    r"|\b(?:always|must)\s+(?:call|invoke|use|run)\s+this\s+tool\b"
    r"|\bbefore\s+(?:calling|using|invoking|running)\s+any\s+other\s+tools?\b"
    r"|</?(?:system|important|instructions?)>",
    re.IGNORECASE,
)
_CODE_CALLS: Final = frozenset({"eval", "exec", "os.system", "os.popen", "asyncio.create_subprocess_shell"})
_SHELL_CALLS: Final = frozenset(
    f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen", "getoutput")
)


def check_safety(tool: CheckedTool, *, has_approver: bool = False) -> Iterator[Finding]:
    """Yield the safety findings of one tool; `has_approver` is True if a toolbox of the project has an approver."""
    declaration = tool.declaration
    if declaration.kind == "prompt":
        return
    for parameter in tool.model_parameters:
        yield from _check_private(tool, parameter)
    yield from _check_code(tool)
    yield from _check_instructions(tool)
    if declaration.inherited_name is None:
        yield from _check_effects(tool, has_approver=has_approver)


def _check_effects(tool: CheckedTool, *, has_approver: bool) -> Iterator[Finding]:
    declaration = tool.declaration
    keywords = declaration.keywords
    name = declaration.display_name
    if declaration.is_true("skip_permission") and declaration.is_true("overrides_builtin"):
        yield tool.make_finding(
            "TM302", keywords["skip_permission"], f"{name!r} overrides a built-in tool and skips permission"
        )
    if not declaration.is_true("destructive"):
        if _DESTRUCTIVE_NAME.match(name) and "destructive" not in keywords and declaration.has_all_keywords:
            fix = "Remove `read_only=True` and set `destructive=True`, or set `destructive=False`."
            hint = fix if declaration.is_true("read_only") else ""
            message = f"{name!r} sounds destructive but does not set destructive="
            yield tool.make_finding("TM309", declaration.location, message, hint)
        return
    if declaration.is_true("read_only"):
        yield tool.make_finding("TM301", keywords["destructive"], f"{name!r} is read_only and destructive")
    elif declaration.is_true("skip_permission"):
        yield tool.make_finding("TM304", keywords["skip_permission"], f"{name!r} is destructive and skips permission")
    elif not has_approver and declaration.has_all_keywords and not declaration.has_approval_or_preview:
        yield tool.make_finding(
            "TM303", keywords["destructive"], f"{name!r} is destructive but has neither approval= nor preview="
        )
    retry = declaration.get_keyword("retry")
    is_retried = isinstance(retry, ast.Call) and declaration.file.imports.get_path(retry.func) == "toolmason.Retry"
    if is_retried and not declaration.is_true("idempotent"):
        yield tool.make_finding("TM308", keywords["retry"], f"{name!r} is destructive, not idempotent, and is retried")


def _check_private(tool: CheckedTool, parameter: SourceParameter) -> Iterator[Finding]:
    if parameter.type in _SECRET_TYPES or _SECRET_NAME.search(_to_snake_case(parameter.name)):
        yield tool.make_finding(
            "TM305", parameter.node, f"parameter {parameter.name!r} looks like a secret, but the model fills it in"
        )
    elif _IDENTITY_NAME.fullmatch(_to_snake_case(parameter.name)):
        yield tool.make_finding(
            "TM306", parameter.node, f"parameter {parameter.name!r} identifies the caller, but the model fills it in"
        )


def _to_snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _check_instructions(tool: CheckedTool) -> Iterator[Finding]:
    declaration = tool.declaration
    given = declaration.get_keyword("description")
    place = given if given is not None or declaration.node is None else declaration.node.body[0]
    texts: list[tuple[str, str | None, Any]] = [
        (declaration.display_name, eval_text(given) if given is not None else declaration.docstring, place)
    ]
    texts += [(parameter.name, parameter.description, parameter.node) for parameter in tool.model_parameters]
    for what, text, node in texts:
        if text and (match := _INSTRUCTION.search(text)):
            words = " ".join(match[0].split())
            yield tool.make_finding("TM310", node, f"the description of {what!r} instructs the model: {words!r}")


def _check_code(tool: CheckedTool) -> Iterator[Finding]:
    if tool.declaration.has_approval_or_preview:
        return
    names = {parameter.name for parameter in tool.model_parameters}
    for call, called in tool.calls:
        uses_shell = called in _SHELL_CALLS and (
            called.endswith("getoutput")
            or any(keyword.arg == "shell" and eval_literal(keyword.value) is True for keyword in call.keywords)
        )
        if (uses_shell or called in _CODE_CALLS) and (used := _find_mentioned(call, names)):
            message = f"{used!r}, which the model fills in, is passed to `{ast.unparse(call.func)}`"
            yield tool.make_finding("TM307", call, message)


def _find_mentioned(call: ast.Call, names: set[str]) -> str:
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    found = (part.id for value in values for part in ast.walk(value) if isinstance(part, ast.Name))
    return next((name for name in found if name in names), "")
