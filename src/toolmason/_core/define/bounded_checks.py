"""Validate data against JSON Schemas that others wrote, at a bounded cost.

A schema from a server, a database or an API must not control the cost: steps are counted, and patterns run on an engine
that does not backtrack, or only as far as their cost is known.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from itertools import islice
from math import inf, log2
from typing import Any, Final

from pydantic_core import SchemaError as InvalidPattern
from pydantic_core import SchemaValidator, core_schema, to_json

from toolmason._core.define.schema_nodes import JSON_TYPES, SchemaMismatch, has_few_alternatives, iter_subschemas
from toolmason._core.values.definition import JsonSchema
from toolmason._wire import parse_json
from toolmason.errors import DefinitionError

INLINE_STEPS: Final = 300
"""Steps allowed on the event loop: a few milliseconds."""
_MAX_STEPS: Final = 10_000
"""Steps of a check besides one for each byte of the arguments."""
_MAX_ERRORS: Final = 50
_COMPARISON_KEYWORDS: Final = frozenset({"enum", "const", "required", "dependentRequired"})
_SIMPLE_KEYWORDS: Final = frozenset(
    {"type", "properties", "required", "items", "additionalProperties", "title", "description", "default", "format"}
)


class BudgetExceeded(Exception):
    """A check used up its steps."""


@dataclass(slots=True, eq=False, repr=False)
class CheckBudget:
    """Steps that one check may use. It has no clock: a busy machine or a garbage collection must not end a check."""

    steps: int

    def spend(self, steps: int) -> None:
        """Use up steps.

        Raises:
            BudgetExceeded: no steps are left.
        """
        self.steps -= steps
        if self.steps < 0:
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


class SchemaChecker:
    """Validator for a hand-written schema."""

    def __init__(self, name: str, schema: JsonSchema) -> None:
        """Check the schema itself.

        Raises:
            DefinitionError: it is not valid, or too complex to check arguments with it.
        """
        self.schema = schema
        subject = f"Tool {name!r}: its input schema"
        self._validator = check_schema(schema, subject)
        for node in iter_subschemas(schema):
            _check_patterns(node, subject)
        self._is_simple = is_simple(schema)

    def validate_json(self, text: str | bytes, *, strict: bool = True) -> Any:
        """Parse arguments and check them."""
        del strict
        return self._check(parse_json(text), len(text))

    def validate_python(self, value: Any, *, strict: bool = True) -> Any:
        """Check arguments."""
        del strict
        return self._check(value)

    def _check(self, value: Any, size: int | None = None) -> dict[str, Any]:
        if self._is_simple and surely_matches(self.schema, value, [INLINE_STEPS]):
            return dict(value)
        size = len(to_json(value, inf_nan_mode="constants", fallback=str)) if size is None else size
        try:
            with use_budget(CheckBudget(_MAX_STEPS + size)):
                # Only the first errors: a list of a million invalid items would take minutes.
                errors = list(islice(self._validator.iter_errors(value), _MAX_ERRORS))
        except (BudgetExceeded, RecursionError):
            raise ValueError("the arguments fit too many alternatives of the schema to check them") from None
        except import_module("referencing").exceptions.Unresolvable as error:
            raise ValueError(f"the schema of the tool refers to a part that it does not have: {error}") from None
        if errors:
            raise SchemaMismatch(errors, self.schema)
        return dict(value)


def check_schema(schema: Any, subject: str) -> Any:
    """Return the validator of a hand-written schema. jsonschema is imported on first use.

    Raises:
        DefinitionError: it is not valid JSON Schema, or too complex; the message begins with `subject`.
    """
    from jsonschema.exceptions import best_match  # noqa: PLC0415 - 60 ms that most programs never need

    if not isinstance(schema, Mapping):
        raise DefinitionError(
            f"{subject} must be a mapping, not {type(schema).__name__}. Parse JSON text with `json.loads(...)` first."
        )
    root, validator_class = dict(schema), get_validator_class()
    try:
        if not has_few_alternatives(root):
            raise BudgetExceeded  # noqa: TRY301 - refused below with the other schemas that are too complex
        size = len(to_json(root, inf_nan_mode="constants", fallback=str))
        with use_budget(CheckBudget(_MAX_STEPS + 8 * size)):
            error = best_match(validator_class(validator_class.META_SCHEMA).iter_errors(root))
    except (BudgetExceeded, RecursionError, ValueError):
        raise DefinitionError(
            f"{subject} is too complex: it is nested too deeply, or its parts refer to each other too often. "
            "Flatten it."
        ) from None
    if error is not None:
        raise DefinitionError(f"{subject} is not valid JSON Schema at {error.json_path}: {error.message}") from error
    # The default registry would retrieve what the schema refers to from the network.
    return validator_class(root, registry=import_module("jsonschema_specifications").REGISTRY)


def _check_patterns(node: Mapping[str, Any], subject: str) -> None:
    patterns: list[str] = [*node.get("patternProperties", {})]
    try:
        for pattern in (*patterns, node["pattern"]) if "pattern" in node else patterns:
            compile_pattern(pattern)
        if "unevaluatedProperties" in node:  # which jsonschema checks with Python's engine
            list(map(_compile_for_python, patterns))
    except ValueError as error:
        raise DefinitionError(f"{subject} has a pattern that cannot be used: {error}") from None


def is_simple(schema: Any) -> bool:
    """Return True if a schema has only keywords that `surely_matches` checks."""
    try:
        return all(_SIMPLE_KEYWORDS.issuperset(node) for node in iter_subschemas(schema))
    except (AttributeError, TypeError):  # it was sent by a server and may not be a schema at all
        return False


def surely_matches(schema: Any, value: Any, steps_left: list[int]) -> bool:
    """Return True if a value certainly matches a schema of simple keywords, within the remaining steps.

    Most values match and most schemas are simple: this takes a tenth of the validator's time. If it returns False,
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


