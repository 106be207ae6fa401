"""Read the settings of a check from `[tool.toolmason.check]` and the command line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from toolmason._core.config.config import Config
from toolmason._text import suggest_name
from toolmason.build.check.provider_limits import PROVIDERS
from toolmason.build.check.rules import RULES, parse_codes
from toolmason.build.check.static.definition_rules import MAX_DESCRIPTION_CHARS
from toolmason.errors import ConfigError

_KEY_PREFIX: Final = "check."
_ALL: Final = frozenset(RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """Settings of a check."""

    select: frozenset[str] = _ALL
    """Codes to check."""
    ignore: frozenset[str] = frozenset()
    """Codes to skip."""
    exclude: tuple[str, ...] = ()
    """Path patterns to skip when searching a folder."""
    require_descriptions: Literal["error", "warning", "off"] = "warning"
    """Severity of a parameter without a description (TM101)."""
    max_description: int = MAX_DESCRIPTION_CHARS
    """Maximum number of characters in a description (TM203)."""
    budget: int | None = None
    """Maximum number of tokens of all tools of a target (TM401)."""
    tool_budget: int | None = None
    """Maximum number of tokens of one tool (TM402)."""
    require_strict: tuple[str, ...] = ()
    """Providers whose strict mode every tool must support (TM206)."""
    experimental: bool = False
    """True if experimental APIs are allowed (TM125)."""

    @property
    def codes(self) -> frozenset[str]:
        """Codes to report."""
        return self.select - self.ignore


def read_settings(config: Config) -> CheckSettings:
    """Read the settings of a check from the configuration.

    Raises:
        ConfigError: a key is unknown, or a value is invalid; names the origin, the key and the value.
    """
    given: dict[str, Any] = {}
    for key, value in config.items():
        if key.casefold().startswith(_KEY_PREFIX):
            name = key[len(_KEY_PREFIX) :].casefold()
            origin = config.origin(key)
            if name not in _READERS:
                hint = suggest_name(name, _READERS, f"Available: {', '.join(_READERS)}.")
                raise ConfigError(f"{origin}: unknown key {name!r} in `check`. {hint}")
            given[name] = _READERS[name](value, f"{origin}: `{key}`")
    return CheckSettings(experimental=config.experimental, **given)


def override_settings(settings: CheckSettings, **overrides: Any) -> CheckSettings:
    """Return the settings overridden by command-line options; None leaves a setting unchanged.

    Raises:
        ConfigError: a value is invalid; names the option.
    """
    given = {name: value for name, value in overrides.items() if value not in (None, (), [])}
    read = {name: _READERS[name](value, f"--{name.replace('_', '-')}") for name, value in given.items()}
    return replace(settings, **read)


def _parse_words(value: Any, origin: str) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ConfigError(f"{origin} must be a list of strings, not {value!r}.")
    return tuple(word.strip() for item in items for word in item.split(",") if word.strip())


def _parse_codes(value: Any, origin: str) -> frozenset[str]:
    return parse_codes(_parse_words(value, origin), origin)


def _parse_count(value: Any, origin: str) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ConfigError(f"{origin} must be a positive integer, not {value!r}.")
    return number


def _parse_severity(value: Any, origin: str) -> str:
    known = {"error": "error", "warning": "warning", "off": "off", True: "error", False: "off"}
    found = known.get(value) if isinstance(value, str | bool) else None
    if found is None:
        raise ConfigError(f'{origin} must be "error", "warning" or "off", not {value!r}.')
    return found


def _parse_providers(value: Any, origin: str) -> tuple[str, ...]:
    names = tuple(word.casefold() for word in _parse_words(value, origin))
    for name in names:
        if name not in PROVIDERS:
            raise ConfigError(f"{origin}: unknown provider {name!r}. Available: {', '.join(PROVIDERS)}.")
    return names


_READERS: Final[dict[str, Callable[[Any, str], Any]]] = {
    "select": _parse_codes,
    "ignore": _parse_codes,
    "exclude": _parse_words,
    "require_descriptions": _parse_severity,
    "max_description": _parse_count,
    "budget": _parse_count,
    "tool_budget": _parse_count,
    "require_strict": _parse_providers,
}
