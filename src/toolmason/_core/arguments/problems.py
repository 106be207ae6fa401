"""Convert validation errors to problems that a model can act on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NoReturn, cast

from pydantic_core import ValidationError

from toolmason._core.define.inputs import CombinedMismatch
from toolmason._core.define.schema_nodes import (
    UNION_KEYWORDS,
    SchemaMismatch,
    get_json_type,
    iter_alternatives,
    resolve,
)
from toolmason._secrets import MASK, MAX_SECRETS, SECRET_NAMES, iter_secrets, mask_values
from toolmason._text import find_close_names
from toolmason._wire import parse_json
from toolmason.errors import CUT_OFF, ArgumentProblem, InvalidArguments, clip

_MAX_VALUE_LENGTH: Final = 60
_MAX_NAME_LENGTH: Final = 100
_MAX_SEARCHED_DEPTH: Final = 200
_FINITE_TYPES: Final = frozenset({str, int, bool, type(None)})


def count_problems(error: ValueError) -> int:
    """Return the number of problems in a validation error."""
    if isinstance(error, CombinedMismatch):
        return sum(map(count_problems, error.errors))
    if isinstance(error, ValidationError):
        return error.error_count()
    return len(error.errors) if isinstance(error, SchemaMismatch) else 1


def get_details(error: ValueError) -> list[Mapping[str, Any]] | None:
    """Return pydantic's details of each problem, or None if a part of the error is not from pydantic."""
    if isinstance(error, CombinedMismatch):
        parts = list(map(get_details, error.errors))
        return None if None in parts else [item for part in parts for item in part or ()]
    if isinstance(error, ValidationError):
        return cast("list[Mapping[str, Any]]", error.errors(include_url=False, include_context=False))
    return None


def make_problems(
    error: ValueError,
    details: list[Mapping[str, Any]] | None,
    data: Any,
    secret_names: Collection[str] = (),
    schema: Mapping[str, Any] = MappingProxyType({}),
) -> list[ArgumentProblem]:
    """Return every problem in a validation error, at most one per path, without the values of secret fields."""
    if details is not None:
        problems = [_convert_pydantic_error(item, data, secret_names, schema) for item in details]
    elif isinstance(error, CombinedMismatch):
        parts = [make_problems(part, get_details(part), data, secret_names, schema) for part in error.errors]
        problems = [problem for part in parts for problem in part]
    elif isinstance(error, SchemaMismatch):
        problems = _convert_schema_errors(error, secret_names)
    else:
        problems = [ArgumentProblem("$", clip(str(error), 200), "values that match the schema", describe_value(data))]
    if len(problems) == 1:
        return problems
    problems_by_path: dict[str, ArgumentProblem] = {}
    for problem in problems:
        first = problems_by_path.setdefault(problem.path, problem)
        if _ACCEPTED in (first.expected, problem.expected):  # a validator says what is wrong
            problems_by_path[problem.path] = first if first.expected == _ACCEPTED else problem
        elif first is not problem and problem.expected not in first.expected.split(" or "):
            expected = f"{first.expected} or {problem.expected}"
            problems_by_path[problem.path] = ArgumentProblem(
                problem.path, f"expected {expected}", expected, problem.got
            )
    return list(problems_by_path.values())


def suggest_names(
    problems: list[ArgumentProblem], data: Mapping[str, Any], properties: Mapping[str, Any]
) -> list[ArgumentProblem]:
    """Return the problems; that of a missing argument names an undeclared one with a similar name."""
    if not any(problem.expected == _MISSING.expected for problem in problems):
        return problems
    unknown = [str(name) for name in data if name not in properties][:_MAX_ERRORS]
    found: list[ArgumentProblem] = []
    for problem in problems:
        near = find_close_names(problem.path.removeprefix("$."), unknown) if problem.message == _MISSING.message else ()
        if near:
            message = f"{problem.message}; {clip(near[0])!r} is not an argument"
            problem = problem._replace(message=message)  # noqa: PLW2901 - the same problem, worded better
        found.append(problem)
    return found


