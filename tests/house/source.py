"""Python files as syntax trees, and what the limits of the house measure in them.

Lives here: reading, lengths, counts and import edges, without importing what is read.
Not here: the limits themselves (the tests beside this file).
"""

import ast
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "toolmason"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file: its dotted name, its text, its tree."""

    name: str
    text: str
    tree: ast.Module
    is_package: bool = False

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())


def parse_tree(text: str) -> ast.Module:
    """Parse Python, with no garbage collection meanwhile.

    Python before 3.11.8 raises a SystemError if a finalizer parses during `ast.parse`, and a finalizer
    that logs a traceback does.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if was_enabled:
            gc.enable()


def parse(name: str, text: str, *, is_package: bool = False) -> Module:
    return Module(name, text, parse_tree(text), is_package)


@cache
def read_package(folder: Path) -> dict[str, Module]:
    """Read every module under a package's folder, by dotted name; do not change it, it is read once."""
    modules = {}
    for path in sorted(folder.rglob("*.py")):
        parts = [folder.name, *path.relative_to(folder).with_suffix("").parts]
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = parse(name, path.read_text("utf-8"), is_package=is_package)
    return modules


def function_lengths(module: Module) -> Iterator[tuple[str, int]]:
    """Yield each function's place and its length: from `def` to the last line, less the docstring."""
    for node in ast.walk(module.tree):
        if isinstance(node, Function):
            first = node.body[0]
            documented = ast.get_docstring(node, clean=False) is not None
            docstring = _last_line(first) - first.lineno + 1 if documented else 0
            yield f"{module.name}:{node.lineno} {node.name}", _last_line(node) - node.lineno + 1 - docstring


def import_edges(modules: dict[str, Module]) -> dict[str, set[str]]:
    """Map each module to those it imports, wherever the import stands: in a function and for typing, too."""
    return {name: set(_imports(module, modules)) - {name} for name, module in modules.items()}


def _imports(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from _known((alias.name for alias in node.names), modules)
        elif isinstance(node, ast.ImportFrom):
            base = _base(module, node)
            yield from _known((f"{base}.{alias.name}" for alias in node.names), modules)


def _base(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    above = node.level - 1 if module.is_package else node.level
    return ".".join([*parts[: len(parts) - above], *([node.module] if node.module else [])])


def _known(names: Iterable[str], modules: dict[str, Module]) -> Iterator[str]:
    """Yield the module of ours that each name lives in, if any."""
    for name in names:
        parts = name.split(".")
        prefixes = (".".join(parts[:size]) for size in range(len(parts), 0, -1))
        yield from [prefix for prefix in prefixes if prefix in modules][:1]


def _last_line(node: ast.stmt) -> int:
    return node.end_lineno or node.lineno
