"""Types as written → whether they have a JSON Schema, as far as the source alone can tell.

Lives here: the types of the standard library that the core refuses (a test compares the two). Not here: other
packages' types: what cannot be known is not complained about.
"""

from __future__ import annotations

import ast
import builtins
import sys
from typing import Final

from toolmason.build.check.static.annotations import ANNOTATED, LITERAL, Hint, parsed
from toolmason.build.check.static.declared import ClassFacts
from toolmason.build.check.static.imports import Names
from toolmason.build.check.static.project import Project

UNSUPPORTED: Final = frozenset(
    {
        "BaseException",
        "Exception",
        "asyncio.AbstractEventLoop",
        "asyncio.Condition",
        "asyncio.Event",
        "asyncio.Future",
        "asyncio.Lock",
        "asyncio.Queue",
        "asyncio.Semaphore",
        "asyncio.StreamReader",
        "asyncio.StreamWriter",
        "asyncio.Task",
        "asyncio.TaskGroup",
        "bytearray",
        "collections.abc.AsyncGenerator",
        "collections.abc.AsyncIterable",
        "collections.abc.AsyncIterator",
        "collections.abc.Awaitable",
        "collections.abc.Callable",
        "collections.abc.Collection",
        "collections.abc.Container",
        "collections.abc.Coroutine",
        "collections.abc.Iterator",
        "collections.abc.Sized",
        "concurrent.futures.Executor",
        "concurrent.futures.Future",
        "datetime.timezone",
        "datetime.tzinfo",
        "functools.partial",
        "io.BytesIO",
        "io.StringIO",
        "logging.Logger",
        "memoryview",
        "queue.Queue",
        "random.Random",
        "range",
        "re.Match",
        "slice",
        "socket.socket",
        "sqlite3.Connection",
        "sqlite3.Cursor",
        "subprocess.Popen",
        "threading.Event",
        "threading.Lock",
        "threading.Thread",
        "types.FunctionType",
        "types.ModuleType",
        "types.TracebackType",
        "typing.AsyncGenerator",
        "typing.AsyncIterable",
        "typing.AsyncIterator",
        "typing.Awaitable",
        "typing.BinaryIO",
        "typing.Callable",
        "typing.Collection",
        "typing.Container",
        "typing.Coroutine",
        "typing.IO",
        "typing.Iterator",
        "typing.Never",
        "typing.NoReturn",
        "typing.TextIO",
    }
)
_OPAQUE_NOT: Final = frozenset({"pydantic", "decimal", "datetime", "uuid", "pathlib", "enum"})
_SCHEMA_HOOKS: Final = frozenset({"__get_pydantic_core_schema__", "__get_validators__", "__pydantic_core_schema__"})


def unsupported_in(node: ast.expr, names: Names, project: Project) -> str:
    """Return the part of a type that has no JSON Schema, as it is written; an empty text where there is none."""
    node = parsed(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return unsupported_in(node.left, names, project) or unsupported_in(node.right, names, project)
    if isinstance(node, ast.Subscript):
        head = names.dotted(node.value)
        if head in UNSUPPORTED:
            return ast.unparse(node)
        if head in LITERAL or head in ("type", "typing.Type"):
            return ""
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts = inner[:1] if head in ANNOTATED else inner
        return next(filter(None, (unsupported_in(part, names, project) for part in parts)), "")
    if isinstance(node, ast.Name | ast.Attribute):
        if names.dotted(node) in UNSUPPORTED:
            return ast.unparse(node)
        found = project.class_at(node, names)
        return ast.unparse(node) if found is not None and _is_plain(found) else ""
    return ""


def _is_plain(cls: ClassFacts) -> bool:
    """Tell whether a class has nothing that pydantic could make a schema from."""
    bare = not (cls.node.bases or cls.node.keywords or cls.node.decorator_list)
    return bare and not (_SCHEMA_HOOKS & cls.members.keys())


def is_opaque(hint: Hint, project: Project) -> bool:
    """Tell whether a type may hide a description: a name of another package that the project does not show."""
    if hint.core is None or not isinstance(hint.core, ast.Name | ast.Attribute):
        return False
    path = hint.names.dotted(hint.core)
    head = path.partition(".")[0]
    known = hasattr(builtins, path) or head in sys.stdlib_module_names or head in _OPAQUE_NOT
    return not known and project.class_at(hint.core, hint.names) is None
