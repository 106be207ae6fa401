"""Validate structured results against the server's output schema at a bounded cost.

The server writes the schema, so it must not control the cost: expensive schemas are skipped, steps are counted, and
larger checks run off the event loop. A result that exceeds the budget is passed on unchecked.
"""

from __future__ import annotations

import asyncio
import logging
from functools import lru_cache
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolmason._core.define.bounded_checks import (
    INLINE_STEPS,
    BudgetExceeded,
    CheckBudget,
    check_schema,
    is_simple,
    surely_matches,
    use_budget,
)
from toolmason._core.define.schema_nodes import iter_subschemas
from toolmason.errors import DefinitionError, clip

_log = logging.getLogger("toolmason.mcp")

MAX_STEPS: Final = 50_000
"""Steps of one check in a thread."""
_EXPENSIVE_KEYWORDS: Final = frozenset(
    {
        "pattern",
        "patternProperties",
        "$schema",
        "$ref",
        "$dynamicRef",
        "uniqueItems",
        "unevaluatedProperties",
        "unevaluatedItems",
        "contains",
        "not",
    }
)
_MAX_VALUE_BYTES: Final = 256 * 1024
_MAX_SCHEMA_NODES: Final = 300


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
        return find_error(self._validator, value, CheckBudget(MAX_STEPS))


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
    if len(nodes) > _MAX_SCHEMA_NODES or any(not _EXPENSIVE_KEYWORDS.isdisjoint(node) for node in nodes):
        return None
    try:
        return check_schema(schema, "the schema")
    except DefinitionError:
        return None
