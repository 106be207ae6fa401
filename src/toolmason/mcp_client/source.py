"""Construct MCP servers as sources of tools."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from typing_extensions import Unpack

from toolmason._core.config.config import Config
from toolmason._core.config.layers import read_toml_table
from toolmason._core.config.mcp_json import (
    TABLE_KEYS,
    ServerSettings,
    normalize_server_name,
    parse_mcp_servers,
    read_mcp_json,
)
from toolmason._core.define.decorators import show_keywords
from toolmason._core.remote.protocol import Remote, ServerRequestHandlers
from toolmason._explain import explain_arguments
from toolmason.errors import ConfigError, DefinitionError
from toolmason.mcp_client.auth.oauth import OAuth
from toolmason.mcp_client.server_options import AuthCallback, ServerOptions, ServerSpec


@dataclass(frozen=True, slots=True, eq=False)
class McpServer(ServerSpec):
    """An MCP server as a source of tools. Create one with `stdio`, `http`, `of` or `from_config`."""

    @classmethod
    @show_keywords(ServerOptions, ServerSpec)
    def stdio(
        cls,
        name: str,
        command: str,
        args: Sequence[str] = (),
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        auth: AuthCallback | None = None,
        **options: Unpack[ServerOptions],
    ) -> McpServer:
        """Return a server that runs as a subprocess and communicates over stdin and stdout.

        The process inherits a short list of environment variables (`PATH`, `HOME` …) plus those in `env`. `command`
        and `args` run without a shell. With `auth=`, each identity gets its own process; the credentials are not
        passed to it.
        """
        if isinstance(args, str):
            raise DefinitionError(f"Server {name!r}: args={args!r} is a string. Pass a list of arguments.")
        return cls(name, "stdio", (command, *map(str, args)), env or {}, cwd, auth=auth, **options)

    @classmethod
    @show_keywords(ServerOptions, ServerSpec)
    def http(
        cls,
        name: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        auth: Any = None,
        **options: Unpack[ServerOptions],
    ) -> McpServer:
        """Return a server that is reached over HTTP, with the older SSE transport as fallback on HTTP 404 or 405.

        `auth="oauth"` uses the sign-in of `toolmason mcp login`; see `OAuth` for more.
        """
        return cls(name, "http", url=url, headers=headers or {}, auth=auth, **options)

    @classmethod
    @show_keywords(ServerOptions, ServerSpec)
    def of(
        cls, name: str, target: Any, *, auth: AuthCallback | None = None, **options: Unpack[ServerOptions]
    ) -> McpServer:
        """Return an in-memory server: a toolbox or an SDK server object. For tests and composition.

        With `auth=`, each identity gets its own session; the credentials are not passed to the server.
        """
        return cls(name, "memory", target=target, auth=auth, **options)

    @classmethod
    @show_keywords(ServerOptions, ServerSpec)
    @explain_arguments
    def from_config(
        cls, config: Config | Mapping[str, Any] | str | Path, *, auth: Any = None, **options: Unpack[ServerOptions]
    ) -> list[McpServer]:
        """Return all servers in a configuration: an `mcp.json`, TOML, or the `MCP.*` and `MCP_1.*` groups.

        A mapping has the contents of one of these files. Options passed here apply to every server. Without
        `trust=True`, a run asks for approval before it calls their tools. Servers with `native=true` are called by the
        provider, and left out.

        Raises:
            ConfigError: the file cannot be read or an entry is invalid; the message names the file, the key and the
                fix.
        """
        servers: list[McpServer] = []
        for settings in _read_settings(config):
            if settings.native:
                continue
            # A file is not code of the developer: its servers are trusted only if the code says so.
            shared: ServerOptions = {"description": settings.description, "trust": False, **options}
            try:
                servers.append(cls(**_make_address(settings), auth=auth, **shared))
            except DefinitionError as error:
                raise ConfigError(f"{settings.origin}: {error}") from error
        return servers

    def __remote__(self, handlers: ServerRequestHandlers) -> Remote:
        """Return a connection for one toolbox."""
        try:
            importlib.import_module("mcp")
        except ImportError as missing:
            raise ImportError("MCP servers need the SDK: pip install 'toolmason[mcp]'") from missing
        from toolmason.mcp_client.connection import Connection  # noqa: PLC0415 - takes half a second to import

        auth = OAuth() if self.auth == "oauth" else self.auth
        server = replace(self, auth=auth.make_provider(self.url or "")) if isinstance(auth, OAuth) else self
        return Connection(server, handlers)


def _read_settings(config: Config | Mapping[str, Any] | str | Path) -> Sequence[ServerSettings]:
    if isinstance(config, Config):
        return config.servers
    if isinstance(config, str | Path):
        # A file may reference environment variables, but servers defined in the environment are not added.
        path = Path(config)
        if path.suffix == ".json":
            return read_mcp_json(path, os.environ)
        tables = _select_tables(read_toml_table(path))
        table_servers = parse_mcp_servers(tables, str(path), os.environ) if tables else ()
        return Config.load(path, environ={}).servers + table_servers
    if tables := _select_tables(config):
        other_keys = {key: value for key, value in config.items() if key not in tables}
        return Config(other_keys, environ={}).servers + parse_mcp_servers(tables, "the mapping", os.environ)
    servers = Config(config, environ={}).servers
    if not servers and any(isinstance(entry, Mapping) and "command" in entry for entry in config.values()):
        return parse_mcp_servers(config, "the mapping", os.environ)  # raises an error that shows the expected form
    return servers


def _select_tables(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a mapping that have the form of an `mcp.json`."""
    # The first key has no other meaning, so its value is checked whatever its type.
    return {
        name: data[name]
        for name in TABLE_KEYS
        if name in data and (name == TABLE_KEYS[0] or isinstance(data[name], Mapping))
    }


def _make_address(settings: ServerSettings) -> dict[str, Any]:
    """Return the keywords of a server for its address: a command or a URL."""
    name = normalize_server_name(settings)
    if settings.url is None:
        command = (settings.command or "", *settings.args)
        return {"name": name, "kind": "stdio", "command": command, "env": settings.env, "cwd": settings.cwd}
    headers = dict(settings.headers)
    if settings.authorization is not None:
        headers.setdefault("Authorization", settings.authorization)
    return {"name": name, "kind": "http", "url": settings.url, "headers": headers}
