"""Create views of a toolbox: filtered, renamed, merged, or bound to a run or an identity.

Views share tools, policy and connections with their toolbox.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from typing_extensions import TypedDict, Unpack

from toolmason._core.call.approval import Approver
from toolmason._core.call.limits import RunState
from toolmason._core.call.shared_state import SharedCallState
from toolmason._core.catalog.catalog import Catalog, matches_filter, refuse_builtin_name, rename_tool
from toolmason._core.define.context import ToolContext, make_context
from toolmason._core.define.tool import Tool
from toolmason._core.remote.protocol import ToolTransform
from toolmason._core.remote.servers import Remotes
from toolmason._core.toolbox.options import ToolboxPolicy
from toolmason._core.values.policy import Limits
from toolmason.errors import DefinitionError

if TYPE_CHECKING:  # 20 ms at start-up, needed only for these methods
    from toolmason._core.catalog.augmented import ArgumentsCallback
    from toolmason._core.config.config import Config


class EffectFilters(TypedDict, total=False):
    """Effects to filter by."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool


@dataclass(frozen=True, slots=True)
class ViewChanges:
    """Differences of a view from its toolbox."""

    without_resolvers: bool = False
    """True if the view hides tools, so that a resolver must not find them again."""
    run_state: RunState | None = None
    """State of the run that the view belongs to; such a view stores its results separately."""
    transform: ToolTransform | None = None
    """Function to apply to each tool that a resolver or a server provides."""
    remotes: Remotes | None = None


NO_CHANGES: Final = ViewChanges()


