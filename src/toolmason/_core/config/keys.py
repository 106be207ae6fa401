"""Settings by key → typed values of the keys that mean something to us.

Lives here: what each known key takes, and the error for one that does not fit: place, key, value, fix.
Not here: where settings come from (`entries`), or who uses the values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from toolmason._core.config.layers import Entries, Entry
from toolmason._core.config.mcp_json import ServerSettings
from toolmason._core.values.policy import Settings
from toolmason.errors import ConfigError

_GROUP: Final = re.compile(r"mcp(?:_([0-9]{1,9}))?\.", re.IGNORECASE)
_MCP_KEYS: Final = ("url", "name", "description", "authorization", "native")
_SEARCH_KEYS: Final = ("type", "city", "country", "region")
_TOOLS_KEYS: Final = ("throw_on_error", "include_content")
_SECRETS: Final = re.compile(r"authorization|header|token|secret|password|key\b", re.IGNORECASE)
_ON, _OFF = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class WebSearchSettings:
    """What the keys `WebSearchTool.*` say: a search that the provider runs, and roughly from where."""

    type: str
    city: str | None = None
    country: str | None = None
    region: str | None = None


def as_flag(value: Any) -> bool | None:
    """Return what a yes or no means, `None` where it is neither."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    return True if word in _ON else False if word in _OFF else None


def flag(entries: Entries, key: str) -> bool:
    """Return a switch; off where nobody set it.

    Raises:
        ConfigError: the value is neither on nor off.
    """
    entry = entries.find(key)
    if entry is None:
        return False
    if (found := as_flag(entry.value)) is None:
        raise ConfigError(f"{_said(entry)} is not a yes or no. Write true or false.")
    return found


def project_dir(entries: Entries) -> Path | None:
    """Return the folder that tools work in; a relative one is relative to the file that says it.

    Raises:
        ConfigError: the value is not a path.
    """
    entry = entries.find("project_dir")
    if entry is None:
        return None
    if not isinstance(entry.value, str | Path) or not str(entry.value).strip() or "\0" in str(entry.value):
        raise ConfigError(f"{_said(entry)} is not a folder. Write a path.")
    return (Path(entry.folder or "") / entry.value).absolute()


def limits(entries: Entries) -> Settings | None:
    """Return the settings that `limits.*` give; `None` where there are none.

    Raises:
        ConfigError: there is no such limit, or the value is not a number that makes sense.
    """
    known = {item.name: item for item in fields(Settings)}
    values: dict[str, Any] = {}
    for name, entry in entries.under("limits"):
        if name not in known:
            raise ConfigError(
                f"Unknown key {entry.key!r} in {entry.origin}.{_near(name, known)} "
                f"The limits are: {', '.join(sorted(known))}."
            )
        values[name] = _number(entry, str(known[name].type))
    return Settings(**values) if values else None


def _number(entry: Entry, kind: str) -> float | None:
    if "None" in kind and (entry.value is None or str(entry.value).strip().lower() == "none"):
        return None
    try:
        value = int(entry.value) if kind == "int" else float(entry.value)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    whole = not isinstance(entry.value, float) or value == entry.value
    if isinstance(entry.value, bool) or math.isnan(value) or not whole:
        raise ConfigError(f"{_said(entry)} is not a number. Give seconds, bytes or a count.")
    if not 0 < value < math.inf:
        raise ConfigError(f"{_said(entry)} is not a limit. Give a number above 0.")
    return value


def tools(entries: Entries) -> dict[str, bool]:
    """Return the switches `tools.*`.

    Raises:
        ConfigError: there is no such switch, or the value is neither on nor off.
    """
    for name, entry in entries.under("tools"):
        if name not in _TOOLS_KEYS:
            raise _unknown(entry, name, _TOOLS_KEYS)
    return {name: flag(entries, f"tools.{name}") for name in _TOOLS_KEYS}


def web_search(entries: Entries) -> WebSearchSettings | None:
    """Return what `WebSearchTool.*` say; `None` where nobody set them.

    Raises:
        ConfigError: there is no such key, a value is not a text, or the type is missing.
    """
    found = _texts(entries, "WebSearchTool", _SEARCH_KEYS)
    if not found:
        return None
    if "type" not in found:
        entry = next(iter(found.values()))
        raise ConfigError(
            f"{entry.key!r} is set in {entry.origin}, and 'WebSearchTool.type' is not. Set it; `default` will do."
        )
    return WebSearchSettings(**{name: entry.value for name, entry in found.items()})


def servers(entries: Entries) -> tuple[ServerSettings, ...]:
    """Return the servers of `MCP.*`, `MCP_1.*`, `MCP_2.*` …, in number order; a gap hides none.

    Raises:
        ConfigError: a group lacks its name or url, has a key that there is not, or two have one name.
    """
    groups = {found[0].removesuffix(".") for key in entries.by_key if (found := _GROUP.match(key))}
    ordered = sorted(groups, key=lambda group: (int(group.partition("_")[2] or -1), group))
    all_of_them = [_server(entries, group) for group in ordered]
    for number, server in enumerate(all_of_them):
        for earlier in all_of_them[:number]:
            if earlier.name == server.name:
                raise ConfigError(
                    f"Two MCP servers are named {server.name!r}: in {earlier.origin} and in {server.origin}. "
                    "Give one another name."
                )
    return tuple(all_of_them)


def _server(entries: Entries, group: str) -> ServerSettings:
    found = _texts(entries, group, _MCP_KEYS)
    first = next(iter(found.values()))
    shown = first.key.rpartition(".")[0]
    for needed in ("name", "url"):
        if needed not in found or not found[needed].value:
            raise ConfigError(
                f"'{shown}.{needed}' is missing, and {first.key!r} is set in {first.origin}. "
                "An MCP server needs a name and a url: set both, or remove the group."
            )
    values = {name: entry.value for name, entry in found.items()}
    values["native"] = flag(entries, f"{group}.native")
    if not re.match(r"https?://[^\s/]", values["url"]):
        raise ConfigError(f"{_said(found['url'])} is not an address. Write http://… or https://….")
    return ServerSettings(origin=found["name"].origin, **values)


def _texts(entries: Entries, group: str, known: Iterable[str]) -> dict[str, Entry]:
    """Return the entries of a group that holds texts alone, in the order of its known keys."""
    found = dict(entries.under(group))
    for name, entry in found.items():
        if name not in known:
            raise _unknown(entry, name, known)
        if not isinstance(entry.value, str) and name != "native":
            raise ConfigError(f"{_said(entry)} is not a text. Put it in quotes.")
    return {name: found[name] for name in known if name in found}


def _unknown(entry: Entry, name: str, known: Iterable[str]) -> ConfigError:
    group = entry.key.rpartition(".")[0] or entry.key
    there = ", ".join(f"{group}.{word}" for word in known)
    return ConfigError(f"Unknown key {entry.key!r} in {entry.origin}.{_near(name, known)} There are: {there}.")


def _near(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - 2 ms at start-up, for a key that is misspelt

    close = get_close_matches(name[:64], list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _said(entry: Entry) -> str:
    """Return a setting as a message shows it; never a value that may be a secret."""
    value = "…" if _SECRETS.search(entry.key) else repr(entry.value)[:80]
    return f"{entry.key}={value} in {entry.origin}"
