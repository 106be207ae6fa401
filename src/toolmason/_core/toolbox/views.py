"""Other looks at the same tools: some of them, under other names, together with others.

Lives here: the views of a toolbox. They share its tools, policy and connections, and copy nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import TypedDict, Unpack

from toolmason._core.call.approval import Approver
from toolmason._core.call.limits import RunState
from toolmason._core.call.shared_state import Office
from toolmason._core.catalog.catalog import Catalog, as_named, matches, refuse_builtin_name
from toolmason._core.define.context import ToolContext, context_from
from toolmason._core.define.tool import Tool
from toolmason._core.remote.protocol import View
from toolmason._core.remote.servers import Remotes
from toolmason._core.toolbox.options import BoxPolicy
from toolmason._core.values.policy import Limits
from toolmason.errors import DefinitionError

if TYPE_CHECKING:  # 20 ms at start-up, for programs that use them
    from toolmason._core.catalog.augmented import OnArguments
    from toolmason._core.config.config import Config


class EffectWords(TypedDict, total=False):
    """Effects to select by."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool


class Views(ABC):
    """What can be seen of a toolbox."""

    _catalog: Catalog
    _remotes: Remotes
    _run: RunState | None
    _office: Office
    _policy: BoxPolicy

    @abstractmethod
    def _with(
        self,
        catalog: Catalog,
        *,
        closed: bool = False,
        run: RunState | None = None,
        view: View | None = None,
        remotes: Remotes | None = None,
    ) -> Self:
        """Return a toolbox over another catalog, with everything else shared.

        A closed one asks no resolver; one for a run keeps the results of that run by itself; a view is what is
        made of tools that a resolver finds or a server offers.
        """

    def select(self, *patterns: str, tags: Iterable[str] = (), **effects: Unpack[EffectWords]) -> Self:
        """Return a view with the tools that match a pattern (any, where none are given), tags and effects.

        Patterns are those of file names: `get_*`.
        """
        wanted = frozenset([tags] if isinstance(tags, str) else tags)
        given = {name: bool(value) for name, value in effects.items()}

        def keep(tool: Tool) -> bool:
            return named(tool.name) and matches(tool, wanted, given)

        def named(name: str) -> bool:
            return not patterns or any(fnmatchcase(name, p) for p in patterns)

        # What a provider runs carries no tags and says no effects.
        picked = self._catalog.where(keep, lambda name: named(name) and not wanted and not given)
        return self._with(picked, closed=True, view=_kept(keep))

    def exclude(self, *patterns: str, tags: Iterable[str] = ()) -> Self:
        """Return a view without the tools that match a pattern or carry one of the tags."""
        unwanted = frozenset([tags] if isinstance(tags, str) else tags)

        def keep(tool: Tool) -> bool:
            return other(tool.name) and not (unwanted & tool.options.tags)

        def other(name: str) -> bool:
            return not any(fnmatchcase(name, p) for p in patterns)

        return self._with(self._catalog.where(keep, other), closed=True, view=_kept(keep))

    def prefixed(self, prefix: str) -> Self:
        """Return a view in which every tool's name begins with `prefix`."""
        return self._renamed(lambda name: f"{prefix}{name}")

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return a view with some tools under other names: `{"old": "new"}`.

        Raises:
            DefinitionError: there is no tool of an old name.
        """
        # What a server offers may not be known yet, so with servers a name may be anything.
        if (unknown := names.keys() - self._catalog.tools.keys()) and not self._remotes:
            there = ", ".join(sorted(self._catalog.tools)) or "none"
            raise DefinitionError(f"renamed({{{min(unknown)!r}: ...}}): there is no such tool. There are: {there}.")
        return self._renamed(lambda name: names.get(name, name))

    def _renamed(self, rename: Callable[[str], str]) -> Self:
        renamed = self._catalog.named(rename)
        for tool in renamed:
            refuse_builtin_name(tool)
        return self._with(renamed, closed=True, view=lambda tool: as_named(tool, rename(tool.name)))

    def augmented(self, model: Any, *, on_arguments: OnArguments | None = None, keep: bool = False) -> Self:
        """Return a view in which the model also fills the fields of `model` with every call.

        `on_arguments` gets an `AugmentedCall` before the tool runs; the tool gets only its own arguments,
        unless `keep` is set.

        Raises:
            DefinitionError: a field has the name of a parameter.
        """
        from toolmason._core.catalog.augmented import augmenter  # noqa: PLC0415 - as above

        augment = augmenter(model, on_arguments, keep=keep)
        tools = {name: augment(tool) for name, tool in self._catalog.tools.items()}
        return self._with(self._catalog.over(tools), view=augment)

    def run(self, limits: Limits | None = None) -> Self:
        """Return a view for one run: calls are counted, repeats noticed, and `cancel()` stops what is running.

        Use it as a context manager; results that were cut and kept are gone when it ends.
        """
        return self._with(self._catalog, run=RunState(limits or Limits()))

    def approved_by(self, approver: Approver) -> Self:
        """Return a view about whose calls someone else decides; rules, hooks, limits and the key stay."""
        twin = self._with(self._catalog)
        twin._office = replace(self._office, approver=approver)  # noqa: SLF001 - one of ourselves
        return twin

    def configured(self, config: Config | Mapping[str, Any]) -> Self:
        """Return a view whose tools are given this configuration; the policy stays."""
        twin = self._with(self._catalog)
        from toolmason._core.config.config import Config  # noqa: PLC0415 - as above

        found = config if isinstance(config, Config) else Config(config)
        folder = None if found.project_dir is None else Path(found.project_dir).absolute()
        context = self._policy.context.within(found, folder)
        twin._policy = replace(self._policy, context=context)  # noqa: SLF001 - as above
        return twin

    def seen_by(self, context: ToolContext[Any] | Mapping[str, Any]) -> Self:
        """Return a view for whoever the context speaks of: its servers list, and are called, in that name.

        Give it to a chat, or list it, where a server with `auth=` offers something else to each of its users.
        """
        whole = self._policy.context.merged(context_from(context))
        twin = self._with(self._catalog, remotes=self._remotes.seen_by(whole))
        twin._policy = replace(self._policy, context=whole)  # noqa: SLF001 - as above
        return twin

    def _seen(self, context: ToolContext[Any] | None) -> Self:
        """Return a view whose lists nobody else clears; they are still to be prepared."""
        whole = self._policy.context.merged(context)
        return self._with(self._catalog, remotes=self._remotes.seen_by(whole))

    async def _listed_for(self, context: ToolContext[Any] | None) -> Self:
        """Return a view with the lists as they are now, for whoever the context speaks of; a name was not in them."""
        twin = self._seen(context)
        await twin._remotes.prepare(doubtful=True)  # noqa: SLF001 - as above
        return twin

    def __or__(self, other: Views) -> Self:
        """Return a toolbox with the tools of both, under this one's policy."""
        return self._with(self._catalog.joined(other._catalog), remotes=self._remotes.joined(other._remotes))


def _kept(keep: Callable[[Tool], bool]) -> View:
    return lambda tool: tool if keep(tool) else None
