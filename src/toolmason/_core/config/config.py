"""Settings in layers; later wins: defaults < TOML < .properties < environment < code.

Lives here: `Config`, which layers there are, and where files are looked for. Not here: reading one layer
(`entries`), or what a key means (`known`, `servers`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
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
from toolmason.errors import ConfigError

FILE_NAMES: Final = ("toolmason.toml", "pyproject.toml", "toolmason.properties")
"""What `Config.find` looks for in a folder; of the first two, the first that is there."""


class Config(Mapping[str, Any]):
    """Settings by dotted key, whatever its case.

    `Config()` holds the environment; `Config.load(...)` reads files below it, and `Config.find()` looks for them.
    Case does not matter, because the names of environment variables have none. The keys that we know are typed
    values as well: `config.servers`, `config.limits` and so on.
    """

    __slots__ = ("_entries", "_servers")

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

    @classmethod
    def load(
        cls, *paths: str | Path, values: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
    ) -> Config:
        """Read files, TOML first and `.properties` over it, then the environment, then `values`.

        A `.json` file is an `mcp.json`: its servers are in `servers`.

        Raises:
            ConfigError: a file is missing or cannot be read; names the file and the place.
        """
        files = sorted(map(Path, paths), key=lambda path: path.suffix == ".properties")
        variables = os.environ if environ is None else environ
        # A server of a later file takes the place of one of the same name.
        json_servers = {s.name: s for path in files if path.suffix == ".json" for s in read_mcp_json(path, variables)}
        config = object.__new__(cls)
        layers = [read_config_file(path) for path in files if path.suffix != ".json"]
        config._set_layers(layers, values, environ, tuple(json_servers.values()))
        return config

    @classmethod
    def find(
        cls,
        start: str | Path | None = None,
        *,
        values: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Config:
        """Look for files from a folder upward (the working directory, unless you name one), and load them.

        The nearest folder that has one of them counts: `toolmason.toml`, else `[tool.toolmason]` in
        `pyproject.toml`; and `toolmason.properties`. The search ends at the root of a repository (`.git`), at your
        home folder and at the root of the file system. An `mcp.json` starts commands, so it is read only where you
        name it.

        Raises:
            ConfigError: a file cannot be read; names the file and the place.
        """
        try:
            folder = Path(start or "").absolute()
        except FileNotFoundError as error:
            raise ConfigError("The working directory is gone. Change to a folder that is there.") from error
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
        """Return where a key was set: a file with its line, an environment variable, or `code`."""
        entry = self._entries.find(key)
        return None if entry is None else entry.origin

    @property
    def servers(self) -> tuple[ServerSettings, ...]:
        """The MCP servers: `MCP.*`, `MCP_1.*`, `MCP_2.*` … in number order, then those of an `mcp.json`.

        Raises:
            ConfigError: a group lacks its name or url, or two servers have one name.
        """
        keyed_servers = keys.read_servers(self._entries)
        for server in keyed_servers:
            for other in self._servers:
                if other.name == server.name:
                    raise ConfigError(
                        f"Two MCP servers are named {server.name!r}: in {server.origin} and in {other.origin}. "
                        "Give one another name."
                    )
        return keyed_servers + self._servers

    @property
    def web_search(self) -> WebSearchSettings | None:
        """What `WebSearchTool.*` say; `None` where they are not set."""
        return keys.read_web_search(self._entries)

    @property
    def engine(self) -> EngineSettings | None:
        """The settings of the engine (`engine.*`), or None if no such key is set."""
        return keys.read_engine(self._entries)

    @property
    def limits(self) -> Limits | None:
        """The limits of a run (`limits.*`), or None if no such key is set."""
        return keys.read_limits(self._entries)

    @property
    def project_dir(self) -> Path | None:
        """The folder that tools work in; a relative one is relative to the file that says it."""
        return keys.read_project_dir(self._entries)

    @property
    def throw_on_error(self) -> bool:
        """Whether a call raises what went wrong (`tools.throw_on_error`)."""
        return keys.read_tool_flags(self._entries)["throw_on_error"]

    @property
    def include_content(self) -> bool:
        """Whether arguments and results may be recorded (`tools.include_content`)."""
        return keys.read_tool_flags(self._entries)["include_content"]

    @property
    def experimental(self) -> bool:
        """Whether APIs that may still change are allowed."""
        return keys.read_flag(self._entries, "experimental")

    def check(self) -> None:
        """Read every key that we know.

        Raises:
            ConfigError: one does not fit; names the place, the key, the value and the fix.
        """
        _ = self.servers, self.web_search, self.engine, self.limits, self.project_dir, self.throw_on_error
        _ = self.experimental


def _find_files(folder: Path) -> list[Path]:
    settings, project, properties = (folder / name for name in FILE_NAMES)
    toml_files = (
        [settings] if settings.is_file() else [project] if project.is_file() and has_toml_table(project) else []
    )
    return [*toml_files, *([properties] if properties.is_file() else [])]


def _get_home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None
