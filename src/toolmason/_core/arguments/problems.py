"""Convert validation errors to problems that a model can act on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, cast

from pydantic_core import ValidationError

from toolmason._core.define.inputs import CombinedMismatch, SchemaMismatch
from toolmason._core.define.schema_nodes import get_json_type
from toolmason.errors import ArgumentProblem, InvalidArguments, clip

_MAX_VALUE_LENGTH: Final = 60


def count_problems(error: ValueError) -> int:
    """Return the number of problems in a validation error."""
    if isinstance(error, CombinedMismatch):
        return sum(map(count_problems, error.errors))
    if isinstance(error, ValidationError):
        return error.error_count()
    return len(error.errors) if isinstance(error, SchemaMismatch) else 1


def get_details(error: ValueError) -> list[Mapping[str, Any]] | None:
    """Return pydantic's details of each problem, or None if the error is not from pydantic."""
    if isinstance(error, CombinedMismatch):
        return [item for part in error.errors for item in get_details(part) or ()]
    if isinstance(error, ValidationError):
        return cast("list[Mapping[str, Any]]", error.errors(include_url=False, include_context=False))
    return None


def make_problems(error: ValueError, details: list[Mapping[str, Any]] | None, data: Any) -> list[ArgumentProblem]:
    """Return every problem in a validation error, at most one per path."""
    if details is not None:
        problems = [_convert_pydantic_error(item, data) for item in details]
    elif isinstance(error, SchemaMismatch):
        problems = sorted(map(_convert_jsonschema_error, error.errors), key=lambda problem: problem.path)
    else:
        problems = [ArgumentProblem("$", clip(str(error), 200), "values that match the schema", describe_value(data))]
    if len(problems) == 1:
        return problems
    problems_by_path: dict[str, ArgumentProblem] = {}
    for problem in problems:
        first = problems_by_path.setdefault(problem.path, problem)
        if first is not problem and problem.expected not in first.expected.split(" or "):
            expected = f"{first.expected} or {problem.expected}"
            problems_by_path[problem.path] = ArgumentProblem(
                problem.path, f"expected {expected}", expected, problem.got
            )
    return list(problems_by_path.values())


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


_TYPE_WORDS: Final = {"array": "list", "object": "dictionary"}
"""Words of pydantic for JSON types."""


def _convert_pydantic_error(item: Mapping[str, Any], data: Any) -> ArgumentProblem:
    kind = item["type"]
    message = item["msg"]
    path = locate_path(data, item["loc"], keep_last=kind == "missing")
    if kind == "missing":
        return ArgumentProblem(path, "required but missing", "a value", "nothing")
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return ArgumentProblem(path, "unknown argument", "no such argument", describe_value(item["input"]))
    expected = _EXPECTED.get(kind) or message.removeprefix("Input should be ")
    return ArgumentProblem(path, message[0].lower() + message[1:], expected, describe_value(item["input"]))


def _convert_jsonschema_error(item: Any) -> ArgumentProblem:
    path = format_path(item.absolute_path)
    kind, value = item.validator, item.validator_value
    # The two most frequent problems read as those of a function's types, and a missing key has its own path.
    if kind == "required":
        name = next((name for name in value if item.message == f"{name!r} is a required property"), None)
        if name is not None:
            return ArgumentProblem(f"{path}.{clip(name)}", "required but missing", "a value", "nothing")
    if kind == "type" and isinstance(value, str):
        message = f"input should be a valid {_TYPE_WORDS.get(value, value)}"
        return ArgumentProblem(path, message, value, describe_value(item.instance))
    expected = f"{item.validator} {clip(json.dumps(item.validator_value, default=str))}"
    if item.validator == "required":
        # One error for each missing name, which only the text of the error says.
        missing = [name for name in item.validator_value if name not in item.instance and repr(name) in item.message]
        if missing:
            return ArgumentProblem(f"{path}.{clip(missing[0])}", "required but missing", "a value", "nothing")
    return ArgumentProblem(path, clip(item.message, 200), expected, describe_value(item.instance))


def locate_path(data: Any, location: Iterable[int | str], *, keep_last: bool = False) -> str:
    """Return a location as a JSON path, without the steps that name a union branch."""
    steps: tuple[Any, ...] = tuple(location)
    if len(steps) == 1 and isinstance(data, dict) and (keep_last or steps[0] in data):
        return f"$.{clip(str(steps[0]))}"
    path_steps: list[int | str] = []
    for index, step in enumerate(steps):
        if (isinstance(data, dict) and step in data) or (
            isinstance(data, list) and isinstance(step, int) and 0 <= step < len(data)
        ):
            data = data[step]
        elif not (keep_last and index == len(steps) - 1):
            continue
        path_steps.append(step)
    return format_path(path_steps)


def format_path(steps: Iterable[int | str]) -> str:
    """Return steps as a JSON path: `$.items[2].count`."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{clip(step)}" for step in steps)


def describe_value(value: Any) -> str:
    """Return a short description of a received value."""
    if isinstance(value, str):
        return f"string {clip(repr(value[:_MAX_VALUE_LENGTH]), _MAX_VALUE_LENGTH)}"
    if isinstance(value, (dict, list)):
        return f"{get_json_type(value)} of {len(value)}"
    if value is None:
        return "null"
    return f"{get_json_type(value)} {value}" if _is_small(value) else get_json_type(value)


def _is_small(value: Any) -> bool:
    return not isinstance(value, int) or abs(value) < 10**30


def reject(tool: str, path: str, message: str, expected: str, got: str) -> NoReturn:
    """Raise InvalidArguments with a single problem."""
    raise InvalidArguments([ArgumentProblem(path, message, expected, got)], tool=tool)
