"""Definitions that were approved: what a server offers now, against what the lock file holds.

Lives here: holding back what is new or changed, with a warning that shows the difference, until it is approved.
Not here: writing the lock (`toolmason lock`).
"""

from __future__ import annotations

import difflib
import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from toolmason._core.define.tool import Tool
from toolmason._core.load.json_forms import effects_of, wire_of
from toolmason.errors import ConfigError
from toolmason.mcp_client.calls.remote_tools import RemoteTool
from toolmason.mcp_client.server_options import Server

_log = logging.getLogger("toolmason.mcp")

FILE: Final = "toolmason.lock"
_SHOWN: Final = 40
_HINTS: Final = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
_FIELDS: Final = ("title", "description", "input_schema", "output_schema")


def held_back(tools: Sequence[Tool], server: Server) -> list[Tool]:
    """Return the tools whose definitions are the approved ones; tell of the others."""
    path = Path(server.lock or FILE)
    approved = approved_in(path, server.name)
    kept: list[Tool] = []
    for tool in tools:
        known = approved.get(tool.name)
        same = known is not None and known.get("digest") == tool.definition.digest
        if known is not None and same and known.get("effects", {}) == effects_of(tool.options):
            if "wire" not in known:
                # A lock of before: what it does not hold was not looked at, so it is not passed on.
                _bare(tool)
            if wire_of(tool) == known.get("wire", wire_of(tool)):
                kept.append(tool)
                continue
        what = "is new" if known is None else "has changed"
        _log.warning(
            "server %r: its tool %r %s since it was approved, and is held back. Look at it, then run "
            "`toolmason lock TARGET --approve %s%s`, with the file that names the server for TARGET: mcp.json, "
            "or app.py:box.%s",
            server.name,
            tool.name,
            what,
            server.name,
            "" if server.lock is None else f" --file {shlex.quote(str(path))}",
            difference(known or {}, tool),
        )
    for name in sorted(approved.keys() - {tool.name for tool in tools}):
        _log.warning("server %r: its tool %r was approved and is not there any more", server.name, name)
    return kept


def _bare(tool: Tool) -> None:
    """Take away what a definition holds beside what was approved."""
    if isinstance(tool, RemoteTool):
        extra, hints = wire_of(tool) or {}, {_HINTS[name]: said for name, said in effects_of(tool.options).items()}
        kept = {key: value for key, value in tool.entry.items() if key not in extra}
        tool.entry = {**kept, "annotations": hints} if hints else kept
        tool.options = replace(tool.options, meta={})


def approved_in(path: Path, server: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the approved definitions of a server, by name; none where there is no lock yet.

    Raises:
        ConfigError: the lock cannot be read.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the lock {str(path)!r}: {error}. Check the file.") from error
    try:
        data = json.loads(text)
        found = data.get("servers", {}).get(server, {}).get("tools", {})
        return {str(name): dict(entry) for name, entry in found.items()}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(f"{str(path)!r} is not a lock. Write it again with `toolmason lock`.") from error


def difference(known: Mapping[str, Any], tool: Tool) -> str:
    """Return what changed, line by line, no more than a screenful."""
    now = {**{name: getattr(tool.definition, name) for name in _FIELDS}, "effects": effects_of(tool.options)}
    before = {name: known.get(name) for name in (*_FIELDS, "effects")} if known else {}
    if "wire" in known:
        now, before = {**now, "wire": wire_of(tool)}, {**before, "wire": known["wire"]}
    lines = list(difflib.unified_diff(_lines(before), _lines(now), "approved", "now", lineterm="", n=1))
    more = [f"… and {len(lines) - _SHOWN} more lines"] if len(lines) > _SHOWN else []
    return "".join(f"\n    {line}" for line in (*lines[:_SHOWN], *more))


def _lines(form: Mapping[str, Any]) -> list[str]:
    kept = {name: value for name, value in form.items() if value is not None}
    return json.dumps(kept, indent=1, sort_keys=True, ensure_ascii=True).split("\n") if kept else []
