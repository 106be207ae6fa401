"""The measures of the house: sizes, names, duplicates and prose, each with its bound. `make house` prints them.

Usage: python tests/house/measures.py
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT / "tests") not in sys.path:  # run as a script
    sys.path.insert(0, str(ROOT / "tests"))

from house.duplicates import duplicate_pairs
from house.prose import findings
from house.source import PACKAGE, parse_tree, read_package

SMALL = 60


@dataclass(frozen=True)
class Measure:
    """One row of the table."""

    name: str
    value: int
    bound: int
    where: str = ""

    @property
    def holds(self) -> bool:
        return self.value <= self.bound


def modules() -> list[Path]:
    """Return the modules of the package; the `__init__` of a package does not count."""
    return sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def folder_sizes() -> Counter[str]:
    return Counter(str(path.parent.relative_to(PACKAGE)) for path in modules())


def lines() -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in PACKAGE.rglob("*.py"))


def small_modules() -> list[str]:
    return [str(path.relative_to(PACKAGE)) for path in modules() if len(path.read_text("utf-8").splitlines()) <= SMALL]


def repeated_module_names() -> list[str]:
    counts = Counter(path.stem for path in modules())
    return sorted(name for name, count in counts.items() if count > 1)


def repeated_class_names() -> list[str]:
    """Return the names that two or more classes have, anywhere in the package."""
    found = defaultdict(list)
    for module in read_package(PACKAGE).values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module.name)
    # A class that is written twice for two versions of Python stands in one module.
    return sorted(name for name, places in found.items() if len(set(places)) > 1)


def members_of(cls: type) -> set[str]:
    """Return the public members of a class with its bases; the sync twin of an async method does not count."""
    names = {name for base in cls.__mro__ if _is_ours(base) for name in vars(base) if not name.startswith("_")}
    names |= {
        name for base in cls.__mro__ if _is_ours(base) for name in inspect.get_annotations(base) if name[0] != "_"
    }
    return {name for name in names if not (name.endswith("_sync") and name.removesuffix("_sync") in names | {"close"})}


def _is_ours(cls: type) -> bool:
    return cls.__module__.partition(".")[0] == "toolmason"


def largest_classes() -> list[tuple[int, str]]:
    """Return the number of members of each class, the largest first; data classes and typed dicts do not count."""
    sizes: dict[str, int] = {}
    for name in read_package(PACKAGE):
        module = importlib.import_module(name)
        for value in vars(module).values():
            is_data = hasattr(value, "__dataclass_fields__") or hasattr(value, "__total__")
            if inspect.isclass(value) and value.__module__ == name and not is_data:
                sizes[f"{name}.{value.__qualname__}"] = len(members_of(value))
    return sorted(((size, name) for name, size in sizes.items()), reverse=True)


def dict_between_steps() -> list[str]:
    """Return the places where a step of a call takes or returns `dict[str, Any]`."""
    found = []
    for path in sorted((PACKAGE / "_core" / "call").glob("*.py")):
        for node in ast.walk(parse_tree(path.read_text("utf-8"))):
            # A value for JSON does not pass between steps of a call.
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name != "to_dict":
                hints = [arg.annotation for arg in (*node.args.args, *node.args.kwonlyargs)] + [node.returns]
                found += [
                    f"{path.stem}.{node.name}" for hint in hints if hint and "dict[str, Any]" in ast.unparse(hint)
                ]
    return found


def measures() -> Iterator[Measure]:
    """Measure the source. The bounds only fall, except for that of the lines."""
    folders = folder_sizes()
    largest, size = folders.most_common(1)[0]
    small, modules_twice, classes_twice = small_modules(), repeated_module_names(), repeated_class_names()
    classes = largest_classes()
    toolbox = next(count for count, name in classes if name.endswith("Toolbox"))
    # A capability may raise it in a commit of its own that says by how much and why; packed lines do not lower it.
    yield Measure("lines of the package", lines(), 67_400)
    yield Measure("modules in the largest folder", size, 13, largest)
    yield Measure(f"modules of {SMALL} lines or fewer", len(small), 11, ", ".join(small))
    yield Measure("module names used twice", len(modules_twice), 8, ", ".join(modules_twice))
    yield Measure("classes of one name", len(classes_twice), 0, ", ".join(classes_twice))
    yield Measure("members of Toolbox with its bases", toolbox, 34)
    others = next((count, name) for count, name in classes if not name.endswith("Toolbox"))
    yield Measure("members of the largest other class", others[0], 30, others[1])
    places = dict_between_steps()
    yield Measure("`dict[str, Any]` between steps of a call", len(places), 0, ", ".join(sorted(set(places))))
    pairs = duplicate_pairs(PACKAGE)
    yield Measure("pairs of duplicated places", len(pairs), 15, "; ".join(pairs[:4]))


def prose() -> Measure:
    """Count the patterns that are not plain; `test_prose` has the test."""
    texts = list(findings())
    return Measure("prose patterns", len(texts), 0, "; ".join(texts[:2]))


def flows() -> Iterator[Measure]:
    """Trace the main flows; the bounds may only fall."""
    sys.path.append(str(ROOT / "benchmarks"))
    import hops

    bounds = {
        "call": (6, 4),
        "call with a lock": (25, 16),
        "call in a run": (11, 7),
        "tools/call in a session, tool with context": (58, 30),
        "Chat.send with one call": (266, 168),
    }
    for name, trace in hops.traces().items():
        frames, changes = bounds[name]
        frames += 0 if sys.version_info < (3, 12) else 1  # asyncio's eager task, in a coroutine
        yield Measure(f"{name}: frames", trace.frames, frames)
        yield Measure(f"{name}: hops", trace.hops, changes)
        if trace.depth:
            yield Measure(f"{name}: coroutines to the socket", trace.depth, 8)


def main() -> int:
    """Print the table; return 1 if a bound is broken."""
    rows = [*measures(), prose(), *flows()]
    print("| Measure | is | at most | |")
    print("|---|--:|--:|---|")
    for row in rows:
        note = "" if row.holds else f"**broken** {row.where}"
        print(f"| {row.name} | {row.value:,} | {row.bound:,} | {note} |")
    return int(not all(row.holds for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