class Views(ABC):
    """Methods of a toolbox that return views."""

    _catalog: Catalog
    _remotes: Remotes
    _run_state: RunState | None
    _shared: SharedCallState
    _policy: ToolboxPolicy

    @abstractmethod
    def _derive(self, catalog: Catalog, changes: ViewChanges = NO_CHANGES) -> Self:
        """Return a toolbox over another catalog, with everything else shared except the changes."""

    def select(self, *patterns: str, tags: Iterable[str] = (), **effects: Unpack[EffectFilters]) -> Self:
        """Return a view with the tools that match the tags, the effects and at least one pattern, if any are given.

        Patterns use shell wildcards: `get_*`.
        """
        wanted_tags = frozenset([tags] if isinstance(tags, str) else tags)
        wanted_effects = {name: bool(value) for name, value in effects.items()}

        def keep(tool: Tool) -> bool:
            return matches_name(tool.name) and matches_filter(tool, wanted_tags, wanted_effects)

        def matches_name(name: str) -> bool:
            return not patterns or any(fnmatchcase(name, p) for p in patterns)

        # Native tools have neither tags nor effects.
        selected = self._catalog.filter(
            keep, lambda name: matches_name(name) and not wanted_tags and not wanted_effects
        )
        return self._derive(selected, ViewChanges(without_resolvers=True, transform=_make_filter(keep)))

    def exclude(self, *patterns: str, tags: Iterable[str] = ()) -> Self:
        """Return a view without the tools that match a pattern or have one of the tags."""
        unwanted_tags = frozenset([tags] if isinstance(tags, str) else tags)

        def keep(tool: Tool) -> bool:
            return is_kept(tool.name) and not (unwanted_tags & tool.options.tags)

        def is_kept(name: str) -> bool:
            return not any(fnmatchcase(name, p) for p in patterns)

        changes = ViewChanges(without_resolvers=True, transform=_make_filter(keep))
        return self._derive(self._catalog.filter(keep, is_kept), changes)

    def prefixed(self, prefix: str) -> Self:
        """Return a view in which every tool name starts with `prefix`."""
        return self._rename_tools(lambda name: f"{prefix}{name}")

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return a view with some tools renamed: `{"old": "new"}`.

        Raises:
            DefinitionError: no tool has an old name.
        """
        # With servers, accept any name: their tools may not be known yet.
        if (unknown := names.keys() - self._catalog.tools.keys()) and not self._remotes:
            known_names = ", ".join(sorted(self._catalog.tools)) or "none"
            raise DefinitionError(f"renamed({{{min(unknown)!r}: ...}}): no such tool. Available: {known_names}.")
        return self._rename_tools(lambda name: names.get(name, name))

    def _rename_tools(self, rename: Callable[[str], str]) -> Self:
        renamed_catalog = self._catalog.rename(rename)
        for tool in renamed_catalog:
            refuse_builtin_name(tool)
        transform: ToolTransform = lambda tool: rename_tool(tool, rename(tool.name))  # noqa: E731 - typed
        return self._derive(renamed_catalog, ViewChanges(without_resolvers=True, transform=transform))

    def augmented(self, model: Any, *, on_arguments: ArgumentsCallback | None = None, keep: bool = False) -> Self:
        """Return a view in which the model also fills the fields of `model` with every call.

        `on_arguments` receives an `AugmentedCall` before the tool runs. The tool receives only its own arguments,
        unless `keep` is set.

        Raises:
            DefinitionError: a field has the name of a parameter.
        """
        from toolmason._core.catalog.augmented import make_augmenter  # noqa: PLC0415 - as above

        augment = make_augmenter(model, on_arguments, keep=keep)
        tools = {name: augment(tool) for name, tool in self._catalog.tools.items()}
        return self._derive(self._catalog.with_tools(tools), ViewChanges(transform=augment))

    @property
    def limits(self) -> Limits:
        """Limits of a run that sets none: `limits.*` of the configuration, or else the defaults."""
        return self._policy.limits

    def run(self, limits: Limits | None = None) -> Self:
        """Return a view for one run: it counts calls and detects repeats, and `cancel()` stops running calls.

        Without `limits`, the toolbox's limits apply. Use the view as a context manager; the full text of truncated
        results is dropped when it exits.
        """
        return self._derive(self._catalog, ViewChanges(run_state=RunState(limits or self._policy.limits)))

    def approved_by(self, approver: Approver) -> Self:
        """Return a view with another approver. Rules, middleware, limits and the key stay the same."""
        view = self._derive(self._catalog)
        view._shared = replace(self._shared, approver=approver)  # noqa: SLF001 - same class
        return view

    def configured(self, config: Config | Mapping[str, Any]) -> Self:
        """Return a view whose tools receive this configuration. The policy stays the same."""
        view = self._derive(self._catalog)
        from toolmason._core.config.config import Config  # noqa: PLC0415 - as above

        parsed = config if isinstance(config, Config) else Config(config)
        project_dir = None if parsed.project_dir is None else Path(parsed.project_dir).absolute()
        context = self._policy.context.with_config(parsed, project_dir)
        limits = parsed.limits or self._policy.limits
        view._policy = replace(self._policy, context=context, limits=limits)  # noqa: SLF001 - as above
        return view

    def for_identity(self, context: ToolContext[Any] | Mapping[str, Any]) -> Self:
        """Return a view for the identity in the context: servers are listed and called on its behalf.

        Pass the view to a chat, or list it, if a server with `auth=` offers different tools to each user.
        """
        merged = self._policy.context.merge(make_context(context))
        view = self._derive(self._catalog, ViewChanges(remotes=self._remotes.for_identity(merged)))
        view._policy = replace(self._policy, context=merged)  # noqa: SLF001 - as above
        return view

    def _for_identity(self, context: ToolContext[Any] | None) -> Self:
        """Return a view with its own, still empty lists, which no other caller can clear."""
        merged = self._policy.context.merge(context)
        return self._derive(self._catalog, ViewChanges(remotes=self._remotes.for_identity(merged)))

    async def _refresh_for_identity(self, context: ToolContext[Any] | None) -> Self:
        """Return a view with current lists for the context's identity, to look up a name they did not contain."""
        view = self._for_identity(context)
        await view._remotes.prepare(revalidate=True)  # noqa: SLF001 - as above
        return view

    def __or__(self, other: Views) -> Self:
        """Return a toolbox with the tools of both, under this one's policy."""
        changes = ViewChanges(remotes=self._remotes.merge(other._remotes))
        return self._derive(self._catalog.merge(other._catalog), changes)


def _make_filter(keep: Callable[[Tool], bool]) -> ToolTransform:
    return lambda tool: tool if keep(tool) else None
