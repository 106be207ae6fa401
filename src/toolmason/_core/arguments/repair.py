"""Repair arguments that are nearly valid: numeric strings, whole floats, JSON strings, enum names and booleans.

Repairs are lossless: a value changes only if its type does not match the schema and the conversion is exact.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from operator import is_not
from typing import Any, Final

from toolmason._core.arguments.problems import find_non_finite
from toolmason._core.define.inputs import Inputs
from toolmason._core.define.schema_nodes import (
    BRANCH_KEYWORDS,
    UNION_KEYWORDS,
    EnumNames,
    get_json_type,
    get_own_types,
    iter_alternatives,
)
from toolmason._core.values.definition import canonicalize
from toolmason._core.values.results import Repair
from toolmason._wire import load_json

_INTEGER: Final = re.compile(r"[+-]?\d{1,4300}")
_NUMBER: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_MAX_NUMBER_LENGTH: Final = 4300
_LARGEST_EXACT_FLOAT: Final = 2.0**53
_BOOLEAN_WORDS: Final = {"true": True, "false": False}
_TEXT_PROBLEMS: Final = frozenset({"string_too_short", "string_too_long", "string_pattern_mismatch"})
MAX_DEPTH: Final = 64
_FREE_OPTIONS: Final = 16
_SPARE_STEPS: Final = 100_000
"""Steps of the repairs of one call for values that have more alternatives than `_FREE_OPTIONS`."""

UNCHANGED: Final = object()
"""Returned by a conversion that does not apply."""


def may_be_repaired(details: Iterable[Mapping[str, Any]], inputs: Inputs) -> bool:
    """Return False if no rule applies to a problem, given pydantic's details of each; most of them need no search."""
    for item in details:
        problem, value = item["type"], item["input"]
        kind = type(value)
        if kind is str:
            applies = problem not in _TEXT_PROBLEMS and _may_stand_for_value(value.strip(), inputs)
        elif value is None:
            applies = not inputs.needed_names.issuperset(step for step in item["loc"] if type(step) is not int)
        elif kind is float:
            applies = value.is_integer()
        else:
            applies = problem != "missing" and kind not in (int, bool)
        if applies:
            return True
    return False


def _may_stand_for_value(text: str, inputs: Inputs) -> bool:
    """Return True if a string may be a number, an array, an object, a boolean, or the name of a value."""
    if text[:1] in ("[", "{") or text.casefold() in inputs.words:
        return True
    return len(text) <= _MAX_NUMBER_LENGTH and not text.isalpha() and any(map(str.isdecimal, text))


