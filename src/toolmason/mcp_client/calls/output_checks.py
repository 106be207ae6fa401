"""Structured results against the schema that their server gave, within bounds.

Lives here: a check whose cost a server cannot choose. A schema with regular expressions, or of a kind whose cost
can explode, is not used for checking; with any other, the work is counted while it is done, off the event loop unless
it is little. What would take more is passed on unchecked. Not here: arguments.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from time import monotonic
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolmason._core.define.schema_nodes import subschemas
from toolmason.errors import clip

_log = logging.getLogger("toolmason.mcp")

QUICK: Final = 300
"""Steps that are taken on the event loop: a few milliseconds."""
MOST: Final = 50_000
SECONDS: Final = 0.1
"""How long a check may take, in its thread."""
_COSTLY: Final = frozenset(
    {
        "pattern",
        "patternProperties",
        "$ref",
        "$dynamicRef",
        "uniqueItems",
        "unevaluatedProperties",
        "unevaluatedItems",
        "contains",
        "not",
    }
)
_COMPARED: Final = frozenset({"enum", "const", "required", "dependentRequired"})
_PLAIN: Final = frozenset(
    {"type", "properties", "required", "items", "additionalProperties", "title", "description", "default", "format"}
)
_TYPES: Final = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list, "null": type(None)}
_MOST_BYTES: Final = 256 * 1024
_MOST_NODES: Final = 300
_LONGEST_LIST: Final = 64


class Spent(Exception):
    """A check has taken all the steps, or all the time, that it may."""


@dataclass(slots=True, eq=False, repr=False)
class Budget:
    """What one check may cost."""

    steps: int = MOST
    ends: float = field(default_factory=lambda: monotonic() + SECONDS)

    def spend(self, steps: int) -> None:
        """Take steps.

        Raises:
            Spent: there are none left, or no time.
        """
        self.steps -= steps
        if self.steps < 0 or monotonic() > self.ends:
            raise Spent


_BUDGET: ContextVar[Budget] = ContextVar("toolmason_check")


class Checker:
    """One schema, and whether results fit it."""

    def __init__(self, schema: dict[str, Any], owner: str) -> None:
        self._schema, self._owner = schema, owner
        self._plain = _is_plain(schema)
        self._validator: Any = None
        self._made = False

    async def misfit(self, value: Any) -> str | None:
        """Return why a value does not fit; `None` where it does, or where finding out would cost too much."""
        try:
            if self._plain and _accepts(self._schema, value, [QUICK]):
                return None
        except (AttributeError, TypeError):  # as in `validator_of`
            self._plain = False
        try:
            if self._made:
                try:
                    return found_by(self._validator, value, Budget(QUICK))
                except Spent:
                    pass
            return await asyncio.to_thread(self._slowly, value)
        except Spent:
            _log.info("%s: a result is passed on unchecked: to check it would take too long", self._owner)
            return None

    def _slowly(self, value: Any) -> str | None:
        if not self._made:
            self._validator = validator_of(to_json(self._schema))
            self._made = True
        return found_by(self._validator, value, Budget())


def _is_plain(schema: Any) -> bool:
    try:
        return all(_PLAIN.issuperset(node) for node in subschemas(schema))
    except (AttributeError, TypeError):  # as in `validator_of`
        return False


def _accepts(schema: Any, value: Any, left: list[int]) -> bool:
    """Tell whether a value surely fits a schema of plain keywords, within the steps that are left.

    Most results fit, and most schemas are plain: this takes a tenth of what the validator takes. Where it says no, the
    validator has the word.
    """
    left[0] -= 1
    if left[0] < 0 or not isinstance(schema, dict) or not _is_of(schema.get("type"), value):
        return False
    if type(value) is dict:
        known = schema.get("properties", {})
        if any(name not in value for name in schema.get("required", ())):
            return False
        if schema.get("additionalProperties", True) is not True and not known.keys() >= value.keys():
            return False
        return all(_accepts(known[name], item, left) for name, item in value.items() if name in known)
    if type(value) is list and "items" in schema:
        return all(_accepts(schema["items"], item, left) for item in value)
    return True


def _is_of(kind: Any, value: Any) -> bool:
    if kind == "number":
        return type(value) is int or type(value) is float
    return kind is None or (isinstance(kind, str) and type(value) is _TYPES.get(kind))


def found_by(validator: Any, value: Any, budget: Budget) -> str | None:
    """Return why a value does not fit.

    Raises:
        Spent: to find out takes more than the budget.
    """
    if validator is None or len(to_json(value, fallback=str)) > _MOST_BYTES:
        return None
    token = _BUDGET.set(budget)
    try:
        error = next(iter(validator.iter_errors(value)), None)
    finally:
        _BUDGET.reset(token)
    return None if error is None else clip(f"{error.json_path}: {error.message}", 200)


@lru_cache(maxsize=256)
def validator_of(written: bytes) -> Any:
    """Return what checks a value against a schema, counting; `None` for a schema that is not used for checking."""
    schema = from_json(written)
    schema.pop("$schema", None)
    try:
        nodes = list(subschemas(schema))
    except (AttributeError, TypeError):  # it came over the wire, and need not be a schema at all
        return None
    if len(nodes) > _MOST_NODES or any(not _COSTLY.isdisjoint(node) for node in nodes) or _is_odd(schema):
        return None
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - for servers that declare what they return
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415 - as above
    from jsonschema.validators import extend  # noqa: PLC0415 - as above

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return None
    keywords: dict[str, Any] = dict(Draft202012Validator.VALIDATORS)
    make: Any = extend
    return make(Draft202012Validator, {name: _counted(name, check) for name, check in keywords.items()})(schema)


def _is_odd(schema: Any) -> bool:
    """Tell whether a schema holds what would get round the count.

    A part that names its own dialect is checked by another validator than ours, and a long list is compared entry with
    entry where the schema itself is checked.
    """
    left = [schema]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            if isinstance(item.get("$schema"), str):
                return True
            left.extend(item.values())
        elif isinstance(item, list):
            if len(item) > _LONGEST_LIST and not all(isinstance(entry, str) for entry in item):
                return True
            left.extend(item)
    return False


def _counted(name: str, check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    def counting(validator: Any, given: Any, instance: Any, schema: Any) -> Iterator[Any]:
        budget = _BUDGET.get()
        width = len(instance) if isinstance(instance, dict | list) else 0
        size = len(to_json(given)) if name in _COMPARED else 0
        budget.spend(1 + width // 32 + size // 64)
        for error in check(validator, given, instance, schema) or ():
            # The words of an error hold the whole value.
            budget.spend(1 + len(to_json(instance, fallback=str)) // 256)
            yield error

    return counting
