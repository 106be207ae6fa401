"""Files, the environment and code → settings by dotted key, each with the place it comes from.

Lives here: reading one layer, and laying one over another. Not here: what a key means (`known`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolmason._core.config.properties import BadEscape, properties_of
from toolmason.errors import ConfigError

PREFIX: Final = "TOOLMASON_"
"""Environment variables of ours: `TOOLMASON_LIMITS__CALL_TIMEOUT` is the key `limits.call_timeout`."""


class Entry(NamedTuple):
    """One setting."""

    key: str
    """As it is written."""
    value: Any
    origin: str
    """Where it is written, for messages."""
    folder: str | None = None
    """The folder of its file, for paths that are relative to it."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Entries:
    """Settings by key, whatever its case: the names of environment variables have none."""

    by_key: Mapping[str, Entry]

    @classmethod
    def merged(cls, layers: Iterable[Iterable[Entry]]) -> Entries:
        """Lay later layers over earlier ones; each key stays as it was written first."""
        found: dict[str, Entry] = {}
        for layer in layers:
            for entry in layer:
                folded = entry.key.casefold()
                found[folded] = entry._replace(key=found[folded].key) if folded in found else entry
        return cls(found)

    def find(self, key: str) -> Entry | None:
        """Return the entry of a key."""
        return self.by_key.get(key.casefold())

    def under(self, group: str) -> Iterator[tuple[str, Entry]]:
        """Yield the entries of a group, with the rest of their keys in lower case."""
        prefix = f"{group}.".casefold()
        for folded, entry in self.by_key.items():
            if folded.startswith(prefix):
                yield folded.removeprefix(prefix), entry


def from_environment(environ: Mapping[str, str]) -> Iterator[Entry]:
    """Yield the settings in environment variables."""
    for name, value in environ.items():
        if name.startswith(PREFIX):
            key = name.removeprefix(PREFIX).lower().replace("__", ".")
            yield Entry(key, value, f"the environment variable {name}")


def from_code(values: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield the settings of a mapping; nested ones become dotted keys."""
    for key, value in _flat(values):
        yield Entry(key, value, "code")


def from_file(path: Path) -> list[Entry]:
    """Read a `.properties` or TOML file.

    Raises:
        ConfigError: it is missing or cannot be read; names the file and the place.
    """
    text, folder = text_of_file(path), str(path.absolute().parent)
    if path.suffix == ".properties":
        try:
            return [Entry(key, value, f"{path}:{line}", folder) for line, key, value in properties_of(text)]
        except BadEscape as bad:
            raise ConfigError(
                f"{path}:{bad.line}: {bad.text!r} is not an escape. Write four hexadecimal digits after `\\u`, "
                "or double the backslash."
            ) from bad
    return [Entry(key, value, str(path), folder) for key, value in _flat(_table(text, path))]


def table_in(path: Path) -> Mapping[str, Any]:
    """Return the settings of a TOML file as they are written; none where it is of another kind.

    Raises:
        ConfigError: it is missing or cannot be read.
    """
    return {} if path.suffix == ".properties" else _table(text_of_file(path), path)


def has_table(path: Path) -> bool:
    """Tell whether a `pyproject.toml` has settings of ours."""
    # Most have none; reading the table costs more than looking for the word.
    return "toolmason" in text_of_file(path) and bool(_table(text_of_file(path), path))


def text_of_file(path: Path) -> str:
    """Return the text of a file, without a byte order mark.

    Raises:
        ConfigError: there is no such file, or it is not text.
    """
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ConfigError(f"Cannot read the configuration file {str(path)!r}: {error}. Check the path.") from error


def _table(text: str, path: Path) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 - 5 ms at start-up, for programs that read a file

    try:
        data: Mapping[str, Any] = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not valid TOML: {error}. Correct the file at that place.") from error
    for part in ("tool", "toolmason") if path.name == "pyproject.toml" else ():
        inner: Any = data.get(part, {})
        if not isinstance(inner, Mapping):
            raise ConfigError(f"{path}: {part!r} is {inner!r}, not a table. Write [tool.toolmason].")
        data = inner
    return data


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
