"""Map tool names, property names and call ids to forms that a provider accepts, and back.

Aliases depend only on the names, so that request bodies stay byte-identical.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

PORTABLE_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HASH_LENGTH: Final = 8


class ToolNames:
    """Mapping between tool names and one provider's aliases for one request."""

    def __init__(
        self,
        names: Iterable[str],
        name_pattern: str,
        max_length: int = 64,
        keys: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self._name_pattern = re.compile(name_pattern)
        self._max_length = max_length
        self._keys = {tool: aliases for tool, aliases in (keys or {}).items() if aliases}
        """For each tool, the property aliases and the names they replace."""
        unique_names = list(dict.fromkeys(names))
        self._aliases: dict[str, str] = {}
        legal = {name for name in unique_names if self._name_pattern.fullmatch(name)}
        refused = [name for name in unique_names if name not in legal]
        sanitized = [self._sanitize(name) for name in refused]
        counts = Counter(sanitized)
        self._names: dict[str, str] = {}
        # Sorted, so that no alias depends on the order of the tools; if two collide, both get a hash.
        for name, alias in sorted(zip(refused, sanitized, strict=True)):
            unique = alias if counts[alias] == 1 else self._make_hashed_alias(name)
            while unique in legal or unique in self._names:
                unique = self._make_hashed_alias(name if unique == alias else unique)
            self._aliases[name], self._names[unique] = unique, name

    def get_alias(self, name: str) -> str:
        """Return the provider's name for a tool, including past tools that are no longer offered."""
        alias = self._aliases.get(name)
        if alias is not None:
            return alias
        return name if self._name_pattern.fullmatch(name) else self._make_hashed_alias(name)

    def get_name(self, alias: str) -> str:
        """Return the tool's own name for an alias."""
        return self._names.get(alias, alias)

    def restore_keys(self, tool: str, arguments: Any) -> Any:
        """Return a model's arguments with aliases replaced by the tool's own property names."""
        aliases = self._keys.get(tool)
        return arguments if aliases is None else _rename_keys(arguments, aliases)

    def alias_keys(self, tool: str, arguments: Any) -> Any:
        """Return the arguments of a past call with property names replaced by their aliases."""
        aliases = self._keys.get(tool)
        return arguments if aliases is None else _rename_keys(arguments, {own: alias for alias, own in aliases.items()})

    def _sanitize(self, name: str) -> str:
        sanitized = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        if not sanitized or not (sanitized[0].isalpha() or sanitized[0] == "_"):
            sanitized = f"_{sanitized}"
        return sanitized if len(sanitized) <= self._max_length else self._make_hashed_alias(name)

    def _make_hashed_alias(self, name: str) -> str:
        sanitized = re.sub(r"[^A-Za-z0-9_-]", "_", name)[: self._max_length - _HASH_LENGTH - 2]
        return f"{'' if sanitized[:1].isalpha() else '_'}{sanitized}_{hash_text(name, _HASH_LENGTH)}"


def _rename_keys(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, Mapping):
        return {names.get(key, key): _rename_keys(part, names) for key, part in value.items()}
    return [_rename_keys(part, names) for part in value] if isinstance(value, list) else value


def make_key_alias(name: str, max_length: int = 64) -> str:
    """Return an alias for a property name. It ends in a hash, because data may contain any other key."""
    sanitized = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[: max_length - _HASH_LENGTH - 1]
    return f"{sanitized}_{hash_text(name, _HASH_LENGTH)}"


def hash_text(text: str, length: int) -> str:
    """Return the first hexadecimal digits of the SHA-256 of a string."""
    from hashlib import sha256  # noqa: PLC0415 - 4 ms at start-up, needed only for names that a provider rejects

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


def to_wire_id(call_id: str) -> str:
    """Return a call id that every provider accepts."""
    return call_id if PORTABLE_ID.fullmatch(call_id) else f"call_{hash_text(call_id, 24)}"
