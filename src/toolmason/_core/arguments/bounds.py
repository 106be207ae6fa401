"""Bounds of arguments: their size, their depth, and numbers that a validator accepts and a tool must not get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from toolmason._core.arguments.problems import find_non_finite, parse_object, reject
from toolmason._core.arguments.repair import ArgumentRepairer
from toolmason._core.define.inputs import Inputs
from toolmason._core.values.policy import EngineSettings
from toolmason._wire import has_large_number
from toolmason.errors import ArgumentProblem, InvalidArguments

_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}:"'))


def needs_bounds_check(inputs: Inputs) -> bool:
    """Return True if the validator accepts values that a tool must not get."""
    return inputs.unbounded_depth or inputs.may_hold_nan or bool(inputs.mistakable)


def check_bounds(inputs: Inputs, raw: str, tool: str, settings: EngineSettings) -> None:
    if len(raw) > settings.argument_bytes:
        message = f"the arguments exceed the limit argument_bytes of {settings.argument_bytes}"
        reject(tool, "$", message, f"at most {settings.argument_bytes} bytes", f"{len(raw)} bytes")
    max_depth = settings.json_depth
    if (
        inputs.unbounded_depth
        and raw.count("[") + raw.count("{") > max_depth
        and measure_nesting(extract_structure(raw.encode("utf-8", "surrogatepass")), max_depth) > max_depth
    ):
        reject_depth(tool, max_depth)
    if any(text in raw for text in inputs.mistakable):
        reject_booleans(inputs, parse_object(raw, tool, inputs.secret_names), tool)
    if inputs.may_hold_nan and _may_hold_non_finite(raw):
        reject_non_finite(parse_object(raw, tool, inputs.secret_names), tool)


def reject_depth(tool: str, max_depth: int) -> NoReturn:
    message = f"the arguments are nested deeper than the limit json_depth of {max_depth}"
    reject(tool, "$", message, f"at most {max_depth} levels", "more")


def _may_hold_non_finite(raw: str) -> bool:
    # Searching for one letter first is ten times as fast and usually decides.
    if ("N" in raw and "NaN" in raw) or ("I" in raw and "Infinity" in raw):
        return True
    return has_large_number(raw.encode("utf-8", "surrogatepass"))


def reject_non_finite(data: Mapping[str, Any], tool: str) -> None:
    """Reject NaN and infinity, and numbers that a float cannot hold: JSON has none, so another process gets null."""
    if path := find_non_finite(data):
        reject(tool, path, "the number must be finite, and not too large for a float", "a finite number", "another")


def reject_numeric_strings(inputs: Inputs, raw: str, tool: str) -> None:
    """Reject a string in place of a number, because pydantic silently accepts one for a decimal inside a model.

    Raises:
        InvalidArguments: one cannot be converted exactly.
        ValueError: all can be converted, which the repair step does.
    """
    repairer = _examine(inputs, parse_object(raw, tool, inputs.secret_names), tool)
    repaired = () if inputs.strict_types else {repair.path for repair in repairer.repairs}
    problems = [
        ArgumentProblem(path, "a string is not a number", "number", "string")
        for path in repairer.text_paths
        if path not in repaired
    ]
    if problems:
        raise InvalidArguments(problems, tool=tool)
    if repairer.text_paths:
        raise ValueError("a string is not a number")


def reject_booleans(inputs: Inputs, data: dict[str, Any], tool: str) -> None:
    """Reject a bool in place of a fixed number, and the reverse: Python treats True as 1, and a validator may too."""
    found = _examine(inputs, data, tool)
    problems = [
        *(
            ArgumentProblem(path, "a boolean is not a number", "one of the values", "boolean")
            for path in found.boolean_paths
        ),
        *(
            ArgumentProblem(path, "a number is not a boolean", "one of the values", "number")
            for path in found.number_paths
        ),
    ]
    if problems:
        raise InvalidArguments(problems, tool=tool)


def _examine(inputs: Inputs, data: dict[str, Any], tool: str) -> ArgumentRepairer:
    """Return a repairer that has seen all arguments."""
    repairer = ArgumentRepairer(inputs.schema, inputs.enum_names)
    repairer.repair(data, inputs.schema)
    if repairer.is_exhausted:
        reject(
            tool, "$", "the arguments have too many values for a schema with this many alternatives", "fewer", "more"
        )
    return repairer


def measure_nesting(structure: bytes, limit: int) -> int:
    """Return the nesting depth of extracted brackets, counting to at most `limit` + 1. Linear for real JSON."""
    brackets = structure.replace(b":", b"")
    for level in range(8):
        # A few `replace` rounds remove shallow nesting quickly; only the rest is scanned byte by byte.
        if not brackets:
            return level
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    depth = deepest = 8
    for byte in brackets:
        depth += 1 if byte in b"[{" else -1
        deepest = max(deepest, depth)
        if deepest > limit:
            break
    return deepest


def extract_structure(text: bytes) -> bytes:
    """Return the brackets and colons of JSON text that are not in strings."""
    found = text.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_STRUCTURE).replace(b'""', b"")
    return b"".join(found.split(b'"')[::2]) if b'"' in found else found
