"""Convert the known configuration keys to typed values.

Each function raises `ConfigError` for an unknown key or an invalid value; the error names the origin and the fix.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from toolmason._core.config.layers import ConfigEntries, ConfigEntry
from toolmason._core.config.mcp_json import ServerSettings
from toolmason._core.values.policy import EngineSettings, Limits
from toolmason._text import suggest_name
from toolmason.errors import ConfigError

_MCP_GROUP: Final = re.compile(r"mcp(?:_([0-9]{1,9}))?\.", re.IGNORECASE)
_MCP_KEYS: Final = ("url", "name", "description", "authorization", "native")
_SEARCH_KEYS: Final = ("type", "city", "country", "region")
_TOOLS_KEYS: Final = ("throw_on_error", "include_content", "spring_names")
_SECRET_KEY: Final = re.compile(r"authorization|header|token|secret|password|key\b", re.IGNORECASE)
_TRUE_WORDS: Final = ("true", "yes", "on", "1")
_FALSE_WORDS: Final = ("false", "no", "off", "0")
_Numbers = TypeVar("_Numbers", EngineSettings, Limits, "ModelSettings")


@dataclass(frozen=True, slots=True)
class WebSearchSettings:
    """Settings of the keys `WebSearchTool.*`: a search that the provider runs, with an approximate location."""

    type: str
    city: str | None = None
    country: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Settings of the keys `model.*`: options of each request of a chat."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None


def parse_flag(value: Any) -> bool | None:
    """Return the boolean that a value stands for, or None if it is not one."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in _TRUE_WORDS:
        return True
    return False if word in _FALSE_WORDS else None


def read_flag(entries: ConfigEntries, key: str) -> bool:
    """Return a boolean setting, or False if it is unset."""
    entry = entries.find(key)
    if entry is None:
        return False
    if (parsed := parse_flag(entry.value)) is None:
        raise ConfigError(f"{_describe_entry(entry)} is not a boolean. Use true or false.")
    return parsed


def read_project_dir(entries: ConfigEntries) -> Path | None:
    """Return the folder that tools work in, or None if it is unset. A relative path is resolved against its file."""
    entry = entries.find("project_dir")
    if entry is None:
        return None
    if not isinstance(entry.value, str | Path) or not str(entry.value).strip() or "\0" in str(entry.value):
        raise ConfigError(f"{_describe_entry(entry)} is not a folder. Use a path.")
    return (Path(entry.folder or "") / entry.value).absolute()


def read_numbers(entries: ConfigEntries, group: str, cls: type[_Numbers]) -> _Numbers | None:
    """Return the numbers of a group as a data class, or None if no key of the group is set."""
    known = {item.name: str(item.type) for item in fields(cls)}
    values: dict[str, Any] = {}
    for name, entry in entries.iter_group(group):
        if name not in known:
            raise _unknown_key_error(entry, name, sorted(known))
        values[name] = _parse_number(entry, known[name], may_be_zero=cls is not EngineSettings)
    return cls(**values) if values else None


def _parse_number(entry: ConfigEntry, kind: str, *, may_be_zero: bool) -> float | None:
    if "None" in kind and (entry.value is None or str(entry.value).strip().lower() == "none"):
        return None
    try:
        value = int(entry.value) if kind.startswith("int") else float(entry.value)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    is_exact = not isinstance(entry.value, float) or value == entry.value
    if isinstance(entry.value, bool) or math.isnan(value) or not is_exact:
        raise ConfigError(f"{_describe_entry(entry)} is not a number. Use seconds, bytes or a count.")
    if not 0 <= value < math.inf or (value == 0 and not may_be_zero):
        lowest = "of at least 0" if may_be_zero else "above 0"
        raise ConfigError(f"{_describe_entry(entry)} is out of range. Use a number {lowest}.")
    return value


