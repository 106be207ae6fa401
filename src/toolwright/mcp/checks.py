"""Structured results against the schema that their server gave, within bounds.

Lives here: a check whose cost a server cannot choose. A schema with regular expressions, or of a kind whose cost
can explode, is not used for checking: one such schema would stop the whole process. Not here: arguments.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolwright._core.walk import subschemas
from toolwright.errors import clip

_COSTLY: Final = frozenset(
    {"pattern", "patternProperties", "$ref", "$dynamicRef", "uniqueItems", "unevaluatedProperties", "contains", "not"}
)
_MOST_BYTES: Final = 256 * 1024
_MOST_NODES: Final = 300


def misfit(value: Any, schema: dict[str, Any]) -> str | None:
    """Return why a value does not fit; `None` where it does, or where finding out could cost too much."""
    validator = _validator(to_json(schema))
    if validator is None or len(to_json(value, fallback=str)) > _MOST_BYTES:
        return None
    error = next(iter(validator.iter_errors(value)), None)
    return None if error is None else clip(f"{error.json_path}: {error.message}", 200)


@lru_cache(maxsize=256)
def _validator(written: bytes) -> Any:
    schema = from_json(written)
    nodes = list(subschemas(schema))
    if len(nodes) > _MOST_NODES or any(not _COSTLY.isdisjoint(node) for node in nodes):
        return None
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - for servers that declare what they return
    from jsonschema.exceptions import SchemaError  # noqa: PLC0415 - as above

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError:
        return None
    return Draft202012Validator(schema)
