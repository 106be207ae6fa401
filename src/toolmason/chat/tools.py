"""What `tools=` and `add_tools=` say → the toolbox of a run.

Lives here: names, sources and toolboxes put together, and which of them the run has to close. Not here: the run.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from typing import Any

from toolmason._core.call.approval import Approver
from toolmason._core.config.config import Config
from toolmason._core.define.context import ToolContext
from toolmason._core.toolbox.exchange import ModelRequest
from toolmason._core.toolbox.options import native_from
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.errors import ConfigError
from toolmason.models.protocol import Model
from toolmason.providers.codec import Codec


def box_of(tools: Any, approver: Approver | None, config: Config | Mapping[str, Any] | None) -> Toolbox:
    """Return the toolbox of a chat."""
    if not isinstance(tools, Toolbox):
        return Toolbox(*_listed(tools), approver=approver, config=config)
    box = tools if approver is None else tools.approved_by(approver)
    if config is None:
        return box
    # What the settings switch on holds for every chat; what the toolbox says of the same tool is said for this one.
    known = {item.name for item in box.native}
    said = native_from(config if isinstance(config, Config) else Config(config))
    more = [item for item in said if item.name not in known]
    box = box.configured(config)
    return box | Toolbox(*more) if more else box


class Given:
    """What one request says of its tools."""

    def __init__(self, box: Toolbox, own: tuple[Any, Any], tools: Any = None, more: Any = None) -> None:
        self.made: list[Toolbox] = []
        """Toolboxes that were made for this request alone, and end with it."""
        self._box, self._own, self._names = box, own, [item for item in _listed(tools) if isinstance(item, str)]
        self.box = self._chosen(tools)
        if more is not None:
            self.box = self.box | self._beside(more)

    def _chosen(self, tools: Any) -> Toolbox:
        if tools is None:
            return self._box
        sources = tools if isinstance(tools, Toolbox) else [s for s in _listed(tools) if not isinstance(s, str)]
        named = self._box.select(*map(glob.escape, self._names)) if self._names else None
        if named is None:
            box = box_of(sources, *self._own)
            self.made += [] if isinstance(sources, Toolbox) else [box]
            return box
        return named | self._beside(sources) if sources else named

    def _beside(self, sources: Any) -> Toolbox:
        if isinstance(sources, Toolbox):
            return sources
        self.made.append(Toolbox(*_listed(sources)))
        return self.made[-1]

    async def ready(self, context: ToolContext[Any] | None) -> Toolbox:
        """Return the toolbox, with what servers offer whoever the context speaks of.

        Raises:
            ConfigError: a name is none of the chat's tools.
        """
        if context is not None and self.box.servers:
            self.box = self.box.seen_by(context)
        await self.box.list()
        if missing := [name for name in self._names if name not in self.box]:
            there = ", ".join(sorted(each.name for each in self._box)[:20]) or "none"
            raise ConfigError(f"tools=[{missing[0]!r}]: there is no such tool. There are: {there}.")
        return self.box

    async def aclose(self) -> None:
        """Close what was made for this request."""
        for box in self.made:
            await box.aclose()


def refuse_natives(model: Model, box: Toolbox) -> None:
    """Refuse tools that a provider should run and this one cannot, before anything is sent.

    Raises:
        DefinitionError: the provider has no such tool; says what to do.
    """
    codec = getattr(model, "codec", None)
    if box.native and isinstance(codec, Codec):
        codec.encode(ModelRequest("?", box.native), "?")


def _listed(tools: Any) -> Sequence[Any]:
    if tools is None:
        return ()
    return tools if isinstance(tools, list | tuple) else [tools]