_JSON_ERRORS: Final = {
    "key must be a string": "a key must be a string in double quotes",
    "expected ident": "expected true, false or null",
    "expected value": "expected a value",
    "trailing characters": "unexpected text after the value",
    "trailing comma": "a comma before the end",
    "control character (\\u0000-\\u001F) found while parsing a string": "a line break or control character in a string",
}
"""Messages of the parser, and what they mean."""


def explain_json_error(reason: str) -> str:
    """Return the message of the parser in plain terms, with the place that it names."""
    text, at, place = reason.rpartition(" at line ")
    text = "the JSON was truncated" if text.startswith("EOF while parsing") else _JSON_ERRORS.get(text, text)
    return f"{text}{at}{place}"


_NAMING_KEYWORDS: Final = ("additionalProperties", "unevaluatedProperties", "dependentRequired")
"""Keywords whose messages have names of fields, but no values."""
_MISSING: Final = ArgumentProblem("", "required but missing", "a value", "nothing")
_ACCEPTED: Final = "a value that the tool accepts"
_MAX_ERRORS: Final = 50
"""Maximum number of errors read from the alternatives of a schema."""
_TYPE_PHRASES: Final = {"object": "an object", "null": "null"}
_FORMAT_PHRASES: Final = {
    "date": "a valid date, such as 2024-01-31",
    "date-time": "a valid datetime, such as 2024-01-31T15:30:00Z",
    "time": "a valid time, such as 15:30:00",
    "duration": "a valid duration, such as PT1H",
}
_FORMATS: Final = {"date": "date", "datetime": "date-time", "time": "time", "time_delta": "duration"}
"""Format of each type of date, as pydantic's errors begin."""
_BOUND_PHRASES: Final = {
    "minimum": "greater than or equal to",
    "maximum": "less than or equal to",
    "exclusiveMinimum": "greater than",
    "exclusiveMaximum": "less than",
    "multipleOf": "a multiple of",
}
_COUNT_PHRASES: Final = {
    "minLength": "string should have at least {} character",
    "maxLength": "string should have at most {} character",
    "minItems": "list should have at least {} item",
    "maxItems": "list should have at most {} item",
}
_EXPECTED: Final = {
    "int_type": "integer",
    "int_parsing": "integer",
    "int_from_float": "integer",
    "float_type": "number",
    "decimal_type": "number",
    "finite_number": "a finite number",
    "bool_type": "boolean",
    "string_type": "string",
    "list_type": "array",
    "set_type": "array",
    "tuple_type": "array",
    "dict_type": "object",
    "model_type": "object",
    "dataclass_type": "object",
    "none_required": "null",
}


def _is_secret(steps: Iterable[Any], secret_names: Collection[str]) -> bool:
    """Return True if a value is in a field that is secret by its type or by its name."""
    if "" in secret_names:
        return True
    for step in steps:
        if type(step) is str and (step in secret_names or _is_secret_name(step[:_MAX_NAME_LENGTH])):
            return True
    return False


@lru_cache(maxsize=256)
def _is_secret_name(name: str) -> bool:
    return re.search(SECRET_NAMES, name) is not None


def _convert_pydantic_error(
    item: Mapping[str, Any], data: Any, secret_names: Collection[str], schema: Mapping[str, Any]
) -> ArgumentProblem:
    kind, location, value = item["type"], item["loc"], item["input"]
    is_field = len(location) == 1 and type(data) is dict and location[0] in data
    steps = location if is_field else _locate(data, location, keep_last=kind == "missing")
    path = format_path(steps)
    if kind == "missing":
        return ArgumentProblem(path, *_MISSING[1:])
    if kind.startswith("union_tag_") and (problem := _convert_tag_error(steps, value, secret_names, schema)):
        return problem
    wanted, is_secret = _EXPECTED.get(kind), _is_secret(location, secret_names)
    # Text in place of an object may hold the secrets of its fields.
    is_hidden = is_secret or (bool(secret_names) and wanted is not None and type(value) is str)
    got = describe_value(value, is_secret=is_hidden)
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return ArgumentProblem(path, "unknown argument", "no such argument", got)
    message: str = item["msg"]
    if is_secret and isinstance(value, str):
        message = mask_values(message, (value,))
    elif wanted is None and isinstance(value, dict | list):
        message = _mask_fields(message, value, secret_names)
    if wanted is not None:
        message = "input should be a valid number" if kind == "decimal_type" else message[0].lower() + message[1:]
        return ArgumentProblem(path, message + _OTHER_TYPES.get(type(value), ", not an object"), wanted, got)
    return ArgumentProblem(path, *_word_error(kind, message[0].lower() + message[1:]), got)


