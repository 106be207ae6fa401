"""Count the keys of the JSON objects that validated values come from, without parsing the text again.

As many keys as colons in the text means that no key appears twice and that no unknown key was dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, Final, TypeAlias

from toolmason._core.define.inputs import Inputs, schema_compiler

KeyCounter: TypeAlias = Callable[[Any], int]
"""Returns the number of keys that a value comes from, or a negative number if a float in it is not finite."""
_Node: TypeAlias = Mapping[str, Any]
_NOT_FINITE: Final = -(1 << 60)
_UNTYPED: Final[_Node] = {"type": "any"}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KeyCounts:
    """The counter for the values of a validator."""

    count: KeyCounter
    checks_floats: bool
    """False if the validator accepts no float that is not finite."""
    validate_lenient: Callable[[str], Any] | None
    """Strict validator that drops unknown keys of TypedDicts, which is faster than to look for them.

    The count of the values shows whether it dropped one. None if no argument has a TypedDict.
    """


class _UnknownKeys(Exception):
    """The values of a type do not show which keys the text has."""


def make_key_counts(inputs: Inputs) -> KeyCounts | None:
    """Return the counter for the values of the inputs.

    None if it may count too many: a part is untyped, has defaults that look like arguments, or runs code of its own.
    """
    validator = inputs.validator
    if validator is None or inputs.validate_json != validator.validate_json:  # the values are not its own
        return None
    core, _ = schema_compiler().read_core_schema(validator)
    scope = _Scope()
    try:
        count = _make_counter(core, scope) or len
    except _UnknownKeys:
        return None
    found = scope.found
    lenient = None
    if found.typed_dicts > 1:  # the object itself is one
        lenient = partial(schema_compiler().make_lenient_validator(validator).validate_json, strict=True)
    return KeyCounts(count, found.floats > 0, lenient)


# --- counters ----------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class _Nodes:
    """Findings in the nodes of one core schema."""

    floats: int = 0
    """Number of the types of floats that may be not finite."""
    typed_dicts: int = 0
    definitions: dict[str, _Node] = field(default_factory=dict)
    open_references: set[str] = field(default_factory=set)
    """Names of the definitions around the current node."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Scope:
    """The settings of the class around a node."""

    rejects_nan: bool = False
    found: _Nodes = field(default_factory=_Nodes)

    def enter(self, config: _Node | None) -> _Scope:
        """Return the scope of a class. One that has no settings has those of the class around it."""
        return self if config is None else _Scope(not config.get("allow_inf_nan", True), self.found)


def _make_counter(node: _Node, scope: _Scope) -> KeyCounter | None:
    """Return the counter of a node; None if its values have neither keys nor floats."""
    if node["type"] in _SCALARS:
        return None
    if (make := _MAKERS.get(node["type"])) is None:
        raise _UnknownKeys
    return make(node, scope)


def _make_float(node: _Node, scope: _Scope) -> KeyCounter | None:
    if not node.get("allow_inf_nan", not scope.rejects_nan):
        return None
    scope.found.floats += 1
    return _check_number


def _check_number(value: Any) -> int:
    return _NOT_FINITE if type(value) is float and not isfinite(value) else 0


def _make_nullable(node: _Node, scope: _Scope) -> KeyCounter | None:
    count = _make_counter(node["schema"], scope)
    return None if count is None else lambda value: 0 if value is None else count(value)


def _make_union(node: _Node, scope: _Scope) -> KeyCounter | None:
    choices = (choice[0] if isinstance(choice, tuple) else choice for choice in node["choices"])
    counters = {_make_counter(choice, scope) for choice in choices}
    if not counters <= {None, _check_number}:
        raise _UnknownKeys
    return _check_number if _check_number in counters else None


def _make_items(node: _Node, scope: _Scope) -> KeyCounter | None:
    count = _make_counter(node.get("items_schema", _UNTYPED), scope)
    return None if count is None else lambda value: sum(map(count, value))


def _make_dict(node: _Node, scope: _Scope) -> KeyCounter:
    if node.get("keys_schema", _UNTYPED)["type"] != "str":
        raise _UnknownKeys
    count = _make_counter(node.get("values_schema", _UNTYPED), scope)
    return len if count is None else lambda value: len(value) + sum(map(count, value.values()))


def _make_definitions(node: _Node, scope: _Scope) -> KeyCounter | None:
    scope.found.definitions.update((part["ref"], part) for part in node["definitions"])
    return _make_counter(node["schema"], scope)


