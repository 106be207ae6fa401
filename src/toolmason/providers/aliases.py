"""Names of tools and ids of calls → what a provider takes, and back.

Lives here: aliases for names that an API refuses. They follow from the names alone, so that the bytes of a request stay
the same. Not here: which names are refused (each provider's module).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

PORTABLE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASH: Final = 8


class Names:
    """The tools of one request under the names that one provider takes."""

    def __init__(
        self,
        names: Iterable[str],
        rule: str,
        longest: int = 64,
        keys: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._rule, self._longest = re.compile(rule), longest
        self._keys = {tool: aliases for tool, aliases in (keys or {}).items() if aliases}
        """Tool → what is sent instead of the name of a property → that name."""
        own = list(dict.fromkeys(names))
        self._aliases: dict[str, str] = {}
        legal = {name for name in own if self._rule.fullmatch(name)}
        refused = [name for name in own if name not in legal]
        plain = [self._plain(name) for name in refused]
        seen = Counter(plain)
        for name, alias in zip(refused, plain, strict=True):
            # Two names that would look alike both carry a mark, so that neither depends on the other's place.
            alone = alias not in legal and seen[alias] == 1
            self._aliases[name] = alias if alone else self._marked(name)
        self._names = {alias: name for name, alias in self._aliases.items()}

    def alias(self, name: str) -> str:
        """Return the name as the provider takes it; also for a tool of the past that is offered no more."""
        known = self._aliases.get(name)
        if known is not None:
            return known
        return name if self._rule.fullmatch(name) else self._marked(name)

    def name(self, alias: str) -> str:
        """Return the tool's own name for what a model called it."""
        return self._names.get(alias, alias)

    def own_keys(self, tool: str, arguments: Any) -> Any:
        """Return the arguments that a model gave, under the names that the tool has for them."""
        aliases = self._keys.get(tool)
        return arguments if aliases is None else _renamed(arguments, aliases)

    def sent_keys(self, tool: str, arguments: Any) -> Any:
        """Return the arguments of a call of the past, under the names that the provider takes."""
        aliases = self._keys.get(tool)
        return arguments if aliases is None else _renamed(arguments, {own: alias for alias, own in aliases.items()})

    def _plain(self, name: str) -> str:
        shown = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        if not shown or not (shown[0].isalpha() or shown[0] == "_"):
            shown = f"_{shown}"
        return shown if len(shown) <= self._longest else self._marked(name)

    def _marked(self, name: str) -> str:
        shown = re.sub(r"[^A-Za-z0-9_-]", "_", name)[: self._longest - _HASH - 2]
        return f"{'' if shown[:1].isalpha() else '_'}{shown}_{digest(name, _HASH)}"


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {names.get(key, key): _renamed(part, names) for key, part in value.items()}
    return [_renamed(part, names) for part in value] if isinstance(value, list) else value


def key_alias(name: str, longest: int = 64) -> str:
    """Return what is sent instead of the name of a property. It is marked: data may have keys of any other name."""
    shown = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[: longest - _HASH - 1]
    return f"{shown}_{digest(name, _HASH)}"


def digest(text: str, length: int) -> str:
    """Return some hexadecimal digits that follow from a text."""
    from hashlib import sha256  # noqa: PLC0415 - 4 ms at start-up, for the rare long name

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def wire_id(call_id: str) -> str:
    """Return the id of a call as every provider takes it."""
    return call_id if PORTABLE_ID.fullmatch(call_id) else f"call_{digest(call_id, 24)}"
