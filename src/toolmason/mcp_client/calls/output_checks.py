"""Validate structured results against the server's output schema at a bounded cost.

The server writes the schema, so it must not control the cost: expensive schemas are skipped, steps are counted, and
larger checks run off the event loop. A result that exceeds the budget is passed on unchecked.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from time import monotonic
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolmason._core.define.schema_nodes import JSON_TYPES, iter_subschemas
from toolmason.errors import clip

_log = logging.getLogger("toolmason.mcp")

INLINE_STEPS: Final = 300
"""Steps allowed on the event loop: a few milliseconds."""
MAX_STEPS: Final = 50_000
MAX_SECONDS: Final = 0.1
"""Maximum duration of a check in its thread."""
_EXPENSIVE_KEYWORDS: Final = frozenset(
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
_COMPARISON_KEYWORDS: Final = frozenset({"enum", "const", "required", "dependentRequired"})
_SIMPLE_KEYWORDS: Final = frozenset(
    {"type", "properties", "required", "items", "additionalProperties", "title", "description", "default", "format"}
)
_MAX_VALUE_BYTES: Final = 256 * 1024
_MAX_SCHEMA_NODES: Final = 300
_MAX_LIST_LENGTH: Final = 64


class BudgetExceeded(Exception):
    """A check used up its steps or its time."""


@dataclass(slots=True, eq=False, repr=False)
class CheckBudget:
    """Steps and time that one check may use."""

    steps: int = MAX_STEPS
    deadline: float = field(default_factory=lambda: monotonic() + MAX_SECONDS)

    def spend(self, steps: int) -> None:
        """Use up steps.

        Raises:
            BudgetExceeded: no steps or no time is left.
        """
        self.steps -= steps
        if self.steps < 0 or monotonic() > self.deadline:
            raise BudgetExceeded


_BUDGET: ContextVar[CheckBudget] = ContextVar("toolmason_check")


@contextmanager
def use_budget(budget: CheckBudget) -> Generator[None]:
    """Let the checks inside spend the steps of a budget."""
    token = _BUDGET.set(budget)
    try:
        yield
    finally:
        _BUDGET.reset(token)


class OutputChecker:
    """Checker of results against one output schema."""

    def __init__(self, schema: dict[str, Any], owner: str) -> None:
        self._schema, self._owner = schema, owner
        self._is_simple = is_simple(schema)
        self._validator: Any = None
        """Validator, or None if the schema cannot be checked or `_has_validator` is False."""
        self._has_validator = False

    async def find_misfit(self, value: Any) -> str | None:
        """Return why a value does not match, or None if it does or if checking it would cost too much."""
        try:
            if self._is_simple and surely_matches(self._schema, value, [INLINE_STEPS]):
                return None
        except (AttributeError, TypeError):  # as in `make_validator`
            self._is_simple = False
        try:
            if self._has_validator:
                try:
                    return find_error(self._validator, value, CheckBudget(INLINE_STEPS))
                except BudgetExceeded:
                    pass
            return await asyncio.to_thread(self._check_in_thread, value)
        except BudgetExceeded:
            _log.info("%s: result not validated: it would take too long", self._owner)
            return None

    def _check_in_thread(self, value: Any) -> str | None:
        if not self._has_validator:
            self._validator = make_validator(to_json(self._schema))
            self._has_validator = True
        return find_error(self._validator, value, CheckBudget())


def is_simple(schema: Any) -> bool:
    """Return True if a schema has only keywords that `surely_matches` checks."""
    try:
        return all(_SIMPLE_KEYWORDS.issuperset(node) for node in iter_subschemas(schema))
    except (AttributeError, TypeError):  # as in `make_validator`
        return False


def surely_matches(schema: Any, value: Any, steps_left: list[int]) -> bool:
    """Return True if a value certainly matches a schema of simple keywords, within the remaining steps.

    Most results match and most schemas are simple: this takes a tenth of the validator's time. If it returns False,
    the validator decides.
    """
    steps_left[0] -= 1
    if steps_left[0] < 0 or not isinstance(schema, dict) or not _has_type(schema.get("type"), value):
        return False
    if type(value) is dict:
        properties = schema.get("properties", {})
        if any(name not in value for name in schema.get("required", ())):
            return False
        if schema.get("additionalProperties", True) is not True and not properties.keys() >= value.keys():
            return False
        return all(
            surely_matches(properties[name], item, steps_left) for name, item in value.items() if name in properties
        )
    if type(value) is list and "items" in schema:
        return all(surely_matches(schema["items"], item, steps_left) for item in value)
    return True


def _has_type(type_name: Any, value: Any) -> bool:
    if type_name == "number":
        return type(value) is int or type(value) is float
    return type_name is None or (isinstance(type_name, str) and type(value) is JSON_TYPES.get(type_name))


def find_error(validator: Any, value: Any, budget: CheckBudget) -> str | None:
    """Return why a value does not match, or None if it does or is too large to check.

    Raises:
        BudgetExceeded: the check costs more than the budget.
    """
    if validator is None or len(to_json(value, fallback=str)) > _MAX_VALUE_BYTES:
        return None
    with use_budget(budget):
        error = next(iter(validator.iter_errors(value)), None)
    return None if error is None else clip(f"{error.json_path}: {error.message}", 200)


@lru_cache(maxsize=256)
def make_validator(schema_json: bytes) -> Any:
    """Return a validator that counts its steps, or None if the schema cannot be checked at a bounded cost."""
    schema = from_json(schema_json)
    schema.pop("$schema", None)
    try:
        nodes = list(iter_subschemas(schema))
    except (AttributeError, TypeError):  # it was sent by a server and may not be a schema at all
        return None
    if (
        len(nodes) > _MAX_SCHEMA_NODES
        or any(not _EXPENSIVE_KEYWORDS.isdisjoint(node) for node in nodes)
        or _defeats_counting(schema)
    ):
        return None
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - only for servers with output schemas
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415 - as above
    from jsonschema.validators import extend  # noqa: PLC0415 - as above

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return None
    keywords: dict[str, Any] = dict(Draft202012Validator.VALIDATORS)
    extend_validator: Any = extend
    counted = {name: count_steps(name, check) for name, check in keywords.items()}
    return extend_validator(Draft202012Validator, counted)(schema)


def _defeats_counting(schema: Any) -> bool:
    """Return True if a schema would bypass the step count.

    A subschema with its own `$schema` is checked by another validator, and checking the schema itself compares long
    lists entry by entry.
    """
    queue = [schema]
    while queue:
        item = queue.pop()
        if isinstance(item, dict):
            if isinstance(item.get("$schema"), str):
                return True
            queue.extend(item.values())
        elif isinstance(item, list):
            if len(item) > _MAX_LIST_LENGTH and not all(isinstance(entry, str) for entry in item):
                return True
            queue.extend(item)
    return False


def count_steps(keyword: str, check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Return a check of a keyword that spends the steps of the current budget."""

    def check_counted(validator: Any, keyword_value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        budget = _BUDGET.get()
        width = len(instance) if isinstance(instance, dict | list) else 0
        size = len(to_json(keyword_value)) if keyword in _COMPARISON_KEYWORDS else 0
        budget.spend(1 + width // 32 + size // 64)
        for error in check(validator, keyword_value, instance, schema) or ():
            # The error message contains the whole value.
            budget.spend(1 + len(to_json(instance, fallback=str)) // 256)
            yield error

    return check_counted