def _word_error(kind: str, message: str) -> tuple[str, str]:
    """Return the message of an error of pydantic, and what it expects."""
    if kind in ("value_error", "assertion_error"):
        return message.partition(", ")[2] or message, _ACCEPTED
    name, _, end = kind.rpartition("_")
    if end not in ("type", "parsing"):
        return message, message.removeprefix("input should be ")
    expected, _, detail = message.removeprefix("input should be ").partition(", ")
    if (phrase := _FORMAT_PHRASES.get(_FORMATS.get(name, ""))) is not None:
        return f"input should be {phrase}" + (f" ({detail})" if detail else ""), phrase
    return message, expected


def _convert_tag_error(
    steps: Sequence[Any], value: Any, secret_names: Collection[str], schema: Mapping[str, Any]
) -> ArgumentProblem | None:
    """Return the problem of a union whose discriminator is missing or wrong, if the schema shows its values."""
    part = schema
    for step in steps:
        part = _step_into(_choose_branch(resolve(part, schema), schema), step, schema)
    found = (
        node["discriminator"] for node in iter_alternatives(part, schema, UNION_KEYWORDS) if "discriminator" in node
    )
    if (tag := next(found, None)) is None or not isinstance(value, dict):
        return None
    name, expected = tag["propertyName"], _describe_expected("enum", list(tag.get("mapping", ())))
    path = format_path([*steps, name])
    if name not in value:
        return ArgumentProblem(path, f"{_MISSING.message}: {expected}", expected, _MISSING.got)
    got = describe_value(value[name], is_secret=_is_secret([*steps, name], secret_names))
    return ArgumentProblem(path, f"input should be {expected}", expected, got)


def _mask_fields(message: str, value: Any, secret_names: Collection[str]) -> str:
    """Return the message of a validator of an object without the values of secret fields, which it may name."""
    names = rf"{SECRET_NAMES}|^({'|'.join(map(re.escape, secret_names))})$" if secret_names else SECRET_NAMES
    secrets = {*islice(iter_secrets(value, names), MAX_SECRETS + 1)}
    return MASK if "" in secrets or len(secrets) > MAX_SECRETS else mask_values(message, secrets)


_OTHER_TYPES: Final = {
    str: ", not a string",
    int: ", not an integer",
    float: ", not a fraction",
    bool: ", not a boolean",
    list: ", not an array",
    dict: ", not an object",
    type(None): ", not null",
}
"""Ends of the message about a value of a wrong type. The value itself may be a secret."""


# --- JSON Schema: in the words and the order of pydantic, so that a model reads the same about a remote tool ---


def _convert_schema_errors(mismatch: SchemaMismatch, secret_names: Collection[str]) -> list[ArgumentProblem]:
    """Return the problems of arguments that violate a schema, in the order of its properties."""
    found = [
        _convert_schema_error(item, secret_names) for error in mismatch.errors for item in _iter_alternatives(error)
    ]
    found.sort(key=lambda item: _get_position(item[0], mismatch.schema))
    return [problem for _, problem in found]


