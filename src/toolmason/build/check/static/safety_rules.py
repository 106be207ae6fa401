"""Rules TM3xx: effects that contradict each other, secrets and identities that a model would fill in, code from text.

Lives here: what the source of one tool shows. Not here: whether a tool really does what it says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from toolmason.build.check.rules import Finding
from toolmason.build.check.static.annotations import constant
from toolmason.build.check.static.declared import Declared
from toolmason.build.check.static.definition_rules import Look
from toolmason.build.check.static.parameters import Taken

_SECRET: Final = re.compile(
    r"(?:^|_)(?:passwords?|passwd|pwd|passphrase|secrets?|api_?keys?|(?:access|auth|bearer|refresh|id|api)_?tokens?"
    r"|private_?keys?|secret_?keys?|client_?secret|credentials?|authorization|connection_?string)$"
)
_SECRET_TYPES: Final = frozenset({"pydantic.SecretStr", "pydantic.SecretBytes", "pydantic.types.SecretStr"})
_IDENTITY: Final = re.compile(r"(?:tenant|current_user|auth_user|request_user|session|acting_user)(?:_?id)?")
_DESTROYING: Final = re.compile(r"(?:delete|remove|drop|destroy|purge|truncate|wipe|erase|uninstall)(?:_|[A-Z]|$)")
_CODE: Final = frozenset({"eval", "exec", "os.system", "os.popen", "asyncio.create_subprocess_shell"})
_CODE_WORDS: Final = ("eval", "exec", "system", "popen", "subprocess")
_SHELLS: Final = frozenset(
    f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen", "getoutput")
)


def check_safety(look: Look, *, gated: bool = False) -> Iterator[Finding]:
    """Yield what is unsafe about one tool; `gated` says that a toolbox of the project asks for approval."""
    declared = look.declared
    if declared.kind == "prompt":
        return
    for taken in look.sent:
        yield from _private(look, taken)
    yield from _code(look)
    if declared.inherited is None:
        yield from _effects(look, gated=gated)


def _effects(look: Look, *, gated: bool) -> Iterator[Finding]:
    declared, words, name = look.declared, look.declared.words, look.declared.shown
    if declared.says("skip_permission") and declared.says("overrides_builtin"):
        yield look.say("TM302", words["skip_permission"], f"{name!r} overrides a built-in tool and skips permission")
    if not declared.says("destructive"):
        if _DESTROYING.match(name) and "destructive" not in words and declared.closed:
            yield look.say("TM309", declared.place, f"{name!r} sounds destructive, and does not say whether it is")
        return
    if declared.says("read_only"):
        yield look.say("TM301", words["destructive"], f"{name!r} is read_only and destructive")
    elif declared.says("skip_permission"):
        yield look.say("TM304", words["skip_permission"], f"{name!r} is destructive and skips permission")
    elif not gated and declared.closed and not _announced(declared):
        yield look.say("TM303", words["destructive"], f"{name!r} is destructive, with neither approval= nor preview=")
    retried = "retry" in words and not (isinstance(words["retry"].value, ast.Constant) or declared.says("idempotent"))
    if retried and _names_retry(declared):
        yield look.say("TM308", words["retry"], f"{name!r} is destructive, not idempotent, and is retried")


def _announced(declared: Declared) -> bool:
    given = [constant(declared.word(word)) for word in ("approval", "preview") if word in declared.words]
    return any(value not in (False, None) for value in given)


def _names_retry(declared: Declared) -> bool:
    value = declared.word("retry")
    return isinstance(value, ast.Call) and declared.names.dotted(value.func) == "toolmason.Retry"


def _private(look: Look, taken: Taken) -> Iterator[Finding]:
    core = taken.hint.core
    typed = core is not None and taken.hint.names.dotted(core) in _SECRET_TYPES
    if typed or _SECRET.search(_snake(taken.name)):
        yield look.say(
            "TM305", taken.node, f"parameter {taken.name!r} looks like a secret, and the model would fill it"
        )
    elif _IDENTITY.fullmatch(_snake(taken.name)):
        yield look.say("TM306", taken.node, f"parameter {taken.name!r} says who is asking, and the model would fill it")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _code(look: Look) -> Iterator[Finding]:
    node = look.declared.node
    text = look.declared.source.text
    if node is None or _announced(look.declared) or not any(word in text for word in _CODE_WORDS):
        return
    names = {taken.name for taken in look.sent}
    for call in ast.walk(node):
        if not isinstance(call, ast.Call):
            continue
        called = look.declared.names.dotted(call.func)
        shell = called in _SHELLS and (
            called.endswith("getoutput")
            or any(word.arg == "shell" and constant(word.value) is True for word in call.keywords)
        )
        if (shell or called in _CODE) and (used := _mentioned(call, names)):
            message = f"{used!r}, which the model fills, goes into `{ast.unparse(call.func)}`"
            yield look.say("TM307", call, message)


def _mentioned(call: ast.Call, names: set[str]) -> str:
    values = [*call.args, *(word.value for word in call.keywords)]
    found = (part.id for value in values for part in ast.walk(value) if isinstance(part, ast.Name))
    return next((name for name in found if name in names), "")
