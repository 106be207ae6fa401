"""Decide which tools of a server are trusted: by its options, its definitions so far, and the lock file."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from toolmason._core.load.json_forms import get_effects
from toolmason.build.compare.listing import Listing
from toolmason.errors import ConfigError
from toolmason.mcp_client.calls.remote_tools import RemoteTool
from toolmason.mcp_client.calls.result_marks import UNTRUSTED_META_KEY
from toolmason.mcp_client.lists.pins import format_approve_command, format_changes, is_approved, read_approved
from toolmason.mcp_client.server_options import ServerSpec

_log = logging.getLogger("toolmason.mcp")
MAX_SEEN: Final = 10_000
"""Number of definitions to remember. Forgetting one would let a server change it unseen."""


class SeenTools:
    """Definitions of a server's tools for one identity, since the program started."""

    def __init__(self) -> None:
        self.first: dict[str, Listing] = {}
        self._last: dict[str, Listing] = {}

    def judge(self, tools: Sequence[RemoteTool], server: ServerSpec) -> None:
        """Mark the tools that are not trusted, and log new changes of definitions."""
        reasons = [(tool, self._find_reason(tool, server)) for tool in tools]
        suspects = [(tool, reason) for tool, reason in reasons if reason]
        if not suspects or server.pin == "lock":  # a pinned server offers only definitions of the lock file
            return
        approved = _read_approved(server)
        for tool, reason in suspects:
            listing = approved.get(tool.name)
            if listing is None or not is_approved(tool, listing):
                tool.distrust = reason

    def _find_reason(self, tool: RemoteTool, server: ServerSpec) -> str:
        """Return why a tool is not trusted unless it is in the lock file, or an empty string."""
        if tool.name not in self.first and len(self.first) >= MAX_SEEN:
            return f"Server {server.name!r} has listed more than {MAX_SEEN} different tools since the program started."
        now = Listing(tool.definition, get_effects(tool.options))  # what a model sees
        first = self.first.setdefault(tool.name, now)
        last = self._last.get(tool.name, first)
        self._last[tool.name] = now
        is_changed = now != first
        if is_changed and now != last:
            _log.warning(
                "server %r: the definition of tool %r changed while the program ran: %s",
                server.name,
                tool.name,
                format_changes(tool.name, first, now),
            )
        # A tool that becomes read-only is not trusted to be: only the first definition was there when it was chosen.
        is_read_only = bool(tool.options.read_only) and bool(first.effects.get("read_only"))
        is_marked = tool.options.meta.get(UNTRUSTED_META_KEY) is True
        if not is_marked and (is_read_only or (server.trust and not is_changed)):
            return ""
        command = format_approve_command(server)
        if is_changed:
            return f"Its definition changed while the program ran. Review it, then run {command} to trust it."
        if is_marked:
            return (
                f"Server {server.name!r} marks it as a tool of another server, which it does not trust. "
                f"Trust that server in {server.name!r}, or run {command} to trust the tool as it is now."
            )
        return (
            f"Server {server.name!r} comes from a configuration file or has trust=False, and the tool does not say "
            f"that it is read-only. Run {command} to trust its tools as they are now, or pass trust=True to "
            "McpServer.from_config or to the server."
        )


def _read_approved(server: ServerSpec) -> Mapping[str, Listing]:
    try:
        return read_approved(server)
    except ConfigError as error:
        _log.warning("server %r: no tool is trusted by the lock file: %s", server.name, error)
        return {}