def _iter_alternatives(error: Any) -> Iterator[Any]:
    """Yield an error, or those of each alternative. The error of null is left out if there are others."""
    queue, count = [error], 0
    while queue:
        item = queue.pop(0)
        alternatives = item.context if item.validator in ("anyOf", "oneOf") else None
        if not alternatives:
            yield item
            continue
        count += len(alternatives)
        if count > _MAX_ERRORS:
            yield item
            continue
        others = [each for each in alternatives if (each.validator, each.validator_value) != ("type", "null")]
        queue[:0] = others or alternatives


def _convert_schema_error(item: Any, secret_names: Collection[str]) -> tuple[list[Any], ArgumentProblem]:
    """Return the steps to a value, and its problem."""
    steps, kind, wanted = list(item.absolute_path), item.validator, item.validator_value
    if kind == "required":
        # One error for each missing name, which only the text of the error says.
        name = next((name for name in wanted if name not in item.instance and repr(name) in item.message), None)
        if name is not None:
            steps.append(name)
            return steps, _MISSING._replace(path=format_path(steps))
    format_name = item.schema.get("format") if kind == "type" and wanted == "string" else None
    expected = _FORMAT_PHRASES.get(str(format_name)) or _describe_expected(kind, wanted)
    is_secret = _is_secret(steps, secret_names)
    is_hidden = is_secret or (bool(secret_names) and kind == "type" and type(item.instance) is str)  # as above
    got = describe_value(item.instance, is_secret=is_hidden)
    if expected:
        message = f"input should be {clip(expected, 180)}"
        is_type = kind == "type" and expected not in _FORMAT_PHRASES.values()
        if is_type:
            message += _OTHER_TYPES.get(type(item.instance), ", not an object")
        expected = str(wanted) if is_type else clip(expected, 180)
        return steps, ArgumentProblem(format_path(steps), message, expected, got)
    if kind in _COUNT_PHRASES:
        expected = _COUNT_PHRASES[kind].format(wanted) + ("" if wanted == 1 else "s")
        if kind.endswith("Items"):
            expected += f" after validation, not {len(item.instance)}"
        return steps, ArgumentProblem(format_path(steps), expected, expected[0].upper() + expected[1:], got)
    expected = f"{kind} {clip(json.dumps(wanted, default=str))}"
    # The message of jsonschema has the value, and that of an object has the fields.
    is_shown = kind in _NAMING_KEYWORDS and not secret_names
    is_secret = is_secret or (isinstance(item.instance, dict | list) and not is_shown)
    message = f"input does not match {expected}" if is_secret else clip(item.message, 200)
    return steps, ArgumentProblem(format_path(steps), message, expected, got)


def _describe_expected(kind: str, wanted: Any) -> str:
    """Return the words after "input should be" for a keyword of a schema, or an empty string."""
    if kind == "type" and isinstance(wanted, str):
        return _TYPE_PHRASES.get(wanted, f"a valid {wanted}")
    if kind == "const":
        return repr(wanted)
    if kind == "enum" and wanted:
        *first, last = (repr(value) for value in wanted)
        return f"{', '.join(first)} or {last}" if first else last
    if kind in _BOUND_PHRASES:
        return f"{_BOUND_PHRASES[kind]} {wanted}"
    return ""


def _get_position(steps: Iterable[Any], schema: Mapping[str, Any]) -> list[tuple[int, str]]:
    """Return the position of a value in the order in which a schema lists its properties."""
    node, position = resolve(schema, schema), []
    for step in steps:
        node = _choose_branch(node, schema)
        properties = node.get("properties")
        names = list(properties) if isinstance(properties, Mapping) else []
        is_name = not isinstance(step, int)
        position.append((names.index(step) if step in names else len(names), str(step)) if is_name else (step, ""))
        node = _step_into(node, step, schema)
    return position


