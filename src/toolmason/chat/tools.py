"""Build the toolbox of a run from the options `tools=` and `add_tools=`."""

from __future__ import annotations

import glob
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolmason._core.call.approval import Approver
from toolmason._core.call.call_policy import get_chain, merge_context
from toolmason._core.config.config import Config
from toolmason._core.define.context import ToolContext
from toolmason._core.define.signature import ContextInjector
from toolmason._core.define.tool import LazyTool, RenamedTool, Tool, compile_tool
from toolmason._core.toolbox.lookup import ToolLookup
from toolmason._core.toolbox.options import make_native_tools
from toolmason._core.toolbox.state import ToolboxState
from toolmason._core.toolbox.toolbox import RunToolbox, Toolbox, follow, get_state
from toolmason._core.values.definition import ToolDefinition
from toolmason.errors import ConfigError, DefinitionError, ToolCallError, UnknownTool

_log = logging.getLogger("toolmason")


def make_toolbox(tools: Any, approver: Approver | None, config: Config | Mapping[str, Any] | None) -> Toolbox:
    """Return the toolbox of a chat."""
    if not isinstance(tools, Toolbox):
        return Toolbox(*_to_sequence(tools), approver=approver, config=config)
    if get_state(tools).calls.approver is not None:
        approver = None  # the toolbox decides about its own tools
    if config is None:
        return tools if approver is None else tools.with_policy(approver=approver)
    # Native tools of the toolbox override those from the settings, which apply to every chat.
    known_names = {item.name for item in tools.native}
    configured = make_native_tools(config if isinstance(config, Config) else Config(config))
    added = [item for item in configured if item.name not in known_names]
    box = tools.with_policy(approver=approver, config=config)
    return box | Toolbox(*added) if added else box


def _is_lazy(tool: Tool) -> bool:
    while isinstance(tool, RenamedTool):
        tool = tool.tool
    return isinstance(tool, LazyTool)


def check_deps(box: Toolbox, context: ToolContext[Any] | None, *, may_follow: bool = False) -> bool:
    """Refuse a context without the `deps` that tools require. Return True if a tool requires some.

    Tools that are not loaded yet or not always enabled are not checked. `may_follow`: a request may still bring them.

    Raises:
        ConfigError: they are missing, or of another class; names the tool, the parameter and the fix.
    """
    given, own, is_needed = None if context is None else context.deps, get_state(box).calls, False
    for tool in get_state(box).catalog.tools.values():
        if _is_lazy(tool) or tool.options.enabled is not True:
            continue
        for parameter in compile_tool(tool).parameters:
            if not isinstance(injector := parameter.injector, ContextInjector):
                continue
            is_needed = True
            deps = merge_context(get_chain(tool.policies, own)).deps if given is None else given
            if not (deps is None and may_follow) and (problem := injector.find_problem(deps)):
                raise ConfigError(
                    f"{tool.name}: Parameter {injector.name!r} is a context with deps of type {injector.type_name}, "
                    f"{problem}"
                )
    return is_needed


