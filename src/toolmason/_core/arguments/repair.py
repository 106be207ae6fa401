"""Arguments that are nearly right → what they clearly meant, by the schema; each repair is recorded.

Lives here: the lenient rules (numeric text, whole floats, JSON in text, names of enum members, words for
booleans). They never lose anything: a value is changed only where its own kind does not fit the schema and
the change is exact. Not here: validation, and the wording of errors (`arguments`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from pydantic_core import from_json

from toolmason._core.define.schema_nodes import EnumNames
from toolmason._core.values.results import Repair

_INTEGER: Final = re.compile(r"[+-]?\d{1,4300}")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_LONGEST_NUMBER: Final = 4300
_LARGEST_EXACT_FLOAT: Final = 2.0**53
_WORDS: Final = {"true": True, "false": False}
_DEPTH: Final = 64
_INDIRECT: Final = frozenset({"$ref", "anyOf", "oneOf", "allOf"})

UNCHANGED: Final = object()


class Repairs:
    """One walk over the arguments of one call."""

    __slots__ = ("bools", "enum_names", "made", "root", "texts")

    def __init__(self, root: Mapping[str, Any], enum_names: EnumNames) -> None:
        self.root, self.enum_names = root, enum_names
        self.made: list[Repair] = []
        self.bools: list[str] = []
        """Where a bool stands that fits nothing; Python would take it for 1 or 0."""
        self.texts: list[str] = []
        """Where a text stands for a number."""

    def value(self, value: Any, schema: Any, path: str = "$", depth: int = 0) -> Any:
        """Return `value` with everything in it repaired that needs it."""
        if not isinstance(schema, dict) or depth > _DEPTH:
            return value
        options = (schema,) if schema.keys().isdisjoint(_INDIRECT) else tuple(self._options(schema))
        fitting = [option for option in options if fits(value, option)]
        if fitting:
            return self._inside(value, fitting, path, depth)
        if isinstance(value, bool):
            self.bools.append(path)
        elif isinstance(value, str) and any(option.get("type") == "number" for option in options):
            self.texts.append(path)
        for option in options:
            changed, rule = self._change(value, option)
            if changed is not UNCHANGED:
                self.made.append(Repair(path, rule, value, changed))
                return self.value(changed, option, path, depth + 1) if isinstance(changed, (dict, list)) else changed
        return value

    def _inside(self, value: Any, fitting: list[Mapping[str, Any]], path: str, depth: int) -> Any:
        """Repair what is inside a value of the right kind; where two alternatives could be meant, nothing."""
        if not isinstance(value, (dict, list)):
            return value
        if isinstance(value, dict) and len(fitting) > 1:
            fitting = [option for option in fitting if _tags_agree(value, option)]
        if len(fitting) != 1:
            return value
        if isinstance(value, dict):
            return self._object(value, fitting[0], path, depth)
        return self._array(value, fitting[0], path, depth)

    def _options(self, schema: Mapping[str, Any], seen: int = 0) -> Iterator[Mapping[str, Any]]:
        """Yield the plain alternatives behind references and unions."""
        if seen > _DEPTH:
            return
        if (ref := schema.get("$ref")) is not None:
            target = self.root.get("$defs", {}).get(str(ref).removeprefix("#/$defs/"), {})
            yield from self._options(target, seen + 1)
            return
        branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if not branches:
            yield schema
            return
        for branch in branches:
            if isinstance(branch, dict):
                yield from self._options(branch, seen + 1)

    def _object(self, value: dict[str, Any], schema: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        known = schema.get("properties", {})
        other = schema.get("additionalProperties")
        return {key: self.value(item, known.get(key, other), f"{path}.{key}", depth + 1) for key, item in value.items()}

    def _array(self, value: list[Any], schema: Mapping[str, Any], path: str, depth: int) -> list[Any]:
        first, rest = schema.get("prefixItems", ()), schema.get("items")
        return [
            self.value(item, first[index] if index < len(first) else rest, f"{path}[{index}]", depth + 1)
            for index, item in enumerate(value)
        ]

    def _change(self, value: Any, schema: Mapping[str, Any]) -> tuple[Any, str]:
        if "enum" in schema or "const" in schema:
            return self._member(value, schema), "enum name or case"
        kind = schema.get("type")
        if isinstance(value, float) and kind == "integer":
            whole = value.is_integer() and abs(value) < _LARGEST_EXACT_FLOAT
            return (int(value) if whole else UNCHANGED), "whole number"
        if not isinstance(value, str):
            return UNCHANGED, ""
        if kind == "boolean":
            return _WORDS.get(value.strip().lower(), UNCHANGED), "word for a boolean"
        if kind in ("integer", "number"):
            return exact_number(value.strip(), whole=kind == "integer"), "numeric text"
        if kind in ("array", "object"):
            return _json_in(value, list if kind == "array" else dict), "JSON in text"
        return UNCHANGED, ""

    def _member(self, value: Any, schema: Mapping[str, Any]) -> Any:
        values = schema.get("enum") or [schema.get("const")]
        if not isinstance(value, str):
            return UNCHANGED
        names = self.enum_names.get(id(schema), {})
        if value in names:
            return names[value]
        wanted = value.strip().casefold()
        close = [v for v in values if isinstance(v, str) and v.casefold() == wanted]
        close = close or [v for name, v in names.items() if name.casefold() == wanted]
        # Two members that differ only in case: either could be meant, so neither is taken.
        return close[0] if len(close) == 1 else UNCHANGED


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Tell whether a value is of a kind that the schema takes; what is inside it is not looked at."""
    if "enum" in schema:
        return any(value == v and type(value) is type(v) for v in schema["enum"])
    if "const" in schema:
        return bool(value == schema["const"]) and type(value) is type(schema["const"])
    kinds = schema.get("type")
    if kinds is None:
        return True
    kind = kind_of(value)
    wanted = (kinds,) if isinstance(kinds, str) else kinds
    return kind in wanted or (kind == "integer" and "number" in wanted)


_KINDS: Final = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
}


def _tags_agree(value: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
    """Tell whether the fixed values of an alternative, such as a discriminator, are those of an object."""
    fixed = (
        (key, part)
        for key, part in schema.get("properties", {}).items()
        if isinstance(part, dict) and not part.keys().isdisjoint(("const", "enum"))
    )
    return all(key not in value or fits(value[key], part) for key, part in fixed)


def kind_of(value: Any) -> str:
    """Return JSON Schema's word for the kind of a JSON value."""
    return _KINDS.get(type(value), "object")


def exact_number(text: str, *, whole: bool) -> Any:
    """Return the number that a text is, or `UNCHANGED` where reading it would lose something."""
    if len(text) > _LONGEST_NUMBER or text[:1].isalpha():
        return UNCHANGED
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _NUMBER.fullmatch(text):
        return UNCHANGED
    number = float(text)
    # Exact means that the number is written as this text; more digits than a float keeps would be lost.
    if Decimal(repr(number)) != Decimal(text) or not math.isfinite(number):
        return UNCHANGED
    if not whole:
        return number
    return int(number) if number.is_integer() and abs(number) < _LARGEST_EXACT_FLOAT else UNCHANGED


def _json_in(text: str, kind: type) -> Any:
    if text.lstrip()[:1] != ("[" if kind is list else "{"):
        return UNCHANGED
    try:
        value = from_json(text)
    except ValueError:
        return UNCHANGED
    return value if isinstance(value, kind) else UNCHANGED
