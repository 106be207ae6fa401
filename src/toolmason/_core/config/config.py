"""Settings in layers, later ones overriding earlier ones: TOML < .properties < environment < code."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from toolmason._core.config import keys
from toolmason._core.config.keys import WebSearchSettings
from toolmason._core.config.layers import (
    ConfigEntries,
    ConfigEntry,
    has_toml_table,
    read_config_file,
    read_environment,
    read_mapping,
)
from toolmason._core.config.mcp_json import ServerSettings, read_mcp_json
from toolmason._core.values.policy import EngineSettings, Limits
from toolmason._explain import explain_arguments
from toolmason._secrets import remember_secrets
from toolmason.errors import ConfigError

FILE_NAMES: Final = ("toolmason.toml", "pyproject.toml", "toolmason.properties")
"""Files that `Config.find` looks for in a folder. Of the first two, only the first that exists is read."""


class Config(Mapping[str, Any]):
    """Settings by dotted, case-insensitive key.

    `Config()` reads the environment; `Config.load(...)` also reads files, and `Config.find()` locates them.
    Environment variables override files. Known keys are also available as typed values, such as
    `config.servers` and `config.limits`.
    """

    __slots__ = ("_entries", "_servers")

    @explain_arguments
    def __init__(self, values: Mapping[str, Any] | None = None, /, *, environ: Mapping[str, str] | None = None) -> None:
        self._set_layers([], values, environ)

    def _set_layers(
        self,
        files: Iterable[Iterable[ConfigEntry]],
        values: Mapping[str, Any] | None,
        environ: Mapping[str, str] | None,
        json_servers: tuple[ServerSettings, ...] = (),
    ) -> None:
        environment_layer = read_environment(os.environ if environ is None else environ)
        self._entries = ConfigEntries.merge([*files, environment_layer, read_mapping(values or {})])
        self._servers = json_servers
        if self._entries.by_key:
            remember_secrets({entry.key: entry.value for entry in self._entries.by_key.values()})

    @classmethod
    @explain_arguments
    def load(
        cls, *paths: str | Path, values: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
    ) -> Config:
        """Read files (`.properties` overrides TOML), then the environment, then `values`.

        A `.json` file is read as an `mcp.json`; its servers are in `servers`.

        Raises:
            ConfigError: a file is missing or unreadable; names the file and the position.
        """
        files = sorted(map(Path, paths), key=lambda path: path.suffix == ".properties")
        variables = os.environ if environ is None else environ
        # Of two servers with the same name, the one in the later file wins.
        json_servers = {s.name: s for path in files if path.suffix == ".json" for s in read_mcp_json(path, variables)}
        config = object.__new__(cls)
        layers = [read_config_file(path) for path in files if path.suffix != ".json"]
        config._set_layers(layers, values, environ, tuple(json_servers.values()))
        return config

    @classmethod
    @explain_arguments
    def find(
        cls,
        start: str | Path | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Config:
        """Search for configuration files from a folder upward and load them. Default: the working directory.

        The nearest folder with a file is used: `toolmason.toml`, else `[tool.toolmason]` in `pyproject.toml`, plus
        `toolmason.properties`. The search stops at the root of a repository (`.git`), at the home folder and at the
        root of the file system. An `mcp.json` is never searched for, because it starts commands: pass it to `load`.

        Raises:
            ConfigError: a file is unreadable; names the file and the position.
        """
        try:
            folder = Path(start or "").absolute()
        except FileNotFoundError as error:
            raise ConfigError("The working directory no longer exists. Change to an existing folder.") from error
        for candidate in (folder, *folder.parents):
            if config_files := _find_files(candidate):
                return cls.load(*config_files, values=values, environ=environ)
            if (candidate / ".git").exists() or candidate == _get_home():
                break
        return cls.load(values=values, environ=environ)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._restore, (list(self._entries.by_key.values()), self._servers)

    @classmethod
    def _restore(cls, entries: list[ConfigEntry], servers: tuple[ServerSettings, ...]) -> Config:
        config = object.__new__(cls)
        config._set_layers([entries], None, {}, servers)
        return config

    def __getitem__(self, key: str) -> Any:
        entry = self._entries.find(key)
        if entry is None:
            raise KeyError(key)
        return entry.value

    def __iter__(self) -> Iterator[str]:
        return (entry.key for entry in self._entries.by_key.values())

    def __len__(self) -> int:
        return len(self._entries.by_key)

    def __repr__(self) -> str:
        # Values may be secrets, so only the keys are shown.
        return f"Config({', '.join(sorted(self))})"

    def origin(self, key: str) -> str | None:
        """Return the origin of a key: a file and line, an environment variable, or `code`. None if it is unset."""
        entry = self._entries.find(key)
        return None if entry is None else entry.origin

    @property
    def servers(self) -> tuple[ServerSettings, ...]:
        """The MCP servers: `MCP.*`, `MCP_1.*`, `MCP_2.*` … in numeric order, then those of an `mcp.json`.

        Raises:
            ConfigError: a group lacks its name or url, or two servers have the same name.
        """
        servers = (*keys.read_servers(self._entries), *self._servers)
        by_name: dict[str, ServerSettings] = {}
        for server in servers:
            if (other := by_name.setdefault(server.name, server)) is not server:
                raise ConfigError(
                    f"Two MCP servers are named {server.name!r}: in {other.origin} and in {server.origin}. Rename one."
                )
        return servers

    def without_servers(self) -> Config:
        """Return these settings without MCP servers, apart from those that the model's provider calls."""
        return self._restore(keys.drop_servers(self._entries), ())

    @property
    def web_search(self) -> WebSearchSettings | None:
        """The settings in `WebSearchTool.*`, or None if no such key is set."""
        return keys.read_web_search(self._entries)

    @property
    def engine(self) -> EngineSettings | None:
        """The engine settings (`engine.*`), or None if no such key is set."""
        return keys.read_numbers(self._entries, "engine", EngineSettings)

    @property
    def limits(self) -> Limits | None:
        """The run limits (`limits.*`), or None if no such key is set."""
        return keys.read_numbers(self._entries, "limits", Limits)

    @property
    def model_options(self) -> dict[str, float]:
        """The options of a chat's requests that are set: `model.max_tokens`, `model.temperature`, `model.top_p`."""
        settings = keys.read_numbers(self._entries, "model", keys.ModelSettings)
        options = {} if settings is None else asdict(settings)
        return {name: value for name, value in options.items() if value is not None}

    @property
    def project_dir(self) -> Path | None:
        """The folder that tools work in, or None. A relative path is resolved against the file that sets it."""
        return keys.read_project_dir(self._entries)

    @property
    def throw_on_error(self) -> bool:
        """True if a call raises its error (`tools.throw_on_error`)."""
        return keys.read_tool_flags(self._entries)["throw_on_error"]

    @property
    def include_content(self) -> bool:
        """True if the log and the spans of calls show arguments and results (`tools.include_content`)."""
        return keys.read_tool_flags(self._entries)["include_content"]

    @property
    def spring_names(self) -> bool:
        """True if spans also have the attributes of Spring AI (`tools.spring_names`)."""
        return keys.read_tool_flags(self._entries)["spring_names"]

    @property
    def experimental(self) -> bool:
        """True if experimental APIs are allowed."""
        return keys.read_flag(self._entries, "experimental")

    def check(self) -> None:
        """Validate every known key.

        Raises:
            ConfigError: a value is invalid; names the origin, the key, the value and the fix.
        """
        names = ("servers", "web_search", "engine", "limits", "model_options", "project_dir", "throw_on_error")
        for name in (*names, "experimental"):
            getattr(self, name)  # each property validates its keys


def _find_files(folder: Path) -> list[Path]:
    settings, project, properties = (folder / name for name in FILE_NAMES)
    found: list[Path] = []
    if settings.is_file():
        found.append(settings)
    elif project.is_file() and has_toml_table(project):
        found.append(project)
    if properties.is_file():
        found.append(properties)
    return found


def _get_home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None
