"""Everything that a toolbox holds, as one frozen value. A view of a toolbox has a value with some fields replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import NoneType
from typing import TYPE_CHECKING, Any, Final

from toolmason._core.call.approval import Approver
from toolmason._core.call.call_policy import CallPolicy, Middleware
from toolmason._core.call.limits import RunState
from toolmason._core.call.long_results import ResultStore
from toolmason._core.catalog.catalog import (
    BUILT_IN_NAMES,
    FINAL_ANSWER,
    Catalog,
    CatalogItem,
    carry_policy,
    carry_tool_policy,
    get_source_problems,
    iter_source_items,
    matches_filter,
    refuse_builtin_name,
    rename_tool,
)
from toolmason._core.define.context import ToolContext
from toolmason._core.define.tool import Tool
from toolmason._core.remote.nested import RemoteView, add_server, find_connection, join_servers, make_remote_views
from toolmason._core.remote.protocol import RemoteSource, ServerRequestHandlers, ToolTransform
from toolmason._core.remote.servers import Remotes
from toolmason._core.toolbox.options import ToolboxPolicy, make_call_policy, make_result_store
from toolmason._core.values.policy import Limits, check_kinds
from toolmason._core.values.provider_tools import AnyNativeTool
from toolmason._text import suggest
from toolmason.errors import DefinitionError, DuplicateTool, PluginError, clip

if TYPE_CHECKING:  # 20 ms at start-up, needed only with these options
    from toolmason._core.catalog.augmented import ArgumentsCallback
    from toolmason._core.catalog.overridden import Override
    from toolmason._core.config.config import Config

_EFFECTS: Final = ("read_only", "destructive", "idempotent", "open_world")


def _keep_unchanged(tool: Tool) -> Tool | None:
    return tool


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class ToolboxState:
    """Everything that a toolbox holds. A view of it replaces some fields and shares the others."""

    policy: ToolboxPolicy
    calls: CallPolicy
    catalog: Catalog
    remotes: Remotes
    store: ResultStore
    """Store of long results."""
    transform: ToolTransform = _keep_unchanged
    """Converts each tool that a resolver or a server provides to the tool that the view exposes."""
    run: RunState | None = None
    """Run that a view belongs to."""
    problems: tuple[PluginError, ...] = ()
    closers: tuple[Callable[[], Awaitable[None]], ...] = ()
    """Functions that close the connections of sources which are not servers."""
    owns_store: bool = True
    owns_remotes: bool = True
    overrides: tuple[Override, ...] = ()
    """Overrides of the view, to report those whose tool never appears."""
    is_conditional: bool = False
    """True if a tool may exist for some contexts only."""
    uses_resolvers: bool = True
    """False for a view that hides tools: a resolver must not find them again."""
    carries_policy: bool = True
    """True if the tools carry the policy into other toolboxes."""

    @classmethod
    def from_policy(cls, policy: ToolboxPolicy, sources: Sequence[Any]) -> ToolboxState:
        """Return the state of a toolbox with the items of these sources, and with those that the settings name.

        Raises:
            DuplicateTool: two items have the same name; the message names both origins.
            DefinitionError: a source provides no tools; the message says why.
        """
        handlers = ServerRequestHandlers(
            policy.settings, policy.on_elicit, policy.on_sample, policy.roots, policy.context
        )
        remotes = Remotes(handlers, policy.on_conflict)
        empty = cls(policy, make_call_policy(policy), Catalog(), remotes, make_result_store(policy))
        state = empty.add(sources, replace=False)
        # What the application writes in code takes precedence over the settings.
        taken = {*(item.name for item in state.catalog.native), *(source.name for source in remotes.sources)}
        configured = [item for item in policy.configured if item.name not in taken]
        return state.add(configured, replace=False) if configured else state

    @property
    def result_store(self) -> ResultStore:
        """Store of long results: of the run, if there is one."""
        return self.store if self.run is None or self.run.store is None else self.run.store

    # --- connections ---------------------------------------------------------------------------

    async def connect(self) -> None:
        """Connect to the servers, unless their first use shall do so.

        Raises:
            RemoteError: a required server is unavailable.
            DuplicateTool: two tools share a name, and `on_conflict="error"`.
        """
        if not self.owns_remotes or not self.policy.eager:
            return
        try:
            await self.remotes.prepare()
            self.remotes.raise_on_conflict()
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Close the connections, and drop the stored results."""
        self.drop_results()
        if self.owns_store and self.run is not None and self.run.resources is not None:
            await self.run.resources.aclose(self.policy.settings.call_timeout)
        if self.owns_remotes and self.remotes:
            await self.remotes.aclose()
        for close in self.closers if self.owns_remotes else ():
            await close()

    @property
    def needs_loop(self) -> bool:
        """True if closing it is more than to drop the stored results."""
        return bool(self.remotes or self.closers) or (self.run is not None and self.run.resources is not None)

    def drop_results(self) -> None:
        """Drop the stored results, and cancel work in the background."""
        if self.owns_store:
            self.result_store.clear()
        if self.run is None and self.owns_remotes:
            for cancel in tuple(self.calls.state.background):
                cancel()

    # --- sources -------------------------------------------------------------------------------

    def add(self, sources: Sequence[Any], *, replace: bool) -> ToolboxState:
        """Return the state with the items of these sources, all or none.

        Raises:
            DuplicateTool: a name is taken and `replace` is not set; the message names both origins.
            DefinitionError: a source provides no tools; the message says why.
        """
        catalog = self.catalog.copy()
        servers = []
        problems, closers = self.problems, self.closers
        is_conditional = self.is_conditional
        for source in sources:
            for item in iter_source_items(source, self.policy.naming, self.policy.resolvers):
                # Check for Tool first, and once: an isinstance check costs as much as adding the tool.
                if isinstance(item, Tool):
                    catalog.add_tool(item, replace_same=replace)
                    refuse_builtin_name(item)
                    is_conditional = is_conditional or not isinstance(item.options.enabled, bool)
                elif not isinstance(item, CatalogItem) and isinstance(item, RemoteSource):
                    is_conditional = is_conditional or getattr(item, "is_conditional", False)
                    servers.append(item.__remote__(self.remotes.handlers))
                else:
                    catalog.add(item, replace_same=replace)
            problems = (*problems, *get_source_problems(source))
            if callable(close := getattr(source, "__aclose__", None)):
                closers = (*closers, close)
        for server in servers:
            add_server(self.remotes, server)
        if self.owns_remotes:
            self.remotes.names.local_tools = frozenset((*catalog.tools, *BUILT_IN_NAMES, FINAL_ANSWER))
            self.remotes.names.local_prompts = frozenset(catalog.prompts)
        return dataclasses.replace(
            self, catalog=catalog, problems=problems, closers=closers, is_conditional=is_conditional
        )

    def iter_items(self) -> Iterator[CatalogItem | AnyNativeTool | RemoteView]:
        """Yield the items as they appear in another toolbox, with the policy that they carry."""
        for item in self.catalog.iter_items():
            if self.carries_policy and isinstance(item, CatalogItem):
                yield carry_policy(item, self.calls)
            else:
                yield item
        yield from self.iter_servers()

    def iter_servers(self) -> Iterator[RemoteView]:
        """Yield the servers as they appear in another toolbox."""
        if not self.carries_policy:
            yield from self.make_views()
            return

        def carry(tool: Tool) -> Tool | None:
            visible = self.transform(tool)
            return None if visible is None else self.carry(visible)

        yield from make_remote_views(self.remotes, carry, self.calls, is_conditional=self.is_conditional)

    def make_views(self) -> Iterator[RemoteView]:
        """Yield the servers with the tools of this view, without its policy."""
        return make_remote_views(self.remotes, self.transform, is_conditional=self.is_conditional)

    def carry(self, tool: Tool) -> Tool:
        """Return a tool as it appears in another toolbox, with the policy that it carries."""
        return carry_tool_policy(tool, (*tool.policies, self.calls)) if self.carries_policy else tool

    # --- views ---------------------------------------------------------------------------------

    def derive(self, **changes: Any) -> ToolboxState:
        """Return the state of a view, which does not own the connections and the stored results."""
        return dataclasses.replace(self, **{"owns_remotes": False, "owns_store": False, **changes})

    def filter(self, keep: Callable[[Tool], bool], keep_native: Callable[[str], bool]) -> ToolboxState:
        """Return the state of a view with the tools that `keep` accepts."""
        transform = self._then(lambda tool: tool if keep(tool) else None)
        return self.derive(catalog=self.catalog.filter(keep, keep_native), transform=transform, uses_resolvers=False)

    def select(self, patterns: Sequence[str], tags: Iterable[str], effects: Mapping[str, bool | None]) -> ToolboxState:
        """Return the state of a view with the tools that match.

        Raises:
            DefinitionError: a pattern is not a string, or is a name that no tool has; or a keyword is unknown.
        """
        self._check_keywords("select", effects.keys() - _EFFECTS, (*_EFFECTS, "tags"))
        self._check_patterns("select", patterns)
        if not self.remotes:  # else accept any: a server may list the tool later
            self._check_names("select", patterns)
        wanted_tags = _read_tags(tags)
        wanted_effects = {name: value for name, value in effects.items() if value is not None}

        def matches_name(name: str) -> bool:
            return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)

        def keep(tool: Tool) -> bool:
            return matches_name(tool.name) and matches_filter(tool, wanted_tags, wanted_effects)

        # Native tools have neither tags nor effects.
        return self.filter(keep, lambda name: matches_name(name) and not wanted_tags and not wanted_effects)

    def exclude(self, patterns: Sequence[str], tags: Iterable[str], unknown: Iterable[str] = ()) -> ToolboxState:
        """Return the state of a view without the tools that match.

        Raises:
            DefinitionError: a pattern is not a string, or there are unknown keywords.
        """
        self._check_keywords("exclude", unknown, ("tags",))
        self._check_patterns("exclude", patterns)
        unwanted_tags = _read_tags(tags)

        def is_kept(name: str) -> bool:
            return not any(fnmatchcase(name, pattern) for pattern in patterns)

        return self.filter(lambda tool: is_kept(tool.name) and not (unwanted_tags & tool.options.tags), is_kept)

    def _check_patterns(self, view: str, patterns: Sequence[Any]) -> None:
        for pattern in patterns:
            if not isinstance(pattern, str):
                raise DefinitionError(
                    f"{view}({pattern!r}): a pattern is a string, such as 'get_*'. For other rules, pass the tools: "
                    "`Toolbox(*(tool for tool in box.tools if ...))`."
                )

    def _check_names(self, view: str, patterns: Sequence[str]) -> None:
        """Refuse a name without wildcards that no known tool has."""
        remote_tools = (self.transform(tool) for tool in self.remotes.tools.values())
        known = {*self.catalog.tools, *(item.name for item in self.catalog.native)}
        known |= {tool.name for tool in remote_tools if tool is not None}
        for name in patterns:
            if name and name not in known and not any(sign in name for sign in "*?["):
                hint = suggest(name, known) or " Print `box.tools` to list them."
                raise DefinitionError(f"{view}({name!r}): no such tool.{hint}")

    def _check_keywords(self, view: str, unknown: Iterable[str], known: Iterable[str]) -> None:
        for name in unknown:
            raise DefinitionError(f"{view}({name}=...): no such keyword.{suggest(name, known)}")

    def rename(self, rename: Callable[[str], str]) -> ToolboxState:
        """Return the state of a view with renamed tools."""
        catalog = self.catalog.rename(rename)
        for tool in catalog:
            refuse_builtin_name(tool)
        transform = self._then(lambda tool: rename_tool(tool, rename(tool.name)))
        return self.derive(catalog=catalog, transform=transform, uses_resolvers=False)

    def rename_by_map(self, names: Mapping[str, str]) -> ToolboxState:
        """Return the state of a view with some tools renamed.

        Raises:
            DefinitionError: no tool has an old name.
        """
        check_kinds("", {"names": names}, {"names": (Mapping,)})
        known = self.catalog.tools
        # With servers, accept any name: their tools may not be known yet.
        if (unknown := names.keys() - known.keys()) and not self.remotes:
            known_names = ", ".join(sorted(known)) or "none"
            raise DefinitionError(f"renamed({{{min(unknown)!r}: ...}}): no such tool. Available: {known_names}.")
        return self.rename(lambda name: names.get(name, name))

    def augment(self, model: Any, on_arguments: ArgumentsCallback | None, *, keep: bool) -> ToolboxState:
        """Return the state of a view whose tools have further arguments."""
        from toolmason._core.catalog.augmented import make_augmenter  # noqa: PLC0415 - 20 ms at start-up

        augment = make_augmenter(model, on_arguments, keep=keep)
        tools = {name: augment(tool) for name, tool in self.catalog.tools.items()}
        return self.derive(catalog=self.catalog.with_tools(tools), transform=self._then(augment))

    def override(self, name: str, keywords: Mapping[str, Any]) -> ToolboxState:
        """Return the state of a view in which one tool has other options, another definition or other arguments.

        Raises:
            DefinitionError: no tool has this name, or the changes do not fit it.
            DuplicateTool: another tool has the new name.
        """
        from toolmason._core.catalog.overridden import Override  # noqa: PLC0415 - 20 ms at start-up

        check_kinds("", {"name": name}, {"name": (str,)})
        change = Override(name, keywords)
        catalog = self.catalog.with_tools({})
        for tool in self.catalog.tools.values():
            changed = change.apply(tool) if tool.name == name else tool
            catalog.add_tool(changed)
            if changed is not tool:
                refuse_builtin_name(changed)
        for tool in self.remotes.tools.values():
            # The tools of a server that are known now can be checked now. The others are checked when they are listed.
            visible = self.transform(tool)
            if visible is not None and visible.name == name:
                change.apply(visible)
            elif visible is not None and visible.name == change.new_name:
                raise DuplicateTool(visible.name, visible.origin, f"override({name!r})")
        if not change.is_used and not self.policy.resolvers and self.remotes.is_known:
            self._check_names("override", [name])
        return self.derive(
            catalog=catalog,
            transform=self._then(change.transform),
            overrides=(*self.overrides, change),
            is_conditional=self.is_conditional or callable(change.options.get("enabled")),
            uses_resolvers=self.uses_resolvers and change.new_name == name,
        )

    def _then(self, second: ToolTransform) -> ToolTransform:
        first = self.transform

        def transform(tool: Tool) -> Tool | None:
            visible = first(tool)
            return None if visible is None else second(visible)

        return transform

    def join(self, other: ToolboxState) -> ToolboxState:
        """Return the state of a view with the items of both, under this policy. Items of `other` keep its policy."""
        shares_policy = other.calls.state is self.calls.state
        catalog = self.catalog.copy()
        for item in other.catalog.iter_items() if shares_policy else other.iter_items():
            if not isinstance(item, RemoteView):
                catalog.add(item)
        own = self.remotes
        views = [*(other.make_views() if shares_policy else other.iter_servers())]
        shared = set(map(find_connection, own.sources)) & set(map(find_connection, views))
        if shared or self.transform is not _keep_unchanged:
            # What this view hides or renames is a matter of its own servers.
            own = join_servers(Remotes(own.handlers, own.on_conflict), self.make_views(), own)
        joined = join_servers(own, views, other.remotes)
        return self.derive(
            catalog=catalog,
            remotes=joined,
            transform=_keep_unchanged,
            overrides=(*self.overrides, *other.overrides),
            is_conditional=self.is_conditional or other.is_conditional,
        )

    def for_identity(self, context: ToolContext[Any] | None) -> ToolboxState:
        """Return the state of a view with its own, still empty server lists, which no other caller can clear."""
        return self.derive(remotes=self.remotes.for_identity(self.policy.context.merge(context)))

    def add_middleware(self, middleware: Middleware) -> None:
        """Wrap every call in middleware, inside of that which is there.

        Raises:
            DefinitionError: it is not a function.
        """
        if not callable(middleware):
            raise DefinitionError(
                f"{middleware!r} is not middleware. Pass an async function that takes (call, call_next)."
            )
        self.calls.state.middleware.append(middleware)

    def start_run(self, limits: Limits | None) -> ToolboxState:
        """Return the state of a view for one run."""
        given: Any = limits
        if not isinstance(given, Limits | NoneType):
            raise DefinitionError(f"limits={clip(repr(given))}: must be Limits(...).")
        run = RunState(limits or self.policy.limits, make_result_store(self.policy))
        return self.derive(run=run, owns_store=True)

    def with_policy(
        self,
        context: ToolContext[Any] | None,
        approver: Approver | None,
        config: Config | Mapping[str, Any] | None,
    ) -> ToolboxState:
        """Return the state of a view with another context, approver or configuration."""
        policy, remotes = self.policy, self.remotes
        if config is not None:
            policy = policy.with_config(config, None, overrides=True)
        if context is not None:
            policy = dataclasses.replace(policy, context=policy.context.merge(context))
            remotes = remotes.for_identity(policy.context)
        changed: dict[str, Any] = {"context": policy.context}
        if approver is not None:
            changed["approver"] = approver
        return self.derive(policy=policy, calls=dataclasses.replace(self.calls, **changed), remotes=remotes)

    def without_policy(self) -> ToolboxState:
        """Return the state of a view with the default policy, which its tools do not carry."""
        policy = ToolboxPolicy(settings=self.policy.settings, resolvers=self.policy.resolvers)
        return self.derive(policy=policy, calls=make_call_policy(policy), carries_policy=False)


def _read_tags(tags: Any) -> frozenset[str]:
    """Return the value of `tags=` as a set.

    Raises:
        DefinitionError: it is neither a string nor a list of strings.
    """
    given = [tags] if isinstance(tags, str) else [*tags] if isinstance(tags, Iterable) else [tags]
    if not all(isinstance(tag, str) for tag in given):
        raise DefinitionError(f"tags={clip(repr(tags))}: must be a list of strings.")
    return frozenset(given)
