"""`McpServer`: what a developer writes to have the tools of a server.

Lives here: the constructors. Nothing is opened, and the SDK is loaded when a toolbox takes the server.
Not here: the rules of the value (`servers`).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import Unpack

from toolmason._core.config.config import Config
from toolmason._core.config.layers import table_in
from toolmason._core.config.mcp_json import TABLES, ServerSettings, servers_from, servers_in
from toolmason._core.remote.protocol import Host, Remote
from toolmason.errors import ConfigError, DefinitionError
from toolmason.mcp_client.server_options import Auth, Server, ServerWords


@dataclass(frozen=True, slots=True, eq=False)
class McpServer(Server):
    """An MCP server as a source of tools. Make one with `stdio`, `http`, `of` or `from_config`."""

    @classmethod
    def stdio(
        cls,
        name: str,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        auth: Auth | None = None,
        **words: Unpack[ServerWords],
    ) -> McpServer:
        """Return a server that runs as a process and speaks over its standard input and output.

        The process gets a short list of our environment variables (`PATH`, `HOME` …) and what `env` adds. No shell is
        involved: `command` and `args` are what is run. With `auth=`, each identity has a process of its own; the
        process is told nothing of it.
        """
        if isinstance(args, str):
            raise DefinitionError(f"Server {name!r}: args={args!r} is one text. Give a list of arguments.")
        words_ = _checked(words)
        return cls(name, "stdio", (command, *map(str, args)), dict(env or {}), cwd, auth=auth, **words_)

    @classmethod
    def http(
        cls,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Any = None,
        **words: Unpack[ServerWords],
    ) -> McpServer:
        """Return a server that is reached over HTTP; the older SSE transport is tried where it answers 404 or 405."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DefinitionError(f"Server {name!r}: {url!r} is not an http or https address.")
        if parts.username or parts.password:
            raise DefinitionError(f"Server {name!r}: the address holds a password. Give it with headers= or auth=.")
        return cls(name, "http", url=url, headers=dict(headers or {}), auth=auth, **_checked(words))

    @classmethod
    def of(cls, name: str, target: Any, *, auth: Auth | None = None, **words: Unpack[ServerWords]) -> McpServer:
        """Return a server in memory: a toolbox, or a server object of the SDK. For tests and composition.

        With `auth=`, each identity has a session of its own; the server is told nothing of it.
        """
        return cls(name, "memory", target=target, auth=auth, **_checked(words))

    @classmethod
    def from_config(
        cls, config: Config | Mapping[str, Any] | str | Path, *, auth: Any = None, **words: Unpack[ServerWords]
    ) -> list[McpServer]:
        """Return every server that a configuration names: an `mcp.json`, TOML, or the `MCP.*` and `MCP_1.*` groups.

        A mapping is what one of these files holds. Options given here hold for all of them. A server with `native=true`
        is the provider's to call, and left out.

        Raises:
            ConfigError: the file cannot be read, or an entry is not right; names the file, the key and the fix.
        """
        options = {**_checked(words), **({} if auth is None else {"auth": auth})}
        ours = [settings for settings in _settings_in(config) if not settings.native]
        return [_from_settings(settings, options) for settings in ours]

    def __remote__(self, host: Host) -> Remote:
        """Return a connection for one toolbox."""
        try:
            importlib.import_module("mcp")
        except ImportError as missing:
            raise ImportError("MCP servers need the SDK: pip install 'toolmason[mcp]'") from missing
        from toolmason.mcp_client.connection import Connection  # noqa: PLC0415 - half a second, for programs with servers

        return Connection(self, host)


def _settings_in(config: Config | Mapping[str, Any] | str | Path) -> Sequence[ServerSettings]:
    if isinstance(config, Config):
        return config.servers
    if isinstance(config, str | Path):
        # The variables that a file names come from the environment; servers that the environment names do not.
        path = Path(config)
        if path.suffix == ".json":
            return servers_in(path, os.environ)
        listed = servers_from(tables, str(path), os.environ) if (tables := _tables_in(table_in(path))) else ()
        return Config.load(path, environ={}).servers + listed
    if tables := _tables_in(config):
        rest = {key: value for key, value in config.items() if key not in tables}
        return Config(rest, environ={}).servers + servers_from(tables, "the mapping", os.environ)
    found = Config(config, environ={}).servers
    if not found and any(isinstance(entry, Mapping) and "command" in entry for entry in config.values()):
        return servers_from(config, "the mapping", os.environ)  # which says how it is written
    return found


def _tables_in(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of servers, as an `mcp.json` has them."""
    # The first name means nothing else, so that whatever stands there is looked at.
    return {
        name: data[name] for name in TABLES if name in data and (name == TABLES[0] or isinstance(data[name], Mapping))
    }


def _from_settings(settings: ServerSettings, words: Mapping[str, Any]) -> McpServer:
    more: Any = {"description": settings.description, **words}
    try:
        if settings.url is not None:
            headers = dict(settings.headers)
            if settings.authorization is not None:
                headers.setdefault("Authorization", settings.authorization)
            return McpServer.http(settings.name, settings.url, headers=headers, **more)
        return McpServer.stdio(
            settings.name, settings.command or "", settings.args, env=settings.env, cwd=settings.cwd, **more
        )
    except DefinitionError as error:
        raise ConfigError(f"{settings.origin}: {error}") from error


def _checked(words: Mapping[str, Any]) -> dict[str, Any]:
    known = dict(words)
    if unknown := known.keys() - ServerWords.__annotations__.keys():
        there = ", ".join(sorted(ServerWords.__annotations__))
        raise DefinitionError(f"A server takes no {min(unknown)!r}. There are: {there}.")
    for name in ("include", "exclude", "send_context"):
        if name in known:
            given = known[name]
            known[name] = (given,) if isinstance(given, str) else tuple(given)
    return known