def _make_reference(node: _Node, scope: _Scope) -> KeyCounter | None:
    reference, found = node["schema_ref"], scope.found
    if reference in found.open_references:  # a class that contains itself, to any depth
        raise _UnknownKeys
    found.open_references.add(reference)
    count = _make_counter(found.definitions[reference], scope)
    found.open_references.remove(reference)
    return count


def _make_typed_dict(node: _Node, scope: _Scope) -> KeyCounter:
    scope.found.typed_dicts += 1
    _refuse_extra(node, node.get("config"))
    fields = [(name, part, part["schema"]) for name, part in node["fields"].items()]
    parts = _make_parts(fields, scope.enter(node.get("config")))
    if not parts:
        return len

    def count(value: dict[str, Any]) -> int:
        total = len(value)
        for name, count_part in parts:  # a comprehension takes a tenth of a call longer
            if name in value:
                total += count_part(value[name])
        return total

    return count


def _make_model(node: _Node, scope: _Scope) -> KeyCounter:
    inner, config = node["schema"], node.get("config", {})
    changes_fields = any(map(node.get, ("root_model", "custom_init", "post_init")))
    if changes_fields or inner["type"] != "model-fields":
        raise _UnknownKeys
    _refuse_extra(inner, config)
    # A default is not among the fields that are set.
    fields = [(name, part, _unwrap_default(part["schema"])) for name, part in inner["fields"].items()]
    parts = _make_parts(fields, scope.enter(config))
    if not parts:
        return lambda value: len(value.__pydantic_fields_set__)

    def count(value: Any) -> int:
        given, values = value.__pydantic_fields_set__, value.__dict__
        total = len(given)
        for name, count_part in parts:
            if name in given:
                total += count_part(values[name])
        return total

    return count


def _make_dataclass(node: _Node, scope: _Scope) -> KeyCounter:
    inner, config = node["schema"], node.get("config")
    if node.get("post_init") or inner["type"] != "dataclass-args":
        raise _UnknownKeys
    _refuse_extra(inner, config)
    # A value that is not kept does not show what the text has; nor does a default, which has no counter.
    if any(part.get("init_only") or not part.get("init", True) for part in inner["fields"]):
        raise _UnknownKeys
    fields = [(part["name"], part, part["schema"]) for part in inner["fields"]]
    parts, total = _make_parts(fields, scope.enter(config)), len(fields)
    if not parts:
        return lambda _: total
    return lambda value: total + sum([count_part(getattr(value, name)) for name, count_part in parts])


def _make_parts(fields: Sequence[tuple[str, _Node, _Node]], scope: _Scope) -> tuple[tuple[str, KeyCounter], ...]:
    """Return the counters of the fields that have one, by name."""
    keys = {name: part.get("validation_alias", name) for name, part, _ in fields}
    others = [key for name, key in keys.items() if key != name]
    # Two fields of one key, or a field of several keys, would count keys that the text does not have.
    if not all(isinstance(key, str) and key not in keys for key in others) or len(set(others)) < len(others):
        raise _UnknownKeys
    counters: Iterable[tuple[str, KeyCounter | None]] = ((name, _make_counter(kind, scope)) for name, _, kind in fields)
    return tuple((name, counter) for name, counter in counters if counter is not None)


def _refuse_extra(node: _Node, config: _Node | None) -> None:
    of_config = None if config is None else config.get("extra_fields_behavior")
    if "extras_schema" in node or node.get("extra_behavior", of_config) == "allow":
        raise _UnknownKeys


def _unwrap_default(node: _Node) -> _Node:
    if node["type"] != "default":
        return node
    if node.get("on_error", "raise") != "raise":
        raise _UnknownKeys
    inner: _Node = node["schema"]
    return inner


_SCALARS: Final = ("int", "str", "bool", "none", "literal", "enum", "date", "time", "datetime", "timedelta", "uuid")
_MAKERS: Final[Mapping[str, Callable[[_Node, _Scope], KeyCounter | None]]] = {
    **dict.fromkeys(("list", "set", "frozenset"), _make_items),
    "float": _make_float,
    "nullable": _make_nullable,
    "union": _make_union,
    "dict": _make_dict,
    "definitions": _make_definitions,
    "definition-ref": _make_reference,
    "typed-dict": _make_typed_dict,
    "model": _make_model,
    "dataclass": _make_dataclass,
}
