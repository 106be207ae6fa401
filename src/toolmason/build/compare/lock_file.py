"""Read, compare, approve and write `toolmason.lock`, the file of approved tool definitions.

Local tools are stored under `tools`, those of remote servers under `servers`, by server name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from toolmason._core.load.json_forms import get_object
from toolmason.build.compare.comparison import ToolDiff
from toolmason.build.compare.comparison import compare as compare_tools
from toolmason.build.compare.listing import LOCK_FORMAT, Listing, Listings, listings_of, parse_json_file, parse_tools
from toolmason.build.manifest.package_manifest import write_file
from toolmason.errors import ConfigError, clip

FILE: Final = "toolmason.lock"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Lock:
    """Approved tool definitions."""

    targets: tuple[str, ...] = ()
    """Targets of the local tools, so that `--check` needs no arguments."""
    tools: Mapping[str, Listing] = field(default_factory=dict)
    """Local tools by name."""
    servers: Mapping[str, Mapping[str, Listing]] = field(default_factory=dict)
    """Tools of remote servers, by server name and tool name."""
    server_targets: Mapping[str, str] = field(default_factory=dict)
    """Target that defines a server, by server name, so that `--check` needs no arguments."""

    def get_tools(self, server: str | None = None) -> Mapping[str, Listing]:
        """Return the local tools, or those of a server; empty if the server is not in the lock."""
        return self.tools if server is None else self.servers.get(server, {})

    def dump(self) -> bytes:
        """Return the lock as indented JSON; equal definitions give equal bytes."""
        data = {
            "format": LOCK_FORMAT,
            "version": VERSION,
            "targets": list(self.targets),
            "tools": _to_dicts(self.tools),
            "servers": {name: self._dump_server(name) for name in sorted(self.servers)},
        }
        return (json.dumps(data, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()

    def _dump_server(self, name: str) -> dict[str, Any]:
        target = {"target": self.server_targets[name]} if name in self.server_targets else {}
        return {**target, "tools": _to_dicts(self.servers[name])}


def _to_dicts(listings: Mapping[str, Listing]) -> dict[str, Any]:
    return {name: {k: v for k, v in listings[name].to_dict().items() if k != "name"} for name in sorted(listings)}


def load(path: str | Path = FILE) -> Lock:
    """Read a lock file.

    Raises:
        ConfigError: the file is missing, malformed or was edited by hand; the error names the part.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"No lock file at {str(path)!r}: {error.strerror}. Write it with `toolmason lock`."
        ) from error
    try:
        return parse(text, repr(str(path)))
    except ConfigError as error:
        raise ConfigError(f"{error} Restore or delete the file first, because `toolmason lock` reads it.") from error


def load_if_exists(path: str | Path) -> Lock:
    """Read a lock file, or return an empty lock if there is none. Raises as `load` does."""
    return load(path) if Path(path).exists() else Lock()


def parse(text: bytes, place: str) -> Lock:
    """Parse a lock from bytes.

    Raises:
        ConfigError: the data is malformed or was edited by hand; the error names the part.
    """
    data = parse_json_file(text, place)
    if data["format"] != LOCK_FORMAT or data.get("version") != VERSION:
        raise ConfigError(
            f"{place} is not a version {VERSION} lock: its format is {data['format']!r}, version "
            f"{clip(repr(data.get('version')))}. Write it again with `toolmason lock`."
        )
    targets = data.get("targets", [])
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise ConfigError(f"{place}: 'targets' must be a list of strings, not {clip(repr(targets))}.")
    servers = get_object({"servers": {}, **data}, "servers", place)
    remote: dict[str, Listings] = {}
    server_targets: dict[str, str] = {}
    for name in servers:
        where = f"{place}: server {clip(name)!r}"
        server = {"tools": {}, **get_object(servers, name, place)}
        remote[name] = parse_tools(get_object(server, "tools", where), where)
        if isinstance(target := server.get("target"), str):
            server_targets[name] = target
    local = parse_tools(get_object({"tools": {}, **data}, "tools", place), place)
    return Lock(tuple(targets), local, remote, server_targets)


def compare(lock: Lock, found: Mapping[str, Listing], *, server: str | None = None) -> list[ToolDiff]:
    """Return the differences between the locked tools and those found, or an empty list if there are none."""
    return compare_tools(lock.get_tools(server), found)


def approve(lock: Lock, found: Mapping[str, Listing], *, server: str | None = None, target: str | None = None) -> Lock:
    """Return a copy of the lock that approves the tools found; other parts are unchanged.

    `target` is the target that defines the server.
    """
    if server is None:
        return replace(lock, tools=dict(found))
    targets = lock.server_targets if target is None else {**lock.server_targets, server: target}
    return replace(lock, servers={**lock.servers, server: dict(found)}, server_targets=targets)


def forget(lock: Lock, server: str) -> Lock:
    """Return a copy of the lock without a server."""
    return replace(lock, servers={name: tools for name, tools in lock.servers.items() if name != server})


def retarget(lock: Lock, targets: Sequence[str]) -> Lock:
    """Return a copy of the lock with other targets."""
    return replace(lock, targets=tuple(targets))


def write(lock: Lock, path: str | Path = FILE) -> bool:
    """Write a lock file; return True if its content changed.

    Raises:
        ConfigError: the file cannot be written.
    """
    return write_file(Path(path), lock.dump())


__all__ = [
    "FILE",
    "Listing",
    "Lock",
    "ToolDiff",
    "approve",
    "compare",
    "forget",
    "listings_of",
    "load",
    "parse",
    "retarget",
    "write",
]
