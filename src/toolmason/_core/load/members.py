"""List the tools and prompts of a module by import path, for writing manifests and for loading from them.

Included are decorated functions, `Tool` objects, the tools of module-level objects, and those of public classes, of
which no instance is created to describe them. `@supported_for` items are excluded, because the application is known
only at run time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from toolmason._core.catalog.discovery import find_declared_members, make_member_tool
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.define.decorators import Declaration, get_declaration
from toolmason._core.define.signature import unwrap_function
from toolmason._core.define.tool import Tool
from toolmason._core.load.supported_for import SUPPORTED_FOR_ATTRIBUTE

ToolOrPrompt = Literal["tool", "prompt"]


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A tool or prompt of a module that is not built yet."""

    qualname: str
    """Path within the module: `search`, or `orders.search` for a method of a module-level object."""
    kind: ToolOrPrompt
    item: Any
    declaration: Declaration
    owner: Any = None
    """Object that the method belongs to, or its class if no instance exists."""

    @property
    def key(self) -> tuple[int, str]:
        """Identity of the member, independent of the name and module it is found under."""
        return (id(self.item), "") if self.owner is None else (id(self.owner), self.qualname.rpartition(".")[2])

    @property
    def defining_module(self) -> str:
        """The module that defines its code; for a method, the module of the object's class."""
        if self.owner is None:
            code = getattr(self.item, "fn", None) or getattr(self.item, "handler", None) or self.item
            definer = unwrap_function(code)
        else:
            definer = self.owner if self.is_of_class else type(self.owner)
        return str(getattr(definer, "__module__", ""))

    @property
    def is_of_class(self) -> bool:
        """True if it is a method of a class that has no instance in the package."""
        return isinstance(self.owner, type)

    @property
    def needs_instance(self) -> bool:
        """True if the class must be instantiated first: the method is neither static nor a class method."""
        return self.is_of_class and not isinstance(self._raw_method, staticmethod | classmethod)

    @property
    def _raw_method(self) -> Any:
        return inspect.getattr_static(self.owner, self.qualname.rpartition(".")[2])

    def build(self, get_instance: Callable[[type], Any]) -> Tool | Prompt:
        """Return the tool or prompt; `get_instance` returns the instance of a class.

        Raises:
            DefinitionError: it cannot be built as written.
            Exception: any exception from `get_instance`.
        """
        if self.needs_instance:
            return self._make(getattr(get_instance(self.owner), self.qualname.rpartition(".")[2]))
        return self._make(self.item)

    def describe(self) -> Tool | Prompt:
        """Return the tool or prompt without creating an instance of its class; it can be listed but not called.

        Raises:
            DefinitionError: it cannot be built as written.
        """
        if self.needs_instance:
            return self._make(self._raw_method.__get__(_StandIn(self.owner), self.owner))
        return self._make(self.item)

    def _make(self, item: Any) -> Tool | Prompt:
        if isinstance(item, Tool | Prompt):
            return item
        return (
            Prompt.from_function(item, self.declaration)
            if self.kind == "prompt"
            else make_member_tool(item, self.declaration)
        )


class _StandIn:
    """Stands for an instance of a class that is not created, so that its methods can be bound and described."""

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def __getattribute__(self, name: str) -> Any:
        # `inspect` reads the class of a method's object to find the docstring that the method inherits.
        return object.__getattribute__(self, "_cls" if name == "__class__" else name)


def find_required_arguments(cls: type) -> list[str]:
    """Return the names of the constructor arguments without a default."""
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return []
    optional_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is p.empty and p.kind not in optional_kinds]


def iter_module_members(module: ModuleType) -> Iterator[Member]:
    """Yield the tools and prompts of a module in source order; one with two names appears once."""
    if is_restricted(module):
        return
    seen: set[int] = set()
    for name, item in list(vars(module).items()):
        if id(item) in seen or isinstance(item, ModuleType) or name.startswith("__") or is_restricted(item):
            continue
        seen.add(id(item))
        if isinstance(item, type):
            if item.__module__ == module.__name__ and not name.startswith("_") and not inspect.isabstract(item):
                yield from _iter_methods(name, item)
        elif isinstance(item, Tool | Prompt):
            yield Member(name, "tool" if isinstance(item, Tool) else "prompt", item, Declaration("tool"))
        elif (declaration := get_declaration(item)) is not None:
            # A manifest lists what models see; resources are loaded with their module.
            for found in (declaration, *declaration.others):
                if found.kind in ("tool", "prompt"):
                    yield Member(name, "tool" if found.kind == "tool" else "prompt", item, found)
        else:
            yield from _iter_methods(name, item)


def _iter_methods(name: str, owner: Any) -> Iterator[Member]:
    kinds: tuple[ToolOrPrompt, ...] = ("tool", "prompt")
    for kind in kinds:
        declared = find_declared_members(owner if isinstance(owner, type) else type(owner), kind)
        for method_name, (raw_method, declaration) in declared.items():
            if not is_restricted(raw_method):
                yield Member(f"{name}.{method_name}", kind, getattr(owner, method_name), declaration, owner)


def is_restricted(item: Any) -> bool:
    """Return True if an item is for specific applications only."""
    parts = (item, *(getattr(item, name, None) for name in ("fn", "handler", "__func__")))
    return any(getattr(part, SUPPORTED_FOR_ATTRIBUTE, None) is not None for part in parts)


def deduplicate_members(modules: Iterable[ModuleType]) -> dict[str, list[Member]]:
    """Return the members of each module, each member only in the module that defines it.

    A class is omitted if an instance of it exists, or another of the classes extends it.
    """
    best: dict[tuple[int, str], tuple[tuple[bool, bool, str], ModuleType, Member]] = {}
    for module in modules:
        for member in iter_module_members(module):
            rank = (member.defining_module != module.__name__, hasattr(module, "__path__"), module.__name__)
            if member.key not in best or rank < best[member.key][0]:
                best[member.key] = (rank, module, member)
    owners = {id(member.owner): member.owner for _, _, member in best.values() if member.owner is not None}
    members_by_module: dict[str, list[Member]] = {}
    for _, module, member in best.values():
        if not (member.is_of_class and any(_supersedes(other, member.owner) for other in owners.values())):
            members_by_module.setdefault(module.__name__, []).append(member)
    return members_by_module


def _supersedes(other: Any, cls: type) -> bool:
    if isinstance(other, type):
        return other is not cls and issubclass(other, cls)
    return isinstance(other, cls)
