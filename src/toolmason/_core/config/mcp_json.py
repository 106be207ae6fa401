"""Read MCP servers from an editor's `mcp.json`, without exposing secrets in a `repr` or an error."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from toolmason._core.config.layers import read_config_text
from toolmason._text import find_close_names
from toolmason._wire import load_json
from toolmason.errors import ConfigError

_log = logging.getLogger("toolmason")
TABLE_KEYS: Final = ("mcpServers", "servers", "mcp_servers")
"""Keys of the server table: used by most editors, by VS Code, and in TOML files."""
_FIELD_NAMES: Final = ("command", "args", "env", "cwd", "url", "headers", "description")
_OTHER_NAMES: Final = {"environment": "env", "cmd": "command"}
"""Names of fields that look less like the right one than like another."""
_VARIABLE_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_INPUT_REFERENCE: Final = re.compile(r"\$\{input:[^}]*\}")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How to reach one MCP server: a command or a URL. The `repr` hides values that may be secret."""

    name: str
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    authorization: str | None = None
    """Value of the `Authorization` header, sent unchanged."""
    description: str | None = None
    native: bool = False
    """True if the model's provider calls the server, instead of Toolmason."""
    origin: str = "code"
    """Origin of the settings, for error messages."""

    @override
    def __repr__(self) -> str:
        parts = [repr(self.name)]
        if self.url is not None:
            parts.append(f"url={_redact_url(self.url)!r}")
        if self.command is not None:
            parts.append(f"command={self.command!r}")
        if self.args:
            parts.append(f"args={len(self.args)}")
        parts += [f"{name}={sorted(getattr(self, name))}" for name in ("env", "headers") if getattr(self, name)]
        if self.authorization:
            parts.append("authorization=…")
        return f"ServerSettings({', '.join(parts)})"


def normalize_server_name(settings: ServerSettings) -> str:
    """Return the name of a server with `_` for each blank, which neither a tool's name nor a provider accepts."""
    name = "_".join(settings.name.split())
    if name != settings.name:
        _log.info("%s: server %r is called %r: a name has no blanks", settings.origin, settings.name, name)
    return name


def _redact_url(url: str) -> str:
    """Return a URL without its user, password, query and fragment, which may be secret."""
    without_query = re.split(r"[?#]", url, maxsplit=1)[0]
    scheme, separator, rest = without_query.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def read_mcp_json(path: Path, environ: Mapping[str, str]) -> tuple[ServerSettings, ...]:
    """Read the servers of an `mcp.json`, in file order, skipping those marked `disabled`.

    Editor-specific keys are ignored.

    Raises:
        ConfigError: the file or an entry is invalid; names the file, the server, the field and the fix.
    """
    try:
        data = load_json(read_config_text(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: invalid JSON: {error}. Fix the file at that position.") from error
    return parse_mcp_servers(data, str(path), environ)


def parse_mcp_servers(data: Any, path: str, environ: Mapping[str, str]) -> tuple[ServerSettings, ...]:
    """Return the servers in the contents of an `mcp.json`; `path` is for error messages.

    Raises:
        ConfigError: an entry is invalid; names the server, the field and the fix.
    """
    tables = [data[name] for name in TABLE_KEYS if isinstance(data, Mapping) and isinstance(data.get(name), Mapping)]
    if not tables:
        raise ConfigError(
            f'{path} has no MCP servers. Write {{"mcpServers": {{"name": {{"command": "…", "args": []}}}}}}.'
        )
    parsed_servers = [_parse_server(name, entry, path, environ) for name, entry in tables[0].items()]
    return tuple(server for server in parsed_servers if server is not None)


def _parse_server(name: str, entry: Any, path: str, environ: Mapping[str, str]) -> ServerSettings | None:
    location = f"{path}: server {name!r}"
    if not name.strip():
        raise ConfigError(f"{location} has no name. Add one.")
    if not isinstance(entry, Mapping):
        raise ConfigError(
            f"{location} must be an object, got {_describe_type(entry)}. Write {{…}} with a command or a url."
        )
    if entry.get("disabled") is True:
        return None
    if ("command" in entry) == ("url" in entry):
        found = "both" if "url" in entry else "neither"
        raise ConfigError(f"{location} needs a command or a url, and has {found}.{_suggest_field(entry)}")
    reader = _ServerFieldReader(location, environ)
    values: dict[str, Any] = {
        key: reader.read_text(key, entry[key]) for key in ("command", "url", "cwd") if key in entry
    }
    values |= {key: reader.read_mapping(key, entry[key]) for key in ("env", "headers") if key in entry}
    if isinstance(entry.get("description"), str):
        values["description"] = entry["description"]
    if "args" in entry:
        values["args"] = reader.read_list("args", entry["args"])
    if "url" in values and not re.match(r"https?://[^\s/]", values["url"]):
        raise ConfigError(f"{location}: `url` is {_redact_url(values['url'])!r}. Use http://… or https://….")
    if suggestion := _suggest_field(entry):
        # Editor-specific keys are ignored, so a misspelt key would otherwise be dropped silently.
        _log.warning("%s: server %r has an unknown field.%s", path, name, suggestion)
    return ServerSettings(name, origin=path, **values)


def _suggest_field(entry: Mapping[str, Any]) -> str:
    for key in entry:
        matches = [_OTHER_NAMES[key]] if key in _OTHER_NAMES else find_close_names(str(key), _FIELD_NAMES, 1)
        if key not in _FIELD_NAMES and matches:
            return f" {key!r} looks like {matches[0]!r}."
    return ""


@dataclass(frozen=True, slots=True)
class _ServerFieldReader:
    """Reader for the fields of one server, naming the field in each error."""

    location: str
    environ: Mapping[str, str]

    def read_text(self, key: str, value: Any) -> str:
        """Return a string with its variable references expanded."""
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{self.location}: `{key}` must be a non-empty string, got {_describe_type(value)}.")
        if _INPUT_REFERENCE.search(value):
            raise ConfigError(
                f"{self.location}: `{key}` asks the editor for input. Set an environment variable instead "
                "and write ${NAME}."
            )
        return _VARIABLE_REFERENCE.sub(lambda found: self._expand_variable(key, found), value)

    def read_list(self, key: str, value: Any) -> tuple[str, ...]:
        """Return a list of strings."""
        if not isinstance(value, list):
            raise ConfigError(f"{self.location}: `{key}` must be a list of strings, got {_describe_type(value)}.")
        return tuple("" if item == "" else self.read_text(f"{key}[{index}]", item) for index, item in enumerate(value))

    def read_mapping(self, key: str, value: Any) -> dict[str, str]:
        """Return an object with string values."""
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{self.location}: `{key}` must be an object with string values, got {_describe_type(value)}."
            )
        return {name: "" if item == "" else self.read_text(f"{key}.{name}", item) for name, item in value.items()}

    def _expand_variable(self, key: str, match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        # As in a shell, the `:-` default also applies to an empty variable.
        value = self.environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise ConfigError(
                f"{self.location}: `{key}` refers to the environment variable {name!r}, which is not set. "
                f"Set it, or write ${{{name}:-…}} with a default."
            )
        return value


def _describe_type(value: Any) -> str:
    names = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return "empty string" if value == "" else names.get(type(value), "number")
