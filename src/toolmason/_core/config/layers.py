"""Read settings from files, the environment and code, and merge them by dotted key."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolmason._core.config.properties import BadEscape, parse_properties
from toolmason.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "TOOLMASON_"
"""Prefix of environment variables: `TOOLMASON_ENGINE__CALL_TIMEOUT` sets the key `engine.call_timeout`."""


def get_state_folder() -> Path:
    """Return the folder with files that all programs of the user share."""
    folder = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA") or Path.home() / ".local" / "state"
    return Path(folder) / "toolmason"


class ConfigEntry(NamedTuple):
    """One setting."""

    key: str
    """The key as written."""
    value: Any
    origin: str
    """Origin, for error messages."""
    folder: str | None = None
    """Folder of its file, to resolve relative paths."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConfigEntries:
    """Settings by case-insensitive key, because environment variables do not preserve case."""

    by_key: Mapping[str, ConfigEntry]

    @classmethod
    def merge(cls, layers: Iterable[Iterable[ConfigEntry]]) -> ConfigEntries:
        """Merge layers, later ones overriding earlier ones. Each key keeps the spelling of its first layer."""
        merged_entries: dict[str, ConfigEntry] = {}
        for layer in layers:
            for entry in layer:
                folded = entry.key.casefold()
                earlier = merged_entries.get(folded)
                merged_entries[folded] = entry if earlier is None else entry._replace(key=earlier.key)
        return cls(merged_entries)

    def find(self, key: str) -> ConfigEntry | None:
        """Return the entry of a key, or None if it is unset."""
        return self.by_key.get(key.casefold())

    def iter_group(self, group: str) -> Iterator[tuple[str, ConfigEntry]]:
        """Yield the entries of a group, with the rest of each key in lower case."""
        prefix = f"{group}.".casefold()
        for folded, entry in self.by_key.items():
            if folded.startswith(prefix):
                yield folded.removeprefix(prefix), entry


def read_environment(environ: Mapping[str, str]) -> Iterator[ConfigEntry]:
    """Yield the settings in environment variables."""
    for name, value in environ.items():
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            yield ConfigEntry(key, value, f"the environment variable {name}")


def read_mapping(values: Mapping[str, Any]) -> Iterator[ConfigEntry]:
    """Yield the settings in a mapping. Nested mappings become dotted keys."""
    for key, value in _flatten(values):
        yield ConfigEntry(key, value, "code")


def read_config_file(path: Path) -> list[ConfigEntry]:
    """Read a `.properties` or TOML file.

    Raises:
        ConfigError: it is missing or unreadable; names the file and the position.
    """
    text = read_config_text(path)
    folder = str(path.absolute().parent)
    if path.suffix == ".properties":
        try:
            return [ConfigEntry(key, value, f"{path}:{line}", folder) for line, key, value in parse_properties(text)]
        except BadEscape as bad:
            raise ConfigError(
                f"{path}:{bad.line}: {bad.text!r} is not a valid escape. Write four hexadecimal digits after `\\u`, "
                "or double the backslash."
            ) from bad
    return [ConfigEntry(key, value, str(path), folder) for key, value in _flatten(_parse_toml_table(text, path))]


def read_toml_table(path: Path) -> Mapping[str, Any]:
    """Return the settings of a TOML file unflattened, or an empty mapping for a `.properties` file.

    Raises:
        ConfigError: it is missing or unreadable.
    """
    return {} if path.suffix == ".properties" else _parse_toml_table(read_config_text(path), path)


def has_toml_table(path: Path) -> bool:
    """Return True if a `pyproject.toml` has a Toolmason table."""
    # Most have none, and a substring search is cheaper than parsing.
    return "toolmason" in read_config_text(path) and bool(_parse_toml_table(read_config_text(path), path))


def read_config_text(path: Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        ConfigError: the file does not exist, or is not text.
    """
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"Cannot read the configuration file {str(path)!r}: {error}. Check the path.") from error


def _parse_toml_table(text: str, path: Path) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 - 5 ms at start-up, needed only to read a file

    try:
        data: Mapping[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: invalid TOML: {error}. Fix the file at that position.") from error
    # A file of another name that is passed in code or with `--config` may have the table of `pyproject.toml`.
    tables = data.get("tool")
    nested = path.name == "pyproject.toml" or (isinstance(tables, Mapping) and "toolmason" in tables)
    for part in ("tool", "toolmason") if nested else ():
        section: Any = data.get(part, {})
        if not isinstance(section, Mapping):
            raise ConfigError(f"{path}: {part!r} is {section!r}, not a table. Write [tool.toolmason].")
        data = section
    return data


def _flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