# --- jsonschema, with counted steps ------------------------------------------------------------


@lru_cache(maxsize=4)
def get_validator_class(checked_keywords: frozenset[str] | None = None) -> Any:
    """Return jsonschema's validator with keywords that count their steps; those that are not checked are ignored."""
    import attrs  # noqa: PLC0415 - as below
    from jsonschema import Draft202012Validator  # noqa: PLC0415 - 60 ms that most programs never need
    from jsonschema.validators import extend  # noqa: PLC0415 - as above

    keywords: dict[str, Any] = {**Draft202012Validator.VALIDATORS, **_KEYWORDS}
    counted = {
        name: count_steps(name, check) if checked_keywords is None or name in checked_keywords else None
        for name, check in keywords.items()
    }
    extend_validator: Any = extend
    validator_class = extend_validator(Draft202012Validator, counted)
    # Its own method takes another validator, which counts nothing, for a part with `$schema`.
    validator_class.evolve = attrs.evolve
    return validator_class


def count_steps(keyword: str, check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Return a check of a keyword that spends the steps of the current budget."""

    def check_counted(validator: Any, keyword_value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        budget = _BUDGET.get()
        width = sum(len(part) for part in (instance, keyword_value) if isinstance(part, dict | list))
        size = len(to_json(keyword_value)) if keyword in _COMPARISON_KEYWORDS else 0
        hops = 1 + keyword_value.count("/") if keyword == "$ref" else 0
        budget.spend(1 + hops + width // 32 + size // 32)
        try:
            for error in check(validator, keyword_value, instance, schema) or ():
                # The error message contains the whole value.
                budget.spend(1 + len(to_json(instance, fallback=str)) // 256)
                yield error
        except OverflowError:  # a number that no float can hold, compared with one
            yield _make_error("the number is too large for this schema")

    return check_counted


def _check_pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Any]:
    del validator, schema
    if isinstance(instance, str) and not compile_pattern(pattern)(instance):
        yield _make_error(f"{instance!r} does not match {pattern!r}")


def _check_pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:
    del schema
    for pattern, part in patterns.items() if isinstance(instance, dict) else ():
        matches = compile_pattern(pattern)
        _BUDGET.get().spend(len(instance))
        for key, value in instance.items():
            if matches(key):
                yield from validator.descend(value, part, path=key, schema_path=pattern)


def _check_additional_properties(validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    patterns = list(schema.get("patternProperties", ()))
    _BUDGET.get().spend(len(instance) * len(patterns))
    matchers, known = list(map(compile_pattern, patterns)), schema.get("properties", {})
    extras = [key for key in instance if key not in known and not any(matches(key) for matches in matchers)]
    if isinstance(rest, dict):
        for key in extras:
            yield from validator.descend(instance[key], rest, path=key)
    elif not rest and extras:
        names = ", ".join(map(repr, sorted(extras)))
        if patterns:
            verb = "does" if len(extras) == 1 else "do"
            yield _make_error(f"{names} {verb} not match any of the regexes: {', '.join(map(repr, sorted(patterns)))}")
        else:
            verb = "was" if len(extras) == 1 else "were"
            yield _make_error(f"Additional properties are not allowed ({names} {verb} unexpected)")


def _check_unique_items(validator: Any, unique: Any, instance: Any, schema: Any) -> Iterator[Any]:
    """Compare by keys: jsonschema compares each pair of items if they cannot be sorted."""
    del validator, schema
    if unique and isinstance(instance, list) and len(set(map(_freeze, instance))) < len(instance):
        yield _make_error(f"{instance!r} has non-unique elements")


def _freeze(value: Any) -> Any:
    if isinstance(value, dict):
        return frozenset((key, _freeze(item)) for key, item in value.items())
    if isinstance(value, list):
        return tuple(map(_freeze, value))
    return (bool, value) if isinstance(value, bool) else value  # True equals 1 in Python


def _make_error(message: str) -> Exception:
    from jsonschema.exceptions import ValidationError  # noqa: PLC0415 - as above

    return ValidationError(message)


_KEYWORDS: Final[Mapping[str, Callable[..., Iterator[Any]]]] = {
    "pattern": _check_pattern,
    "patternProperties": _check_pattern_properties,
    "additionalProperties": _check_additional_properties,
    "uniqueItems": _check_unique_items,
}


# --- patterns ----------------------------------------------------------------------------------

_MAX_BITS: Final = 22
"""Logarithm of the steps of one search with Python's engine: 4 million, about 0.1 s."""
_SMALLEST_TEXT: Final = 6
"""Logarithm of the length of a string that every pattern must be able to search."""
_SET_OPERATORS: Final = re.compile(r"&&|--|~~|\[\[")
"""Characters that mean something else to Rust's engine than to others."""


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Return a function that searches a string for a pattern at a bounded cost.

    Raises:
        ValueError: the pattern is not valid, or the time of a search is not bounded.
    """
    if not _SET_OPERATORS.search(pattern):
        try:
            # Rust's engine takes time linear in the text, but has no look-around and no back-references.
            return SchemaValidator(core_schema.str_schema(pattern=pattern)).isinstance_python
        except InvalidPattern:
            pass
    return _compile_for_python(pattern)


@lru_cache(maxsize=1024)
def _compile_for_python(pattern: str) -> Callable[[str], bool]:
    try:
        with warnings.catch_warnings(action="ignore"):  # of constructs that a later Python reads differently
            # Private, but the only parser of patterns.
            parsed, compiled = import_module("re._parser").parse(pattern), re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
    is_anchored = [str(operation) for operation, _ in parsed[:1]] == ["AT"]

    def is_bounded(length: int) -> bool:
        return _measure_choices(parsed, length) + (0 if is_anchored else length) <= _MAX_BITS

    if not is_bounded(_SMALLEST_TEXT):
        raise ValueError(f"{pattern!r} can take exponential time. Do not repeat what repeats itself.")

    def matches(text: str) -> bool:
        if not is_bounded(len(text).bit_length()):
            raise BudgetExceeded
        return compiled.search(text) is not None

    return matches


def _measure_choices(items: Iterable[tuple[Any, Any]], length: int) -> float:
    """Return the logarithm of how many ways a search can try in a string; `length` is the logarithm of its length."""
    total = 0.0
    for operation, value in reversed(list(items)):
        name = str(operation)
        if name.endswith("REPEAT"):
            least, most, inner = value
            total += min(log2(min(most, 2**64) - least + 1), length)
            total += _measure_choices(inner, length) * min(most, 2**length)
        elif name == "BRANCH":
            total += log2(len(value[1])) + max(_measure_choices(branch, length) for branch in value[1])
        elif name in ("ASSERT", "ASSERT_NOT"):
            total = max(total, _measure_choices(value[1], length)) + 1  # what it tried is not tried again
        elif name == "SUBPATTERN":
            total += _measure_choices(value[-1], length)
        elif name == "ATOMIC_GROUP":
            total += _measure_choices(value, length)
        elif name.startswith("GROUPREF"):
            total += length if name == "GROUPREF" else inf
    return total