def read_tool_flags(entries: ConfigEntries) -> dict[str, bool]:
    """Return the boolean settings in `tools.*`."""
    for name, entry in entries.iter_group("tools"):
        if name not in _TOOLS_KEYS:
            raise _unknown_key_error(entry, name, _TOOLS_KEYS)
    return {name: read_flag(entries, f"tools.{name}") for name in _TOOLS_KEYS}


def read_web_search(entries: ConfigEntries) -> WebSearchSettings | None:
    """Return the settings in `WebSearchTool.*`, or None if no such key is set."""
    search_entries = _read_text_group(entries, "WebSearchTool", _SEARCH_KEYS)
    if not search_entries:
        return None
    if "type" not in search_entries:
        entry = next(iter(search_entries.values()))
        raise ConfigError(
            f"{entry.key!r} is set in {entry.origin}, but 'WebSearchTool.type' is not. Set it, e.g. to `default`."
        )
    return WebSearchSettings(**{name: entry.value for name, entry in search_entries.items()})


def read_servers(entries: ConfigEntries) -> tuple[ServerSettings, ...]:
    """Return the servers in `MCP.*`, `MCP_1.*`, `MCP_2.*` …, in numeric order. Numbers may have gaps."""
    groups = {match[0].removesuffix(".") for key in entries.by_key if (match := _MCP_GROUP.match(key))}
    ordered = sorted(groups, key=lambda group: (int(group.partition("_")[2] or -1), group))
    return tuple(_read_server(entries, group) for group in ordered)


def drop_servers(entries: ConfigEntries) -> list[ConfigEntry]:
    """Return the settings without the groups of servers that are not native."""
    groups = {key: match[0] for key in entries.by_key if (match := _MCP_GROUP.match(key))}
    native = {group for group in groups.values() if read_flag(entries, f"{group}native")}
    return [entry for key, entry in entries.by_key.items() if key not in groups or groups[key] in native]


def _read_server(entries: ConfigEntries, group: str) -> ServerSettings:
    group_entries = _read_text_group(entries, group, _MCP_KEYS)
    first = next(iter(group_entries.values()))
    group_name = first.key.rpartition(".")[0]
    for required_key in ("name", "url"):
        if required_key not in group_entries or not group_entries[required_key].value:
            raise ConfigError(
                f"'{group_name}.{required_key}' is missing, but {first.key!r} is set in {first.origin}. "
                "An MCP server needs a name and a url: set both, or remove the group."
            )
    values = {name: entry.value for name, entry in group_entries.items()}
    values["native"] = read_flag(entries, f"{group}.native")
    if not re.match(r"https?://[^\s/]", values["url"]):
        raise ConfigError(f"{_describe_entry(group_entries['url'])} is not a URL. Use http://… or https://….")
    return ServerSettings(origin=group_entries["name"].origin, **values)


def _read_text_group(entries: ConfigEntries, group: str, known: Iterable[str]) -> dict[str, ConfigEntry]:
    """Return the entries of a group of string settings, in the order of `known`."""
    group_entries = dict(entries.iter_group(group))
    for name, entry in group_entries.items():
        if name not in known:
            raise _unknown_key_error(entry, name, known)
        if not isinstance(entry.value, str) and name != "native":
            raise ConfigError(f"{_describe_entry(entry)} is not a string. Put it in quotes.")
    return {name: group_entries[name] for name in known if name in group_entries}


def _unknown_key_error(entry: ConfigEntry, name: str, known: Iterable[str]) -> ConfigError:
    group = entry.key.rpartition(".")[0] or entry.key
    known_keys = ", ".join(f"{group}.{known_name}" for known_name in known)
    hints = filter(None, (suggest_name(name, known), f"Available: {known_keys}."))
    return ConfigError(f"Unknown key {entry.key!r} in {entry.origin}. {' '.join(hints)}")


def _describe_entry(entry: ConfigEntry) -> str:
    """Return a setting for an error message, with values that may be secret masked."""
    value = "…" if _SECRET_KEY.search(entry.key) else repr(entry.value)[:80]
    return f"{entry.key}={value} in {entry.origin}"