def _step_into(node: Mapping[str, Any], step: Any, schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an item or a field of a value."""
    if isinstance(step, int):
        return resolve(node.get("items"), schema)
    properties = node.get("properties")
    inner = properties.get(step) if isinstance(properties, Mapping) else None
    return resolve(node.get("additionalProperties") if inner is None else inner, schema)


def _choose_branch(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first alternative of a schema that has inner values, or the schema itself."""
    branches = node.get("anyOf") or node.get("oneOf")
    for branch in branches if isinstance(branches, list) else ():
        found = resolve(branch, schema)
        if not found.keys().isdisjoint(("properties", "items", "additionalProperties")):
            return found
    return node


# --- paths and values --------------------------------------------------------------------------


def _locate(data: Any, location: Sequence[Any], *, keep_last: bool) -> list[Any]:
    """Return the steps of a location, without those that name a union branch."""
    steps: list[Any] = []
    for index, step in enumerate(location):
        if (isinstance(data, dict) and step in data) or (
            isinstance(data, list) and isinstance(step, int) and 0 <= step < len(data)
        ):
            data = data[step]
        elif not keep_last or index != len(location) - 1:
            continue
        steps.append(step)
    return steps


def format_path(steps: Iterable[int | str]) -> str:
    """Return steps as a JSON path: `$.items[2].count`."""
    path = "$"
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{clip(step)}"
    return path


def describe_value(value: Any, *, is_secret: bool = False) -> str:
    """Return a short description of a received value: of a secret, its type and its size."""
    if isinstance(value, str):
        if is_secret:
            return f"string of length {len(value)}"
        return "string " + clip(repr(value[:_MAX_VALUE_LENGTH]), _MAX_VALUE_LENGTH)
    if isinstance(value, (dict, list)):
        return f"{get_json_type(value)} of {len(value)}"
    if value is None:
        return "null"
    is_small = not is_secret and (not isinstance(value, int) or abs(value) < 10**30)
    return f"{get_json_type(value)} {value}" if is_small else get_json_type(value)


def reject(tool: str, path: str, message: str, expected: str, got: str) -> NoReturn:
    """Raise InvalidArguments with a single problem."""
    raise InvalidArguments([ArgumentProblem(path, message, expected, got)], tool=tool)


def find_non_finite(value: Any, path: str = "$", depth: int = 0) -> str | None:
    """Return the path of a NaN or infinity, or None."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if depth > _MAX_SEARCHED_DEPTH:
        return None
    items: Any = ()
    if isinstance(value, Mapping):
        items = ((f".{key}", item) for key, item in value.items() if type(item) not in _FINITE_TYPES)
    elif isinstance(value, list | tuple | set | frozenset):
        items = ((f"[{index}]", item) for index, item in enumerate(value) if type(item) not in _FINITE_TYPES)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        items = ((f".{key}", item) for key, item in vars(value).items())
    return next((found for name, item in items if (found := find_non_finite(item, path + name, depth + 1))), None)


def parse_object(raw: str, tool: str, secret_names: Collection[str] = ()) -> dict[str, Any]:
    """Parse JSON text. Raise InvalidArguments if it is not an object. With secret names, it does not show the text."""
    try:
        data = parse_json(raw, allow_inf_nan=False)
    except ValueError as error:
        reason, hidden = str(error), f"text of length {len(raw)}" if secret_names else ""
        if reason.startswith("EOF while parsing"):
            message = f"the JSON was truncated at {reason.rpartition(' at ')[2]}; send the complete object again"
            problem = ArgumentProblem("$", message, CUT_OFF, hidden or f"…{clip(raw[-40:])}")
        else:
            hint = "; send bare JSON, without a code fence" if raw.lstrip().startswith("```") else ""
            problem = ArgumentProblem(
                "$",
                f"not valid JSON: {clip(explain_json_error(reason), 160)}{hint}",
                "a JSON object",
                hidden or clip(raw[:200]),
            )
        raise InvalidArguments([problem], tool=tool, raw=raw) from None
    if not isinstance(data, dict):
        is_encoded = isinstance(data, str) and data.lstrip().startswith("{")
        hint = "; this is JSON encoded as a string: send the object itself" if is_encoded else ""
        got = describe_value(data, is_secret=bool(secret_names))
        reject(tool, "$", f"the arguments must be a JSON object{hint}", "object", got)
    return data
