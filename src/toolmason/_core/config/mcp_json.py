"""`mcp.json`, as editors write it → the MCP servers that it names, as frozen values.

Lives here: the value, the file's shape, `${VAR}` from the environment. Not here: the keys `MCP.*` (`known`), or
any connection. No secret is ever shown: neither in a `repr` nor in an error.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from toolmason._core.config.layers import read_config_text
from toolmason.errors import ConfigError

_log = logging.getLogger("toolmason")
TABLE_KEYS: Final = ("mcpServers", "servers", "mcp_servers")
"""What the table of servers is called: by most editors, by VS Code, and in TOML files."""
_FIELD_NAMES: Final = ("command", "args", "env", "cwd", "url", "headers", "description")
_VARIABLE_REFERENCE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_INPUT_REFERENCE: Final = re.compile(r"\$\{input:[^}]*\}")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How to reach one MCP server: a command to start, or an address. Values that may be secret are not shown."""

    name: str
    url: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    authorization: str | None = None
    """Sent as it is in the header of that name."""
    description: str | None = None
    native: bool = False
    """Whether the model's provider calls it, and not we."""
    origin: str = "code"
    """Where it is written, for messages."""

    @override
    def __repr__(self) -> str:
        parts = [repr(self.name)]
        if self.url is not None:
            parts.append(f"url={_redact_url(self.url)!r}")
        if self.command is not None:
            parts.append(f"command={self.command!r}")
        for name in ("args", "env", "headers", "authorization"):
            if value := getattr(self, name):
                shown = sorted(value) if isinstance(value, Mapping) else len(value) if name == "args" else "…"
                parts.append(f"{name}={shown}")
        return f"ServerSettings({', '.join(parts)})"


def _redact_url(url: str) -> str:
    """Return an address without what may be a secret in it: user, password, query, fragment."""
    without_query = re.split(r"[?#]", url, maxsplit=1)[0]
    scheme, separator, rest = without_query.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{separator}{authority.rpartition('@')[2]}{slash}{path}"


def read_mcp_json(path: Path, environ: Mapping[str, str]) -> tuple[ServerSettings, ...]:
    """Read an `mcp.json`, in the order of the file; a server that is marked `disabled` is left out.

    Keys that are an editor's own are left alone.

    Raises:
        ConfigError: the file or an entry cannot be read; names the file, the server, the field and the fix.
    """
    try:
        data = json.loads(read_config_text(path), object_pairs_hook=_reject_duplicate_keys)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid JSON: {error}. Correct the file at that place.") from error
    return parse_mcp_servers(data, str(path), environ)


def parse_mcp_servers(data: Any, path: str, environ: Mapping[str, str]) -> tuple[ServerSettings, ...]:
    """Return the servers that the contents of an `mcp.json` name; `path` is for messages.

    Raises:
        ConfigError: an entry cannot be read; names the server, the field and the fix.
    """
    tables = [data[name] for name in TABLE_KEYS if isinstance(data, Mapping) and isinstance(data.get(name), Mapping)]
    if not tables:
        raise ConfigError(
            f'{path} names no MCP servers. Write {{"mcpServers": {{"name": {{"command": "…", "args": []}}}}}}.'
        )
    parsed_servers = [_parse_server(name, entry, path, environ) for name, entry in tables[0].items()]
    return tuple(server for server in parsed_servers if server is not None)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique_pairs = dict(pairs)
    if len(unique_pairs) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in one object")
    return unique_pairs


def _parse_server(name: str, entry: Any, path: str, environ: Mapping[str, str]) -> ServerSettings | None:
    location = f"{path}: server {name!r}"
    if not name.strip():
        raise ConfigError(f"{location} has no name. Give it one.")
    if not isinstance(entry, Mapping):
        raise ConfigError(
            f"{location} is a {_describe_type(entry)}, not an object. Write {{…}} with a command or a url."
        )
    if entry.get("disabled") is True:
        return None
    if ("command" in entry) == ("url" in entry):
        raise ConfigError(f"{location} needs a command or a url, and not both.{_suggest_field(entry)}")
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
        raise ConfigError(f"{location}: `url` is {_redact_url(values['url'])!r}. Write http://… or https://….")
    if suggestion := _suggest_field(entry):
        # An editor's own keys are left alone; one that was meant for us would be missed without a word.
        _log.warning("%s: server %r has a field that is not read.%s", path, name, suggestion)
    return ServerSettings(name, origin=path, **values)


def _suggest_field(entry: Mapping[str, Any]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - 2 ms at start-up, for a key that is misspelt

    for key in entry:
        matches = ["env"] if key == "environment" else get_close_matches(str(key)[:64], _FIELD_NAMES, n=1)
        if key not in _FIELD_NAMES and matches:
            return f" {key!r} looks like {matches[0]!r}."
    return ""


@dataclass(frozen=True, slots=True)
class _ServerFieldReader:
    """Reads the fields of one server, and says in each error which field it is."""

    location: str
    environ: Mapping[str, str]

    def read_text(self, key: str, value: Any) -> str:
        """Return a text, with its references filled in."""
        if not isinstance(value, str) or not value:
            raise ConfigError(f"{self.location}: `{key}` is a {_describe_type(value)}. Write a text.")
        if _INPUT_REFERENCE.search(value):
            raise ConfigError(
                f"{self.location}: `{key}` asks an editor for input. Put the value into an environment variable, "
                "and write ${NAME}."
            )
        return _VARIABLE_REFERENCE.sub(lambda found: self._expand_variable(key, found), value)

    def read_list(self, key: str, value: Any) -> tuple[str, ...]:
        """Return a list of texts."""
        if not isinstance(value, list):
            raise ConfigError(f"{self.location}: `{key}` is a {_describe_type(value)}. Write a list of texts.")
        return tuple("" if item == "" else self.read_text(f"{key}[{index}]", item) for index, item in enumerate(value))

    def read_mapping(self, key: str, value: Any) -> dict[str, str]:
        """Return a table of texts."""
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self.location}: `{key}` is a {_describe_type(value)}. Write an object of texts.")
        return {name: "" if item == "" else self.read_text(f"{key}.{name}", item) for name, item in value.items()}

    def _expand_variable(self, key: str, match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        # As in a shell: `:-` stands for a variable that is empty, too.
        value = self.environ.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise ConfigError(
                f"{self.location}: `{key}` names the environment variable {name!r}, which is not set. "
                f"Set it, or write ${{{name}:-…}} with a default."
            )
        return value


def _describe_type(value: Any) -> str:
    names = {dict: "object", list: "list", str: "text", bool: "yes or no", type(None): "null"}
    return "text that is empty" if value == "" else names.get(type(value), "number")
