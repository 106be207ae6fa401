"""Validation errors → problems that a model can act on: where, what, what fits, what came.

Lives here: the wording, and the path of a place in the arguments. Not here: finding the problems (`arguments`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, cast

from pydantic_core import ValidationError

from toolmason._core.arguments.repair import kind_of
from toolmason._core.define.inputs import Misfits, SchemaMisfit
from toolmason.errors import ArgumentProblem, InvalidArguments, clip

_GOT_LENGTH: Final = 60


def count_of(error: ValueError) -> int:
    """Return how many problems an error tells of."""
    if isinstance(error, Misfits):
        return sum(map(count_of, error.errors))
    if isinstance(error, ValidationError):
        return error.error_count()
    return len(error.errors) if isinstance(error, SchemaMisfit) else 1


def details_of(error: ValueError) -> list[Mapping[str, Any]] | None:
    """Return what pydantic says of each problem; `None` for an error that is not pydantic's."""
    if isinstance(error, Misfits):
        return [item for part in error.errors for item in details_of(part) or ()]
    if isinstance(error, ValidationError):
        return cast("list[Mapping[str, Any]]", error.errors(include_url=False, include_context=False))
    return None


def problems_of(error: ValueError, details: list[Mapping[str, Any]] | None, data: Any) -> list[ArgumentProblem]:
    """Return every problem behind a validation error, one for each place."""
    if details is not None:
        found = [_from_pydantic(item, data) for item in details]
    elif isinstance(error, SchemaMisfit):
        found = [_from_jsonschema(item) for item in error.errors]
    else:
        found = [ArgumentProblem("$", clip(str(error), 200), "values that fit the schema", got(data))]
    if len(found) == 1:
        return found
    merged: dict[str, ArgumentProblem] = {}
    for problem in found:
        first = merged.setdefault(problem.path, problem)
        if first is not problem and problem.expected not in first.expected.split(" or "):
            expected = f"{first.expected} or {problem.expected}"
            merged[problem.path] = ArgumentProblem(problem.path, f"expected {expected}", expected, problem.got)
    return list(merged.values())


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


def _from_pydantic(item: Mapping[str, Any], data: Any) -> ArgumentProblem:
    kind, message = item["type"], item["msg"]
    path = path_in(data, item["loc"], whole=kind == "missing")
    if kind == "missing":
        return ArgumentProblem(path, "required, and missing", "a value", "nothing")
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return ArgumentProblem(path, "there is no such argument", "no such argument", got(item["input"]))
    expected = _EXPECTED.get(kind) or message.removeprefix("Input should be ")
    return ArgumentProblem(path, message[0].lower() + message[1:], expected, got(item["input"]))


def _from_jsonschema(item: Any) -> ArgumentProblem:
    path = path_of(item.absolute_path)
    expected = f"{item.validator} {clip(json.dumps(item.validator_value, default=str))}"
    return ArgumentProblem(path, clip(item.message, 200), expected, got(item.instance))


def path_in(data: Any, location: Iterable[int | str], *, whole: bool = False) -> str:
    """Return a location as a JSON path, less the steps that name a branch of a union and not a place."""
    steps: tuple[Any, ...] = tuple(location)
    if len(steps) == 1 and isinstance(data, dict) and (whole or steps[0] in data):
        return f"$.{clip(str(steps[0]))}"
    kept: list[int | str] = []
    for index, step in enumerate(steps):
        if (isinstance(data, dict) and step in data) or (
            isinstance(data, list) and isinstance(step, int) and 0 <= step < len(data)
        ):
            data = data[step]
        elif not (whole and index == len(steps) - 1):
            continue
        kept.append(step)
    return path_of(kept)


def path_of(steps: Iterable[int | str]) -> str:
    """Return steps as a JSON path: `$.items[2].count`."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{clip(step)}" for step in steps)


def got(value: Any) -> str:
    """Return what came, in a few words."""
    if isinstance(value, str):
        return f"string {clip(repr(value[:_GOT_LENGTH]), _GOT_LENGTH)}"
    if isinstance(value, (dict, list)):
        return f"{kind_of(value)} of {len(value)}"
    if value is None:
        return "null"
    return f"{kind_of(value)} {value}" if _small(value) else kind_of(value)


def _small(value: Any) -> bool:
    return not isinstance(value, int) or abs(value) < 10**30


def fail(tool: str, path: str, message: str, expected: str, got: str) -> NoReturn:
    """Refuse arguments for one reason."""
    raise InvalidArguments([ArgumentProblem(path, message, expected, got)], tool=tool)
