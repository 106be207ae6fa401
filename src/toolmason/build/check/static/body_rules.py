"""Rules about what the body of a tool does: blocking calls, paths from the model, deletion in a read-only tool."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final, Literal, TypeAlias, get_args

from toolmason.build.check.rules import Finding
from toolmason.build.check.static.declared import FunctionNode, eval_literal, iter_calls
from toolmason.build.check.static.definition_rules import CheckedTool
from toolmason.build.check.static.imports import ImportedNames

_HTTP_METHODS: Final = ("get", "post", "put", "patch", "delete", "head", "options", "request")
_BLOCKING_CALLS: Final = frozenset(
    {
        *("time.sleep", "os.system", "input", "socket.create_connection"),
        *("urllib.request.urlopen", "urllib.request.urlretrieve"),
        *(f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "getoutput")),
        *(f"{package}.{method}" for package in ("requests", "httpx") for method in _HTTP_METHODS),
    }
)

_FILE_CALLS: Final = frozenset(
    {
        *("open", "io.open"),
        *(f"os.{name}" for name in ("open", "listdir", "scandir", "walk", "mkdir", "makedirs", "rename", "replace")),
        *(f"os.{name}" for name in ("remove", "unlink", "rmdir", "removedirs")),
        *(f"shutil.{name}" for name in ("copy", "copy2", "copyfile", "copytree", "move", "rmtree")),
    }
)
_PATH_METHODS: Final = frozenset(
    {
        *("open", "read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "glob", "rglob", "walk"),
        *("touch", "mkdir", "rename", "replace", "unlink", "rmdir"),
    }
)
_PATH_CLASSES: Final = frozenset({"pathlib.Path", "pathlib.PosixPath", "pathlib.WindowsPath"})
_TEXT_FUNCTIONS: Final = frozenset(
    {"str", "os.fspath", *(f"os.path.{name}" for name in ("join", "expanduser", "abspath", "normpath", "realpath"))}
)
_SAME_PATH_METHODS: Final = frozenset({"expanduser", "resolve", "absolute", "joinpath", "with_suffix", "strip"})
_CONTAINMENT: Final = frozenset(
    {"is_relative_to", "relative_to", "commonpath", "parents", "startswith", "safe_join", "secure_filename"}
)
"""Names that a body uses to keep a path within a folder."""

_DELETING_CALLS: Final = frozenset(
    {
        *(f"os.{name}" for name in ("remove", "unlink", "rmdir", "removedirs")),
        *("shutil.rmtree", "requests.delete", "httpx.delete"),
    }
)
_DELETING_METHODS: Final = frozenset({"unlink", "rmdir", "rmtree"})
_DELETING_SQL: Final = re.compile(
    r"(?:^|;)\s*(?:DELETE\s+FROM|DROP\s+(?:TABLE|DATABASE|SCHEMA|INDEX|VIEW)|TRUNCATE\s+(?:TABLE\s+)?\w)", re.IGNORECASE
)

PathKind: TypeAlias = Literal["text", "path"]


def check_body(tool: CheckedTool) -> Iterator[Finding]:
    """Yield the findings about the body of one tool."""
    node = tool.declaration.node
    if node is None or tool.declaration.kind == "prompt":
        return
    runs_on = tool.declaration.get_keyword("runs_on")
    is_on_loop = runs_on is None or eval_literal(runs_on) in (None, "loop")
    if isinstance(node, ast.AsyncFunctionDef) and is_on_loop:
        yield from _check_blocking(tool, node)
    if not tool.declaration.has_approval_or_preview:
        yield from _check_paths(tool)
    if tool.declaration.is_true("read_only"):
        yield from _check_deletion(tool, node)


# --- blocking calls ----------------------------------------------------------------------------


def _check_blocking(tool: CheckedTool, node: FunctionNode) -> Iterator[Finding]:
    if not any(called in _BLOCKING_CALLS for _, called in tool.calls):
        return
    # Functions in it may run in a thread.
    for call in iter_calls(node, lambda part: isinstance(part, FunctionNode | ast.Lambda | ast.ClassDef)):
        if tool.declaration.file.imports.get_path(call.func) in _BLOCKING_CALLS:
            message = f"`{ast.unparse(call.func)}` blocks the event loop in the async tool"
            yield tool.make_finding("TM311", call, f"{message} {tool.declaration.display_name!r}")


# --- paths from the model ----------------------------------------------------------------------


def _check_paths(tool: CheckedTool) -> Iterator[Finding]:
    paths: dict[str, PathKind] = {}
    for parameter in tool.model_parameters:
        if (kind := _get_path_kind(parameter.type)) is not None:
            paths[parameter.name] = kind
    opening = [
        (call, called) for call, called in tool.calls if called in _FILE_CALLS or _get_name(call.func) in _PATH_METHODS
    ]
    if not paths or not opening or any(_get_name(part) in _CONTAINMENT for part in tool.nodes):
        return
    reader = _PathReader(tool.declaration.file.imports, paths)
    for part in tool.nodes:
        reader.read_assignment(part)
    for call, called in opening:
        if reader.opens_file(call, called):
            message = f"`{ast.unparse(call.func)}` uses a path that the model chose, and the tool does not limit it"
            yield tool.make_finding("TM312", call, message)


def _get_path_kind(hint: Any) -> PathKind | None:
    if isinstance(hint, type) and issubclass(hint, PurePath):
        return "path"
    if hint is str:
        return "text"
    kinds: set[PathKind | None] = {_get_path_kind(part) for part in get_args(hint) if part is not type(None)}
    return kinds.pop() if len(kinds) == 1 else None


def _get_name(node: ast.AST) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))


class _PathReader:
    """Follows the paths that come from a model through the expressions and assignments of a body."""

    def __init__(self, imports: ImportedNames, paths: dict[str, PathKind]) -> None:
        self.imports = imports
        self.paths = paths
        """Names that hold such a path, as text or as a path object."""

    def read_assignment(self, node: ast.AST) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and isinstance(value, ast.expr):
            kind = self.get_kind(value)
            for target in targets:
                if isinstance(target, ast.Name) and kind is not None:
                    self.paths[target.id] = kind

    def opens_file(self, call: ast.Call, called: str) -> bool:
        if called in _FILE_CALLS:
            return any(self.get_kind(argument) is not None for argument in call.args[:2])
        is_method = isinstance(call.func, ast.Attribute) and call.func.attr in _PATH_METHODS
        return is_method and self.get_kind(getattr(call.func, "value", None)) == "path"

    def get_kind(self, node: ast.expr | None) -> PathKind | None:
        """Return how an expression holds a path of the model; None if it does not, or if a function may check it."""
        if isinstance(node, ast.Name):
            return self.paths.get(node.id)
        if isinstance(node, ast.JoinedStr):
            parts = [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
            return "text" if any(map(self.get_kind, parts)) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Add):
            is_known = self.get_kind(node.left) or self.get_kind(node.right)
            return None if not is_known else "path" if isinstance(node.op, ast.Div) else "text"
        return self._get_call_kind(node) if isinstance(node, ast.Call) else None

    def _get_call_kind(self, call: ast.Call) -> PathKind | None:
        called = self.imports.get_path(call.func)
        if called in _PATH_CLASSES:
            return "path" if any(map(self.get_kind, call.args)) else None
        if called in _TEXT_FUNCTIONS:
            return "text" if any(map(self.get_kind, call.args)) else None
        if isinstance(call.func, ast.Attribute) and call.func.attr in _SAME_PATH_METHODS:
            is_joined = call.func.attr == "joinpath" and any(map(self.get_kind, call.args))
            return "path" if is_joined else self.get_kind(call.func.value)
        return None


# --- deletion in a read-only tool --------------------------------------------------------------


def _check_deletion(tool: CheckedTool, node: FunctionNode) -> Iterator[Finding]:
    name = tool.declaration.display_name
    docstring = node.body[0].value if isinstance(node.body[0], ast.Expr) else None
    # A temporary file that the tool itself has created may be deleted.
    uses_own_files = any(called.startswith("tempfile.") for _, called in tool.calls)
    for call, called in () if uses_own_files else tool.calls:
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if called in _DELETING_CALLS or method in _DELETING_METHODS:
            yield tool.make_finding("TM313", call, f"{name!r} is read_only, but calls `{ast.unparse(call.func)}`")
    for part in tool.nodes:
        text = part.value if isinstance(part, ast.Constant) and part is not docstring else None
        if isinstance(text, str) and (match := _DELETING_SQL.search(text)):
            sql = " ".join(match[0].strip("; ").split())
            yield tool.make_finding("TM313", part, f"{name!r} is read_only, but has the SQL `{sql}`")
