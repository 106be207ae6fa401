"""Configuration files of programs that start MCP servers: their places, and the form of a server in them."""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolmason._text import clip
from toolmason.errors import ConfigError

MAX_FILE_BYTES: Final = 8 * 1024 * 1024
"""Maximum size of a client's configuration file that is read."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class ServerCommand(NamedTuple):
    """The command by which a client starts a server."""

    command: str
    args: tuple[str, ...]
    env: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the entry that most clients use."""
        return {"command": self.command, "args": [*self.args], **({"env": dict(self.env)} if self.env else {})}


@dataclass(frozen=True, slots=True)
class ClientProgram:
    """A program that starts MCP servers."""

    title: str
    folders: Mapping[str, str]
    """Folder of the file by platform; `""` is every other platform."""
    file: str
    key: str = "mcpServers"
    """Key of the file's object of servers."""
    extra: tuple[tuple[str, str], ...] = ()
    """Keys that an entry has beside the command."""

    def find_file(self) -> Path:
        """Return the path of the file, whether it exists or not."""
        folder = self.folders.get(sys.platform, self.folders[""])
        return Path(os.path.expandvars(folder)).expanduser() / self.file


def _make_folders(linux: str, mac: str, windows: str) -> dict[str, str]:
    return {"": linux, "darwin": f"~/Library/Application Support/{mac}", "win32": f"${{APPDATA}}/{windows}"}


CLIENTS: Final[Mapping[str, ClientProgram]] = {
    "claude-desktop": ClientProgram(
        "Claude Desktop", _make_folders("~/.config/Claude", "Claude", "Claude"), "claude_desktop_config.json"
    ),
    "claude-code": ClientProgram("Claude Code", {"": "~"}, ".claude.json", extra=(("type", "stdio"),)),
    "cursor": ClientProgram("Cursor", {"": "~/.cursor"}, "mcp.json"),
    "vscode": ClientProgram(
        "Visual Studio Code",
        _make_folders("~/.config/Code/User", "Code/User", "Code/User"),
        "mcp.json",
        "servers",
        (("type", "stdio"),),
    ),
    "gemini": ClientProgram("Gemini CLI", {"": "~/.gemini"}, "settings.json"),
    "codex": ClientProgram("Codex", {"": "~/.codex"}, "config.toml", "mcp_servers"),
    "windsurf": ClientProgram("Windsurf", {"": "~/.codeium/windsurf"}, "mcp_config.json"),
    "zed": ClientProgram(
        "Zed", {"": "~/.config/zed", "win32": "${APPDATA}/Zed"}, "settings.json", "context_servers",
        (("source", "custom"),),
    ),
}  # fmt: skip


def check_name(name: str) -> str:
    """Return the name of a server.

    Raises:
        ConfigError: it has characters that a client may read otherwise.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{clip(name)!r} cannot name a server. Use at most 64 letters, digits, dashes and underscores."
        )
    return name


def read_text(file: Path) -> str:
    """Return the text of a configuration file; empty if it does not exist.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"Cannot read {str(file)!r}: {error}.") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{str(file)!r} is larger than {MAX_FILE_BYTES:,} bytes. It was left as it is.")
    return text


def add_server(client: ClientProgram, text: str, name: str, server: ServerCommand) -> str:
    """Return the text of a configuration file with a server; one of the same name is replaced.

    Raises:
        ConfigError: the file cannot be changed without a loss; says what to add by hand.
    """
    entry = {**dict(client.extra), **server.to_json()}
    if client.file.endswith(".toml"):
        kept = _cut_tables(text, client.key, name).rstrip("\n")
        return _check_toml(
            text, f"{kept}\n\n" * bool(kept) + _write_table(client.key, name, entry), client.key, {name: entry}
        )

    def put(servers: dict[str, Any]) -> None:
        servers[name] = entry

    return _change_json(client, text, put, f"Add this to {client.key!r} by hand: {json.dumps({name: entry})}")


