"""Decide from the source whether a type has a JSON Schema.

A test compares the list of standard library types with the types that the core rejects. Other packages' types are
assumed to be supported.
"""

from __future__ import annotations

import ast
import builtins
import sys
from typing import Final

from toolmason.build.check.static.annotations import ANNOTATED, LITERAL, ParsedAnnotation, parse_string_annotation
from toolmason.build.check.static.declared import ClassDeclaration
from toolmason.build.check.static.imports import ImportedNames
from toolmason.build.check.static.project import Project

UNSUPPORTED_TYPES: Final = frozenset(
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
_KNOWN_PACKAGES: Final = frozenset({"pydantic", "decimal", "datetime", "uuid", "pathlib", "enum"})
_SCHEMA_HOOKS: Final = frozenset({"__get_pydantic_core_schema__", "__get_validators__", "__pydantic_core_schema__"})


def find_unsupported(node: ast.expr, imports: ImportedNames, project: Project) -> str:
    """Return the part of a type that has no JSON Schema, as written, or an empty string."""
    node = parse_string_annotation(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return find_unsupported(node.left, imports, project) or find_unsupported(node.right, imports, project)
    if isinstance(node, ast.Subscript):
        head = imports.get_path(node.value)
        if head in UNSUPPORTED_TYPES:
            return ast.unparse(node)
        if head in LITERAL or head in ("type", "typing.Type"):
            return ""
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        parts = inner[:1] if head in ANNOTATED else inner
        return next(filter(None, (find_unsupported(part, imports, project) for part in parts)), "")
    if isinstance(node, ast.Name | ast.Attribute):
        if imports.get_path(node) in UNSUPPORTED_TYPES:
            return ast.unparse(node)
        found = project.find_class(node, imports)
        return ast.unparse(node) if found is not None and _has_no_schema(found) else ""
    return ""


def _has_no_schema(cls: ClassDeclaration) -> bool:
    """Return True if pydantic cannot build a schema for a class."""
    is_bare = not (cls.node.bases or cls.node.keywords or cls.node.decorator_list)
    return is_bare and not (_SCHEMA_HOOKS & cls.members.keys())


def may_hide_description(annotation: ParsedAnnotation, project: Project) -> bool:
    """Return True if a type may carry a description: it comes from another package that the check does not read."""
    if annotation.type_node is None or not isinstance(annotation.type_node, ast.Name | ast.Attribute):
        return False
    path = annotation.imports.get_path(annotation.type_node)
    head = path.partition(".")[0]
    known = hasattr(builtins, path) or head in sys.stdlib_module_names or head in _KNOWN_PACKAGES
    return not known and project.find_class(annotation.type_node, annotation.imports) is None
