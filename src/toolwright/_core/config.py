"""Settings in layers; later wins: defaults < TOML < .properties < environment < code.

Lives here: reading files and the environment into one flat, dotted mapping. Not here: what a key means
to the part that reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from toolwright.errors import ConfigError

PREFIX = "TOOLWRIGHT_"
"""Environment variables of ours: `TOOLWRIGHT_LIMITS__CALL_TIMEOUT` is the key `limits.call_timeout`."""


class Config(Mapping[str, Any]):
    """Settings by dotted key, whatever its case.

    `Config()` holds the environment; `Config.load(...)` reads files below it. Case does not matter, because the
    names of environment variables have none.
    """

    __slots__ = ("_folded", "_values")

    def __init__(self, values: Mapping[str, Any] | None = None, /, *, environ: Mapping[str, str] | None = None) -> None:
        layers = (_from_environment(os.environ if environ is None else environ), _flat(values or {}))
        self._values, self._folded = _merged(layers)

    @classmethod
    def load(
        cls, *paths: str | Path, values: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
    ) -> Config:
        """Read files, TOML first and `.properties` over it, then the environment, then `values`.

        Raises:
            ConfigError: a file is missing or cannot be read; names the file and the place.
        """
        files = sorted(map(Path, paths), key=lambda path: path.suffix == ".properties")
        layers = [_read(path) for path in files]
        layers.append(_from_environment(os.environ if environ is None else environ))
        merged, _ = _merged([*layers, _flat(values or {})])
        return cls(merged, environ={})

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (dict(self._values),)

    def __getitem__(self, key: str) -> Any:
        return self._values[self._folded[key.casefold()]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        # Values may be secrets, so only the keys are shown.
        return f"Config({', '.join(sorted(self._values))})"


def _restored(values: dict[str, Any]) -> Config:
    return Config(values, environ={})


def _merged(layers: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, Any], dict[str, str]]:
    """Return one mapping, later layers over earlier ones, with each key as it was written first."""
    values: dict[str, Any] = {}
    written: dict[str, str] = {}
    for layer in layers:
        for key, value in layer.items():
            values[written.setdefault(key.casefold(), key)] = value
    return MappingProxyType(values), written


def _from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name.removeprefix(PREFIX).lower().replace("__", "."): value
        for name, value in environ.items()
        if name.startswith(PREFIX)
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the configuration file {str(path)!r}: {error}. Check the path.") from error
    if path.suffix == ".properties":
        return _properties(text, path)
    import tomllib  # noqa: PLC0415 - 5 ms at start-up, for programs that read a file

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}. Correct the file at that place.") from error
    return _flat(data.get("tool", {}).get("toolwright", {}) if path.name == "pyproject.toml" else data)


def _properties(text: str, path: Path) -> dict[str, str]:
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        entry = line.strip()
        if not entry or entry[0] in "#!":
            continue
        key, equals, value = entry.partition("=")
        if not equals:
            raise ConfigError(f"{path}:{number}: expected `key=value`, got {entry!r}.")
        values[key.strip()] = value.strip()
    return values