def remove_server(client: ClientProgram, text: str, name: str) -> str:
    """Return the text of a configuration file without a server.

    Raises:
        ConfigError: the file cannot be changed without a loss, or has no such server.
    """
    if client.file.endswith(".toml"):
        left = _cut_tables(text, client.key, name)
        if left == text:
            raise ConfigError(f"{client.title} has no server {name!r}.")
        left = left.strip("\n")
        return _check_toml(text, f"{left}\n" * bool(left), client.key, {name: None})

    def drop(servers: dict[str, Any]) -> None:
        if servers.pop(name, None) is None:
            raise ConfigError(f"{client.title} has no server {name!r}.")

    return _change_json(client, text, drop, f"Remove {name!r} from {client.key!r} by hand.")


def hide_secrets(client: ClientProgram, line: str, *texts: str) -> str:
    """Return a line of a configuration file without the values of `env` and `headers` of any server."""
    for text in texts:
        try:
            data: Any = tomllib.loads(text) if client.file.endswith(".toml") else json.loads(text or "{}")
        except (ValueError, RecursionError):
            continue
        servers = data.get(client.key) if isinstance(data, dict) else None
        for server in servers.values() if isinstance(servers, dict) else ():
            for field in ("env", "headers", "http_headers"):
                values = server.get(field) if isinstance(server, dict) else None
                for value in values.values() if isinstance(values, dict) else ():
                    line = line.replace(_write_value(value), '"***"').replace(f"'{value}'", "'***'")
    return line


# --- JSON ----------------------------------------------------------------------------------------


def _change_json(client: ClientProgram, text: str, change: Callable[[dict[str, Any]], None], by_hand: str) -> str:
    """Return JSON text with a changed object of servers. A file with comments is not rewritten: they would be lost."""
    try:
        data: Any = json.loads(text, object_pairs_hook=_to_dict) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        reason = f"it is not plain JSON ({error}); comments would be lost"
        raise ConfigError(f"The file of {client.title} was left as it is: {reason}. {by_hand}") from None
    servers = data.setdefault(client.key, {}) if isinstance(data, dict) else None
    if not isinstance(servers, dict):
        raise ConfigError(f"The file of {client.title} was left as it is: {client.key!r} is not an object. {by_hand}")
    change(servers)
    indent = re.search(r"^[ \t]+(?=\S)", text, re.MULTILINE)
    return json.dumps(data, indent=indent[0] if indent else 2, ensure_ascii=False) + "\n"


def _to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key appears twice")
    return found


# --- TOML ----------------------------------------------------------------------------------------


def _write_table(key: str, name: str, entry: Mapping[str, Any]) -> str:
    lines = [f"[{key}.{name}]"]
    lines += [f"{field} = {_write_value(value)}" for field, value in entry.items() if field != "env"]
    if env := entry.get("env"):
        lines += ["", f"[{key}.{name}.env]", *(f"{_write_value(one)} = {_write_value(env[one])}" for one in env)]
    return "\n".join(lines) + "\n"


def _write_value(value: Any) -> str:
    # A basic string of TOML has the escapes of JSON, and also needs one for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _cut_tables(text: str, key: str, name: str) -> str:
    """Return TOML without the tables of a server."""
    header = re.compile(rf"\s*\[\s*{re.escape(key)}\s*\.\s*[\"']?{re.escape(name)}[\"']?\s*(\.[^\]]*)?\]\s*(#.*)?")
    kept, is_cut = [], False
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("["):
            is_cut = header.fullmatch(line.rstrip("\r\n")) is not None
        if not is_cut:
            kept.append(line)
    return "".join(kept)


def _check_toml(before: str, after: str, key: str, change: Mapping[str, Any]) -> str:
    """Return changed TOML after a check that only this server changed: a file may write one in unusual ways."""
    try:
        wanted, found = tomllib.loads(before), tomllib.loads(after)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The file was left as it is: it is not valid TOML ({error}).") from None
    servers = {**wanted.pop(key, {}), **change}
    wanted[key] = {name: entry for name, entry in servers.items() if entry is not None}
    if {key: {}, **found} != wanted:
        raise ConfigError(f"The file was left as it is: {key!r} is written in an unusual way. Change it by hand.")
    return after