class ArgumentRepairer:
    """Repairs the arguments of one call and records each repair."""

    __slots__ = (
        "_enums",
        "_options",
        "_spare_steps",
        "boolean_paths",
        "enum_names",
        "number_paths",
        "repairs",
        "root",
        "text_paths",
    )

    def __init__(self, root: Mapping[str, Any], enum_names: EnumNames) -> None:
        self.root, self.enum_names = root, enum_names
        self.repairs: list[Repair] = []
        self.boolean_paths: list[str] = []
        """Paths of booleans that match no alternative; Python would treat them as 1 or 0."""
        self.number_paths: list[str] = []
        """Paths of 1 and 0 in place of a fixed boolean."""
        self.text_paths: list[str] = []
        """Paths of strings in place of numbers."""
        self._options: dict[int, list[Mapping[str, Any]]] = {}
        self._enums = EnumIndex()
        self._spare_steps = _SPARE_STEPS

    @property
    def is_exhausted(self) -> bool:
        """True if some values were not examined, because they have too many alternatives."""
        return self._spare_steps < 0

    def _spend(self, steps: int) -> bool:
        """Use up steps, except a few that are free. Return False if none is left."""
        if steps > _FREE_OPTIONS:
            self._spare_steps -= steps
        return self._spare_steps >= 0

    def repair(self, value: Any, schema: Any, path: str = "$", depth: int = 0) -> Any:
        """Return `value` with all repairs applied, including nested ones; the same object if there are none."""
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return value
        options = self._find_options(schema)
        if not self._spend(len(options)):
            return value
        fitting = [option for option in options if self._enums.matches(value, option)]
        if fitting:
            return self._repair_contents(value, fitting, path, depth)
        if isinstance(value, bool):
            self.boolean_paths.append(path)
        elif isinstance(value, int | float) and value in (0, 1):
            fixed = (option for option in options if "enum" in option or "const" in option)
            if any(self._enums.matches(bool(value), option) for option in fixed):
                self.number_paths.append(path)
        elif isinstance(value, str) and any("number" in get_own_types(option) for option in options):
            self.text_paths.append(path)
        for option in options:
            changed, rule = self._convert(value, option)
            if changed is not UNCHANGED:
                self.repairs.append(Repair(path, rule, value, changed))
                return self.repair(changed, option, path, depth + 1) if isinstance(changed, (dict, list)) else changed
        return value

    def _repair_contents(self, value: Any, fitting: list[Mapping[str, Any]], path: str, depth: int) -> Any:
        """Repair the contents of a value of the right type, unless several alternatives match."""
        if not isinstance(value, (dict, list)):
            return value
        if isinstance(value, dict) and len(fitting) > 1:
            if not self._spend(len(fitting) * len(value)):
                return value
            fitting = [option for option in fitting if self._enums.matches_fixed_values(value, option)]
        if len(fitting) != 1:
            return value
        if isinstance(value, dict):
            return self._repair_object(value, fitting[0], path, depth)
        return self._repair_array(value, fitting[0], path, depth)

    def _find_options(self, schema: dict[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Return the alternatives behind references and unions."""
        if schema.keys().isdisjoint(BRANCH_KEYWORDS):
            return (schema,)
        if id(schema) not in self._options:
            found = iter_alternatives(schema, self.root, UNION_KEYWORDS)
            self._options[id(schema)] = [node for node in found if not any(map(node.get, UNION_KEYWORDS))]
        return self._options[id(schema)]

    def _repair_object(self, value: dict[str, Any], schema: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        additional = schema.get("additionalProperties")
        repaired = {
            key: self.repair(item, properties.get(key, additional), f"{path}.{key}", depth + 1)
            for key, item in value.items()
        }
        return repaired if any(map(is_not, repaired.values(), value.values())) else value

    def _repair_array(self, value: list[Any], schema: Mapping[str, Any], path: str, depth: int) -> list[Any]:
        prefix_schemas = schema.get("prefixItems", ())
        other_schema = schema.get("items")
        repaired: list[Any] = []
        for index, item in enumerate(value):
            item_schema = prefix_schemas[index] if index < len(prefix_schemas) else other_schema
            repaired.append(self.repair(item, item_schema, f"{path}[{index}]", depth + 1))
        return repaired if any(map(is_not, repaired, value)) else value

    def _convert(self, value: Any, schema: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the converted value, or UNCHANGED, and the name of the rule."""
        if "enum" in schema or "const" in schema:
            found = self._find_enum_member(value, schema)
            return (found, "enum name or case") if found is not UNCHANGED else self._convert_to_member(value, schema)
        for kind in get_own_types(schema):
            changed, rule = _convert_to(kind, value)
            if changed is not UNCHANGED:
                return changed, rule
        return UNCHANGED, ""

    def _find_enum_member(self, value: Any, schema: Mapping[str, Any]) -> Any:
        values = schema.get("enum") or [schema.get("const")]
        if not isinstance(value, str) or not self._spend(len(values) // 8):  # a comparison takes less than a step
            return UNCHANGED
        names = self.enum_names.get(id(schema), {})
        if value in names:
            return names[value]
        folded = value.strip().casefold()
        matches = [v for v in values if isinstance(v, str) and v.casefold() == folded]
        matches = matches or [v for name, v in names.items() if name.casefold() == folded]
        # If two members differ only in case, either could be meant, so neither is chosen.
        return matches[0] if len(matches) == 1 else UNCHANGED

    def _convert_to_member(self, value: Any, schema: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the value of an enum that a converted value equals, or UNCHANGED, and the name of the rule."""
        values = schema.get("enum") or [schema.get("const")]
        for kind in get_own_types(schema) or dict.fromkeys(map(get_json_type, values)):
            changed, rule = _convert_to(kind, value)
            if changed is not UNCHANGED and self._enums.matches(changed, schema):
                return changed, rule
        return UNCHANGED, ""


class EnumIndex(dict[int, Any]):
    """Values of the enums of a schema: each of many values would be compared with each of them otherwise."""

    def matches(self, value: Any, schema: Mapping[str, Any]) -> bool:
        """Return True if a value is of a type that the schema accepts. Nested values are not checked."""
        if "enum" in schema:
            if (known := self.get(id(schema))) is None:
                known = self[id(schema)] = frozenset(map(_make_key, schema["enum"]))
            return _make_key(value) in known
        if "const" in schema:
            return _make_key(value) == _make_key(schema["const"])
        wanted, kind = get_own_types(schema), get_json_type(value)
        return not wanted or kind in wanted or (kind == "integer" and "number" in wanted)

    def matches_fixed_values(self, value: Mapping[str, Any], schema: Mapping[str, Any]) -> bool:
        """Return True if an object has the fixed values of an alternative, such as a discriminator."""
        properties = schema.get("properties", {})
        return all(
            item is None
            or not isinstance(part := properties.get(key), dict)
            or not part.keys() & {"const", "enum"}
            or self.matches(item, part)
            for key, item in value.items()
        )


def _make_key(value: Any) -> tuple[type, Any]:
    if isinstance(value, dict | list):
        return type(value), repr(canonicalize(value))
    # As in JSON, 2 is 2.0. An object of the application is not a value of an enum, and may not be hashable.
    kind = float if type(value) is int else type(value)
    return kind, value if isinstance(value, str | int | float | None) else id(value)


def _convert_to(kind: str, value: Any) -> tuple[Any, str]:
    """Return a value converted to a JSON type, or UNCHANGED, and the name of the rule."""
    if isinstance(value, float) and kind == "integer":
        whole = value.is_integer() and abs(value) < _LARGEST_EXACT_FLOAT
        return (int(value) if whole else UNCHANGED), "whole number"
    if not isinstance(value, str):
        return UNCHANGED, ""
    if kind == "boolean":
        return _BOOLEAN_WORDS.get(value.strip().lower(), UNCHANGED), "word for a boolean"
    if kind in ("integer", "number"):
        return parse_exact_number(value.strip(), whole=kind == "integer"), "numeric text"
    if kind in ("array", "object"):
        return _parse_json_text(value, list if kind == "array" else dict), "JSON in text"
    return UNCHANGED, ""


def parse_exact_number(text: str, *, whole: bool) -> Any:
    """Return the number that a string represents, or `UNCHANGED` if no number of Python holds it exactly."""
    if len(text) > _MAX_NUMBER_LENGTH or text[:1].isalpha():
        return UNCHANGED
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _NUMBER.fullmatch(text):
        return UNCHANGED
    number = float(text)
    if not math.isfinite(number):
        return UNCHANGED
    if not whole:
        # A float keeps about 17 digits. The validator takes more only if the type is a decimal.
        exact = Decimal(text)
        return number if Decimal(repr(number)) == exact else exact
    return int(number) if number.is_integer() and abs(number) < _LARGEST_EXACT_FLOAT else UNCHANGED


def _parse_json_text(text: str, kind: type) -> Any:
    if text.lstrip()[:1] != ("[" if kind is list else "{"):
        return UNCHANGED
    try:
        value = load_json(text)
    except (ValueError, RecursionError):
        return UNCHANGED
    return value if isinstance(value, kind) and find_non_finite(value) is None else UNCHANGED
