"""Files, the environment and code → settings by dotted key, each with the place it comes from.

Lives here: reading one layer, and laying one over another. Not here: what a key means (`known`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolmason._core.config.properties import BadEscape, parse_properties
from toolmason.errors import ConfigError

ENVIRONMENT_PREFIX: Final = "TOOLMASON_"
"""Environment variables of ours: `TOOLMASON_ENGINE__CALL_TIMEOUT` is the key `engine.call_timeout`."""


class ConfigEntry(NamedTuple):
    """One setting."""

    key: str
    """As it is written."""
    value: Any
    origin: str
    """Where it is written, for messages."""
    folder: str | None = None
    """The folder of its file, for paths that are relative to it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConfigEntries:
    """Settings by key, whatever its case: the names of environment variables have none."""

    by_key: Mapping[str, ConfigEntry]

    @classmethod
    def merge(cls, layers: Iterable[Iterable[ConfigEntry]]) -> ConfigEntries:
        """Lay later layers over earlier ones; each key stays as it was written first."""
        merged_entries: dict[str, ConfigEntry] = {}
        for layer in layers:
            for entry in layer:
                folded = entry.key.casefold()
                merged_entries[folded] = (
                    entry._replace(key=merged_entries[folded].key) if folded in merged_entries else entry
                )
        return cls(merged_entries)

    def find(self, key: str) -> ConfigEntry | None:
        """Return the entry of a key."""
        return self.by_key.get(key.casefold())

    def iter_group(self, group: str) -> Iterator[tuple[str, ConfigEntry]]:
        """Yield the entries of a group, with the rest of their keys in lower case."""
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
    """Yield the settings of a mapping; nested ones become dotted keys."""
    for key, value in _flatten(values):
        yield ConfigEntry(key, value, "code")


def read_config_file(path: Path) -> list[ConfigEntry]:
    """Read a `.properties` or TOML file.

    Raises:
        ConfigError: it is missing or cannot be read; names the file and the place.
    """
    text, folder = read_config_text(path), str(path.absolute().parent)
    if path.suffix == ".properties":
        try:
            return [ConfigEntry(key, value, f"{path}:{line}", folder) for line, key, value in parse_properties(text)]
        except BadEscape as bad:
            raise ConfigError(
                f"{path}:{bad.line}: {bad.text!r} is not an escape. Write four hexadecimal digits after `\\u`, "
                "or double the backslash."
            ) from bad
    return [ConfigEntry(key, value, str(path), folder) for key, value in _flatten(_parse_toml_table(text, path))]


def read_toml_table(path: Path) -> Mapping[str, Any]:
    """Return the settings of a TOML file as they are written; none where it is of another kind.

    Raises:
        ConfigError: it is missing or cannot be read.
    """
    return {} if path.suffix == ".properties" else _parse_toml_table(read_config_text(path), path)


def has_toml_table(path: Path) -> bool:
    """Tell whether a `pyproject.toml` has settings of ours."""
    # Most have none; reading the table costs more than looking for the word.
    return "toolmason" in read_config_text(path) and bool(_parse_toml_table(read_config_text(path), path))


def read_config_text(path: Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        ConfigError: there is no such file, or it is not text.
    """
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"Cannot read the configuration file {str(path)!r}: {error}. Check the path.") from error


def _parse_toml_table(text: str, path: Path) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 - 5 ms at start-up, for programs that read a file

    try:
        data: Mapping[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}. Correct the file at that place.") from error
    for part in ("tool", "toolmason") if path.name == "pyproject.toml" else ():
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
