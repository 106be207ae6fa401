"""Ordered set of tools, prompts and resources with unique names, and their extraction from sources.

Lookup is exact, then case-insensitive if only one name matches; it never guesses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

from toolmason._core.catalog.discovery import find_prompts, find_resources, has_members, tools_from
from toolmason._core.catalog.prompts import Prompt
from toolmason._core.catalog.resources import Resource
from toolmason._core.define.decorators import Declaration, get_declaration
from toolmason._core.define.inputs import PROJECT_DIR, hide_project_dir
from toolmason._core.define.signature import check_lock
from toolmason._core.define.tool import LazyTool, RenamedTool, Tool, get_layers, make_tool
from toolmason._core.values.definition import Naming, ToolDefinition, apply_naming
from toolmason._core.values.policy import CarriedPolicy
from toolmason._core.values.provider_tools import NATIVE_TOOL_TYPES, AnyNativeTool, RemoteMcp, get_native_key
from toolmason._text import suggest
from toolmason.errors import DefinitionError, DuplicateTool, PluginError

CatalogItem: TypeAlias = Tool | Prompt | Resource
"""An item of a toolbox."""


@runtime_checkable
class ToolSource(Protocol):
    """An object that provides tools to a toolbox."""

    def __tools__(self) -> Iterable[CatalogItem | AnyNativeTool]:
        """Yield its tools, prompts and resources."""
        ...


@runtime_checkable
class Resolver(Protocol):
    """An object that finds a tool by name."""

    def resolve(self, name: str) -> Tool | None:
        """Return the tool of that name, or `None`."""
        ...


@dataclass(eq=False, repr=False)
class Catalog:
    """Tools and prompts by name, resources by URI, and native tools of providers."""

    tools: dict[str, Tool] = field(default_factory=dict)
    prompts: dict[str, Prompt] = field(default_factory=dict)
    native: tuple[AnyNativeTool, ...] = ()
    resources: dict[str, Resource] = field(default_factory=dict)
    _folded_names: frozenset[str] | None = field(default=None, init=False)
    """Names of the tools without case; None until a name is unknown."""

    def add(self, item: CatalogItem | AnyNativeTool, *, replace_same: bool = False) -> None:
        """Add a tool, prompt or resource.

        Raises:
            DuplicateTool: its name is taken; names both origins.
        """
        if isinstance(item, NATIVE_TOOL_TYPES):
            self._add_native(item, replace_same=replace_same)
            return
        if isinstance(item, Tool):
            self.add_tool(item, replace_same=replace_same)
        elif isinstance(item, Resource):
            _add_item(self.resources, item.uri, item, "resources", replace_same=replace_same)
        else:
            _add_item(self.prompts, item.name, item, "prompts", replace_same=replace_same)

    def add_tool(self, tool: Tool, *, replace_same: bool = False) -> None:
        """Add a tool.

        Raises:
            DuplicateTool: its name is taken; names both origins.
        """
        tool = _publish(tool)
        for native in self.native:
            _refuse_native_name(tool, native)
        _add_item(self.tools, tool.name, tool, "tools", replace_same=replace_same)
        self._folded_names = None

    def _add_native(self, item: AnyNativeTool, *, replace_same: bool) -> None:
        known = self.find_native(item)
        if known is not None and known != item and not replace_same:
            raise DuplicateTool(item.name, repr(known), repr(item))
        for tool in self.tools.values():
            _refuse_native_name(tool, item)
        self.native = (*(other for other in self.native if other is not known), item)

    def find_native(self, item: AnyNativeTool) -> AnyNativeTool | None:
        """Return the provider-run tool that has the same name for the same provider, or None."""
        return next((known for known in self.native if get_native_key(known) == get_native_key(item)), None)

    def find(self, name: str) -> Tool | None:
        """Return the tool with this name, or the only one that matches it ignoring case; None if there is neither."""
        if (exact := self.tools.get(name)) is not None:
            return exact
        if self._folded_names is None:
            self._folded_names = frozenset(map(str.casefold, self.tools))
        folded = name.casefold()
        if folded not in self._folded_names:
            return None
        close = [tool for known, tool in self.tools.items() if known.casefold() == folded]
        return close[0] if len(close) == 1 else None

    def __iter__(self) -> Iterator[Tool]:
        return iter(sorted(self.tools.values(), key=lambda tool: tool.name))

    def filter(self, keep: Callable[[Tool], bool], keep_native: Callable[[str], bool]) -> Catalog:
        """Return a catalog with the tools that `keep` accepts and the native tools whose name `keep_native` accepts."""
        filtered = self.with_tools({name: tool for name, tool in self.tools.items() if keep(tool)})
        filtered.native = tuple(item for item in self.native if keep_native(item.name))
        return filtered

    def with_tools(self, tools: dict[str, Tool]) -> Catalog:
        """Return a catalog with these tools and the same prompts, resources and native tools."""
        return Catalog(tools, dict(self.prompts), self.native, dict(self.resources))

    def copy(self) -> Catalog:
        """Return a catalog with the same items."""
        return self.with_tools(dict(self.tools))

    def rename(self, rename: Callable[[str], str]) -> Catalog:
        """Return a catalog with renamed tools."""
        renamed = self.with_tools({})
        for tool in self.tools.values():
            renamed.add(rename_tool(tool, rename(tool.name)))
        return renamed

    def merge(self, other: Catalog) -> Catalog:
        """Return a catalog with the items of both."""
        merged = self.copy()
        for item in other.iter_items():
            merged.add(item)
        return merged

    def iter_items(self) -> Iterator[CatalogItem | AnyNativeTool]:
        """Yield the tools, prompts, resources and native tools."""
        yield from self.tools.values()
        yield from self.prompts.values()
        yield from self.resources.values()
        yield from self.native


def _publish(tool: Tool) -> Tool:
    """Return a tool as the catalog publishes it: without `project_dir`, which the application fills.

    Raises:
        DefinitionError: it has no definition, or locks on a parameter that it does not have.
    """
    definition = getattr(tool, "definition", None)
    if not isinstance(definition, ToolDefinition):
        raise DefinitionError(f"{tool.origin} has no definition. Set `definition = ToolDefinition(...)` in the class.")
    if type(tool)._compile is not Tool._compile:  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
        return tool
    check_lock(tool.origin, tool.options.lock, (), definition.input_schema)
    if PROJECT_DIR not in definition.input_schema.get("properties", ()):
        return tool
    published = RenamedTool(tool, tool.name)
    published.definition = replace(definition, input_schema=hide_project_dir(definition.input_schema))
    return published


def _add_item(items: dict[str, Any], key: str, item: CatalogItem, kind: str, *, replace_same: bool) -> None:
    if not replace_same and key in items and not _is_same(items[key], item):
        raise make_duplicate(key, items[key], item, kind)
    items[key] = item


def join_items(items: Iterable[Any], kind: str) -> tuple[list[Any], dict[str, DuplicateTool]]:
    """Return the items without repeats, and the errors about names that different ones have, which are left out."""
    joined: dict[str, Any] = {}
    conflicts: dict[str, DuplicateTool] = {}
    for item in items:
        known = joined.setdefault(item.name, item)
        if not _is_same(known, item):
            conflicts.setdefault(item.name, make_duplicate(item.name, known, item, kind))
    return [item for name, item in joined.items() if name not in conflicts], conflicts


def make_duplicate(name: str, first: CatalogItem, second: CatalogItem, kind: str = "tools") -> DuplicateTool:
    """Return the error for two items of one name. The same method of two objects is named with its objects."""
    owners = [getattr(getattr(item, "fn", None), "__self__", None) for item in (first, second)]
    origins = [first.origin, second.origin]
    if first.origin == second.origin and owners[0] is not owners[1]:
        origins = [f"{first.origin} of {object.__repr__(owner)}" for owner in owners]
    return DuplicateTool(name, *origins, kind=kind)


def _refuse_native_name(tool: Tool, native: AnyNativeTool) -> None:
    # A provider sees the name of a server as a label, not as the name of a tool.
    if not isinstance(native, RemoteMcp) and native.name == tool.name:
        raise DuplicateTool(tool.name, tool.origin, repr(native))


def _is_same(first: CatalogItem, second: CatalogItem) -> bool:
    """Return True if two items are one, which came through the same toolboxes."""
    if first is second:
        return True
    if first.policies != second.policies:
        return False
    if isinstance(first, Tool) and isinstance(second, Tool):
        return get_layers(first) == get_layers(second)
    if isinstance(first, Prompt) and isinstance(second, Prompt):
        return first.render_messages is second.render_messages
    return isinstance(first, Resource) and isinstance(second, Resource) and first.template is second.template


def carry_policy(item: CatalogItem, policy: CarriedPolicy) -> CatalogItem:
    """Return an item with the policy of a toolbox that it comes from."""
    policies = (*item.policies, policy)
    if isinstance(item, Prompt):
        return replace(item, policies=policies)
    if isinstance(item, Resource):
        carried = copy(item)
        carried.policies = policies
        return carried
    return carry_tool_policy(item, policies)


def carry_tool_policy(tool: Tool, policies: tuple[CarriedPolicy, ...]) -> Tool:
    """Return a tool with these policies."""
    if isinstance(tool, LazyTool):
        return tool.with_definition(
            tool.definition, lambda loaded: RenamedTool(loaded, loaded.name, policies), policies
        )
    return RenamedTool(tool, tool.name, policies)


def rename_tool(tool: Tool, name: str) -> Tool:
    """Return the tool under another name, sharing everything else."""
    if name == tool.name:
        return tool
    if isinstance(tool, LazyTool):
        return tool.with_definition(replace(tool.definition, name=name), lambda loaded: RenamedTool(loaded, name))
    return RenamedTool(tool, name)


def iter_source_items(source: Any, naming: Naming | None, resolvers: Iterable[Resolver]) -> Iterator[Any]:
    """Yield the tools and prompts of any source. A server (`__remote__`) is yielded unchanged.

    Raises:
        DefinitionError: it is not a source; lists the accepted kinds.
    """
    if isinstance(source, (Tool, Prompt, Resource, *NATIVE_TOOL_TYPES)) or (
        hasattr(source, "__remote__") and not isinstance(source, type)
    ):
        yield source
    elif isinstance(source, ToolSource):
        yield from source.__tools__()
    elif isinstance(source, str):
        yield _resolve_or_raise(source, resolvers)
    elif isinstance(source, list | tuple | set | frozenset):
        for item in source:
            yield from iter_source_items(item, naming, resolvers)
    elif not isinstance(source, type) and (declaration := get_declaration(source)) is not None:
        for item_declaration in (declaration, *declaration.others):
            yield _make_item(source, item_declaration, naming)
    elif isinstance(source, type | ModuleType) or has_members(source):
        yield from _iter_members(source, naming)
    elif callable(source):
        yield _rename_by_convention(make_tool(source), naming)
    else:
        raise DefinitionError(
            f"{source!r} is not a source of tools. Pass functions, objects or classes with @tool methods, modules, "
            "Tool objects, other toolboxes, chats by `chat.as_tool(...)`, or names that a resolver knows."
        )


def _make_item(source: Any, declaration: Declaration, naming: Naming | None) -> CatalogItem:
    if declaration.kind == "prompt":
        return Prompt.from_function(source, declaration)
    if declaration.kind == "resource":
        return Resource(source, declaration)
    return _rename_by_convention(make_tool(source, declaration), naming)


def iter_local_items(source: Any) -> Iterator[CatalogItem]:
    """Yield the tools, prompts and resources of a source that is not a server.

    Raises:
        DefinitionError: it is a server, a native tool or not a source; gives the fix.
    """
    for item in iter_source_items(source, None, ()):
        if isinstance(item, NATIVE_TOOL_TYPES):
            raise DefinitionError(f"{item!r} is run by a provider and cannot be called here. Pass it to a toolbox.")
        if not isinstance(item, CatalogItem):
            raise DefinitionError(f"{item!r} is a server and cannot be inspected here. Pass it to a toolbox.")
        yield item


def get_source_problems(source: Any) -> tuple[PluginError, ...]:
    """Return the errors of the items that a source skipped, if it records them."""
    problems = getattr(source, "problems", ()) if isinstance(source, ToolSource) else ()
    return tuple(item for item in problems if isinstance(item, PluginError)) if isinstance(problems, tuple) else ()


def _iter_members(source: Any, naming: Naming | None) -> Iterator[CatalogItem]:
    others: list[CatalogItem] = [*find_prompts(source), *find_resources(source)]
    yield from others
    if not others or has_members(source, "tool"):
        for tool in tools_from(source):
            yield _rename_by_convention(tool, naming)


def _rename_by_convention(tool: Tool, naming: Naming | None) -> Tool:
    # `naming=` applies to names derived from code; an explicit name is kept.
    declaration = get_declaration(getattr(tool, "fn", None))
    if naming is None or (declaration is not None and declaration.name is not None):
        return tool
    return rename_tool(tool, apply_naming(tool.name, naming))


def resolve_name(name: str, resolvers: Iterable[Resolver]) -> Tool | None:
    """Return the tool from the first resolver that knows the name, or None."""
    candidates = (check_resolved(resolver, name, resolver.resolve(name)) for resolver in resolvers)
    return next((tool for tool in candidates if tool is not None), None)


def check_resolvers(resolvers: Iterable[Any]) -> None:
    """Raise `DefinitionError` if an object is not a resolver, that is, has no `resolve(name)`."""
    for resolver in resolvers:
        if isinstance(resolver, type) or not callable(getattr(resolver, "resolve", None)):
            raise DefinitionError(
                f"resolvers: {resolver!r} is not a resolver. Pass an object with `resolve(name)`, such as "
                "`StaticResolver(...)`."
            )


def check_resolved(resolver: Any, name: str, found: Any) -> Tool | None:
    """Return what a resolver found. Raise `DefinitionError` if it is neither a tool nor None."""
    if found is None or isinstance(found, Tool):
        return found
    if inspect.iscoroutine(found):
        found.close()
        raise DefinitionError(
            f"The resolver {resolver!r} is async; a toolbox asks it in calls, not for the name {name!r} among its "
            "sources. Pass the tool itself."
        )
    raise DefinitionError(
        f"The resolver {resolver!r} returned {found!r} for {name!r}. Return a Tool, such as "
        "`Tool.from_function(...)`, or None."
    )


def _resolve_or_raise(name: str, resolvers: Iterable[Resolver]) -> Tool:
    resolver_list = list(resolvers)
    if (tool := resolve_name(name, resolver_list)) is not None:
        return tool
    if not resolver_list:
        raise DefinitionError(
            f"{name!r} is a string, not a tool. Pass the tool itself, or a resolver that knows its name."
        )
    hint = suggest(name, {known for resolver in resolver_list for known in getattr(resolver, "names", ())})
    raise DefinitionError(
        f"No resolver knows a tool named {name!r}.{hint} Pass `resolvers=[...]` with one that does, or the tool itself."
    )


def matches_filter(tool: Tool, tags: Iterable[str], effects: Mapping[str, bool]) -> bool:
    """Return True if a tool has one of the tags (or none are given) and these effects."""
    wanted = frozenset(tags)
    return (not wanted or bool(wanted & tool.options.tags)) and all(
        bool(getattr(tool.options, name)) is value for name, value in effects.items()
    )


READ_RESULT: Final = "read_result"
FIND_TOOLS: Final = "find_tools"
"""Name of the tool that searches for tools; a chat with a large toolbox offers it."""
BUILT_IN_NAMES: Final = frozenset({READ_RESULT, FIND_TOOLS})
FINAL_ANSWER: Final = "final_answer"
"""Name of the tool that takes a typed answer; a tool of the application may have it, but not one of a server."""


def refuse_builtin_name(tool: Tool) -> None:
    """Raise `DefinitionError` if a tool takes the name of a built-in tool without `overrides_builtin`."""
    if tool.name.casefold() in BUILT_IN_NAMES and not tool.options.overrides_builtin:
        raise DefinitionError(
            f"{tool.origin}: {tool.name.casefold()!r} is the name of a built-in tool. "
            "Rename yours, or replace it with `overrides_builtin=True`."
        )