class RequestTools:
    """Tools of one request. They run under the policy of the chat's toolbox, as if they had been added to it.

    A name is that of a tool in the chat's toolbox, or one that its resolvers know.
    """

    def __init__(self, box: Toolbox, tools: Any = None, added: Any = None) -> None:
        self.owned_toolboxes: list[Toolbox] = []
        """Toolboxes created for this request, to be closed with it."""
        self._chat_toolbox = box
        self._context: ToolContext[Any] | None = None
        self._is_selection = tools is not None
        self._names: list[str] = []
        self._joined: list[Toolbox] = []
        for given in (tools, added):
            if given is None:
                continue
            items = [given] if isinstance(given, Toolbox) else _to_sequence(given)
            self._names += [item for item in items if isinstance(item, str)]
            if sources := [item for item in items if not isinstance(item, str)]:
                self._joined.append(self._wrap_sources(sources))
        self.box = box
        self._version: list[tuple[ToolboxState, int]] = []
        self.prepared: tuple[Tool, ...] | None = None
        """Tools as they were prepared, if there are servers: a run shares their lists, which a call may change."""
        self.is_conditional = False
        """True if a tool may be enabled for some contexts only."""

    def _wrap_sources(self, sources: Sequence[Any]) -> Toolbox:
        if len(sources) == 1 and isinstance(sources[0], Toolbox):
            return sources[0]
        self.owned_toolboxes.append(Toolbox(*sources))
        return self.owned_toolboxes[-1]

    def _combine(self) -> Toolbox:
        box = self._chat_toolbox
        if self._is_selection:
            # A server may have a tool that is not listed yet; the resolvers may know the others.
            known = [name for name in self._names if name in box or get_state(box).remotes]
            # An empty pattern matches no tool.
            box = box.select(*(map(glob.escape, known) if known else ("",)))
        for other in self._joined:
            # A provider-run tool of the request replaces that of the chat, which may come from the settings.
            taken = {item.name for item in box.native}.intersection(item.name for item in other.native)
            box = (box.exclude(*map(glob.escape, taken)) if taken else box) | other
        return box

    async def prepare(self, context: ToolContext[Any] | None) -> Toolbox:
        """Return the toolbox, with the server tools available to the context's identity.

        Raises:
            ConfigError: neither the chat's toolbox nor its resolvers have a tool with a given name.
        """
        self._context = context
        self.box = self._combine() if self._is_selection or self._joined else self._chat_toolbox
        state = get_state(self.box)
        if state.remotes:
            if context is not None:
                self.box = self.box.with_policy(context=context)
            await self.box.list()
            self.prepared = tuple(self.box)
        else:
            self.prepared = None
        self.is_conditional = state.is_conditional
        for name in self._names:
            if name not in self.box:
                self.join(Toolbox(await self._resolve(name)))
        is_plain = self.box is self._chat_toolbox
        self._version = [(state, state.remotes.version)] if is_plain else self._get_version()
        return self.box

    async def _resolve(self, name: str) -> Tool:
        state = get_state(self._chat_toolbox)
        # The application names the tool, so the rule for names that a model makes up does not apply.
        policy = replace(state.policy, resolution_fallback=True)
        route = await ToolLookup(replace(state, policy=policy), {}).resolve_route(name)
        if isinstance(route, UnknownTool):
            known_names = ", ".join(sorted(each.name for each in self._chat_toolbox)[:20]) or "none"
            raise ConfigError(f"tools=[{name!r}]: no such tool. Available: {known_names}.")
        if isinstance(route, ToolCallError):
            raise route
        return route.tool

    def join(self, box: Toolbox) -> Toolbox:
        """Add the tools of a toolbox, and return all of them."""
        self._joined.append(box)
        self.box = self.box | box
        self.prepared = None if self.prepared is None else (*self.prepared, *box)
        self.is_conditional = get_state(self.box).is_conditional
        return self.box

    async def find_disabled(self, context: ToolContext[Any] | None) -> frozenset[str]:
        """Return the names of the tools that are not enabled for a context."""
        return await ToolLookup(get_state(self.box), {}).find_disabled(context) if self.is_conditional else frozenset()

    def has_changed(self) -> bool:
        """Return True if a toolbox or the list of a server has changed since the tools were prepared."""
        state = get_state(self._chat_toolbox)
        if self._version[0] != (state, state.remotes.version):
            return True
        return self.box is not self._chat_toolbox and self._version != self._get_version()

    def _get_version(self) -> list[tuple[ToolboxState, int]]:
        states = map(get_state, (self._chat_toolbox, *self._joined, self.box))
        return [(state, state.remotes.version) for state in states]

    async def update(self, run_box: RunToolbox, offered: tuple[ToolDefinition, ...]) -> tuple[ToolDefinition, ...]:
        """Give a run the tools of now, and return what to offer next. If they cannot be listed, it keeps its own."""
        if self.prepared is not None:
            await get_state(self.box).remotes.confirm()
        if not self.has_changed():
            return offered
        before = {tool.name: tool.definition for tool in (run_box if self.prepared is None else self.prepared)}
        try:
            follow(run_box, await self.prepare(self._context))
        except (ToolCallError, DefinitionError, ConfigError) as error:
            self._version = self._get_version()
            _log.warning("the tools of a run changed, but cannot be listed: %s", error)
        return merge_definitions(offered, before, {tool.name: tool.definition for tool in run_box})

    async def aclose(self) -> None:
        """Close the toolboxes created for this request."""
        for box in self.owned_toolboxes:
            await box.aclose()


def merge_definitions(
    tools: Iterable[ToolDefinition], before: Mapping[str, ToolDefinition], now: Mapping[str, ToolDefinition]
) -> tuple[ToolDefinition, ...]:
    """Return the tools of a request after a change of the toolbox. Tools that an advisor added or removed stay so."""
    kept = {tool.name: now.get(tool.name, tool) for tool in tools if tool.name in now or tool.name not in before}
    added = {name: tool for name, tool in now.items() if name not in before}
    return tuple(sorted({**kept, **added}.values(), key=lambda tool: tool.name))


def _to_sequence(tools: Any) -> Sequence[Any]:
    if tools is None:
        return ()
    return tools if isinstance(tools, list | tuple) else [tools]
