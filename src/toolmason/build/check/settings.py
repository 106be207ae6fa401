"""`[tool.toolmason.check]` and the options of the command → one frozen set of settings.

Lives here: which keys there are, and what each may be. Not here: what a rule does with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Final, Literal

from toolmason._core.config.config import Config
from toolmason.build.check.provider_limits import PROVIDERS
from toolmason.build.check.rules import RULES, parse_codes
from toolmason.build.check.static.definition_rules import MAX_DESCRIPTION_CHARS
from toolmason.errors import ConfigError

_KEY_PREFIX: Final = "check."
_ALL: Final = frozenset(RULES)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSettings:
    """How a check is done."""

    select: frozenset[str] = _ALL
    """The codes that are looked for."""
    ignore: frozenset[str] = frozenset()
    """The codes that are not."""
    exclude: tuple[str, ...] = ()
    """Patterns of paths that are left out when a folder is searched."""
    require_descriptions: Literal["error", "warning", "off"] = "warning"
    """How much a parameter without a description matters (TM101)."""
    max_description: int = MAX_DESCRIPTION_CHARS
    """How many characters a description may have (TM203)."""
    budget: int | None = None
    """How many tokens all tools of a target may take together (TM401)."""
    tool_budget: int | None = None
    """How many tokens one tool may take (TM402)."""
    require_strict: tuple[str, ...] = ()
    """The providers whose strict mode every tool must fit (TM206)."""
    experimental: bool = False
    """Whether experimental API is allowed (TM125)."""

    @property
    def codes(self) -> frozenset[str]:
        """The codes that are reported."""
        return self.select - self.ignore


def read_settings(config: Config) -> CheckSettings:
    """Read the settings of a check from a configuration.

    Raises:
        ConfigError: a key is unknown, or a value does not fit; names the place, the key and the value.
    """
    given: dict[str, Any] = {}
    for key, value in config.items():
        if key.casefold().startswith(_KEY_PREFIX):
            name, origin = key[len(_KEY_PREFIX) :].casefold(), config.origin(key)
            if name not in _READERS:
                near = get_close_matches(name, _READERS, n=1)
                hint = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(_READERS)}."
                raise ConfigError(f"{origin}: `check` has no key {name!r}. {hint}")
            given[name] = _READERS[name](value, f"{origin}: `{key}`")
    return CheckSettings(experimental=config.experimental, **given)


def override_settings(settings: CheckSettings, **overrides: Any) -> CheckSettings:
    """Return settings with what the command line says over them; `None` says nothing.

    Raises:
        ConfigError: a value does not fit; names the option.
    """
    known = {item.name for item in fields(CheckSettings)}
    given = {name: value for name, value in overrides.items() if value not in (None, (), []) and name in known}
    read = {name: _READERS[name](value, f"--{name.replace('_', '-')}") for name, value in given.items()}
    return replace(settings, **read)


def _parse_words(value: Any, origin: str) -> tuple[str, ...]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not all(isinstance(item, str) for item in items):
        raise ConfigError(f"{origin} is {value!r}: give a list of texts.")
    return tuple(word.strip() for item in items for word in item.split(",") if word.strip())


def _parse_codes(value: Any, origin: str) -> frozenset[str]:
    return parse_codes(_parse_words(value, origin), origin)


def _parse_count(value: Any, origin: str) -> int:
    number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ConfigError(f"{origin} is {value!r}: give a whole number above 0.")
    return number


def _parse_severity(value: Any, origin: str) -> str:
    known = {"error": "error", "warning": "warning", "off": "off", True: "error", False: "off"}
    found = known.get(value) if isinstance(value, str | bool) else None
    if found is None:
        raise ConfigError(f'{origin} is {value!r}: give "error", "warning" or "off".')
    return found


def _parse_providers(value: Any, origin: str) -> tuple[str, ...]:
    names = tuple(word.casefold() for word in _parse_words(value, origin))
    for name in names:
        if name not in PROVIDERS:
            raise ConfigError(f"{origin} names the provider {name!r}. There are: {', '.join(PROVIDERS)}.")
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
