"""Build the toolbox of a run from the options `tools=` and `add_tools=`."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from typing import Any

from toolmason._core.call.approval import Approver
from toolmason._core.config.config import Config
from toolmason._core.define.context import ToolContext
from toolmason._core.toolbox.exchange import ModelRequest
from toolmason._core.toolbox.options import make_native_tools
from toolmason._core.toolbox.toolbox import Toolbox, get_state
from toolmason.errors import ConfigError
from toolmason.models.protocol import Model
from toolmason.providers.codec import Codec


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


class RequestTools:
    """Tools of one request. They run under the policy of the chat's toolbox, as if they had been added to it."""

    def __init__(self, box: Toolbox, tools: Any = None, added: Any = None) -> None:
        self.owned_toolboxes: list[Toolbox] = []
        """Toolboxes created for this request, to be closed with it."""
        self._chat_toolbox = self.box = box
        self._names: list[str] = []
        if tools is not None:
            self._names = [item for item in _to_sequence(tools) if isinstance(item, str)]
            # An empty pattern matches no tool.
            self.box = box.select(*(map(glob.escape, self._names) if self._names else ("",)))
            if sources := [item for item in _to_sequence(tools) if not isinstance(item, str)]:
                self.box = self.box | self._wrap_sources(sources)
        if added is not None:
            self.box = self.box | self._wrap_sources(added)

    def _wrap_sources(self, sources: Any) -> Toolbox:
        if isinstance(sources, Toolbox):
            return sources
        if len(sequence := _to_sequence(sources)) == 1 and isinstance(sequence[0], Toolbox):
            return sequence[0]
        self.owned_toolboxes.append(Toolbox(*sequence))
        return self.owned_toolboxes[-1]

    async def prepare(self, context: ToolContext[Any] | None) -> Toolbox:
        """Return the toolbox, with the server tools available to the context's identity.

        Raises:
            ConfigError: the chat has no tool with a given name.
        """
        if get_state(self.box).remotes:
            if context is not None:
                self.box = self.box.with_policy(context=context)
            await self.box.list()
        if self._names and (missing := [name for name in self._names if name not in self.box]):
            known_names = ", ".join(sorted(each.name for each in self._chat_toolbox)[:20]) or "none"
            raise ConfigError(f"tools=[{missing[0]!r}]: no such tool. Available: {known_names}.")
        return self.box

    async def aclose(self) -> None:
        """Close the toolboxes created for this request."""
        for box in self.owned_toolboxes:
            await box.aclose()


def refuse_unsupported_native(model: Model, box: Toolbox) -> None:
    """Reject native tools that the provider does not support, before anything is sent.

    Raises:
        DefinitionError: the provider does not support a tool; the message names the alternative.
    """
    codec = getattr(model, "codec", None)
    if box.native and isinstance(codec, Codec):
        codec.encode(ModelRequest("?", box.native), "?")


def _to_sequence(tools: Any) -> Sequence[Any]:
    if tools is None:
        return ()
    return tools if isinstance(tools, list | tuple) else [tools]
