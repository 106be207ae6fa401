"""Arguments as they came → values that fit, with every repair recorded; or every problem at once.

Lives here: reading, bounds, null as absent, what to do with names nobody asked for, errors with a path.
Clean arguments go straight from JSON through the validator; the rest of this module is for the others.
Not here: the lenient rules themselves (`repair`), or the schema (`inputs`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final, TypeAlias

from pydantic_core import PydanticSerializationError, ValidationError, from_json, to_json

from toolmason._core.arguments.problems import count_problems, describe_value, get_details, make_problems, reject
from toolmason._core.arguments.repair import UNCHANGED, ArgumentRepairer, matches_type
from toolmason._core.define.inputs import Inputs
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import Arguments, Repair
from toolmason.errors import CUT_OFF, ArgumentProblem, InvalidArguments, clip

_log = logging.getLogger("toolmason")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
ABSENT: Final = object()


Bound: TypeAlias = tuple[dict[str, Any], tuple[Repair, ...]]
"""The values for a call, and what was repaired on the way."""


def make_binder(inputs: Inputs, tool: str, settings: EngineSettings) -> Callable[[Arguments], Bound]:
    """Return the function that binds a tool's arguments; it raises InvalidArguments with every problem.

    What does not depend on the call is worked out here, once: this is the hottest path there is.
    """
    validate, validate_strict = inputs.validate_json, inputs.validate_strict
    needs_bounds_check, has_decimals = (
        inputs.unbounded_depth or inputs.may_hold_nan or inputs.has_fixed_numbers,
        inputs.has_decimals,
    )
    max_bytes, max_search_bytes = settings.argument_bytes, settings.duplicate_key_bytes

    def bind(raw: Arguments) -> Bound:
        if type(raw) is not str:
            return _bind_non_text(inputs, raw, tool, bind)
        size = len(raw)
        if needs_bounds_check or size > max_bytes:
            _check_bounds(inputs, raw, tool, settings)
        try:
            if validate_strict is not None and size <= max_search_bytes:
                values = validate_strict(raw)
            else:
                if has_decimals:
                    _reject_number_texts(inputs, raw, tool)
                values = validate(raw, strict=True)
        except ValueError as error:
            # Outside of the handler, and without its frames: chained exceptions make rings for the garbage collector.
            failure = error.with_traceback(None)
        else:
            # Every key has a colon: as many colons as keys means that none is there twice, and none is strange.
            if raw.count(":") != len(values) and size <= max_search_bytes:
                _check_keys(inputs, raw, tool)
            return values, ()
        return _recover(inputs, raw, tool, failure)

    return bind


def bind_once(inputs: Inputs, raw: Arguments, tool: str, settings: EngineSettings) -> Bound:
    """Bind the arguments of one call."""
    return make_binder(inputs, tool, settings)(raw)


def _bind_non_text(inputs: Inputs, raw: Arguments, tool: str, bind: Callable[[str], Bound]) -> Bound:
    if isinstance(raw, str):
        return bind(str(raw))
    if isinstance(raw, bytes | bytearray | memoryview):
        try:
            return bind(str(raw, "utf-8"))
        except UnicodeDecodeError as error:
            reject(
                tool, "$", f"the arguments are not UTF-8: byte {error.start} is {error.reason}", "UTF-8 text", "bytes"
            )
    try:
        mapping: dict[str, Any] = dict(raw or {})
    except (TypeError, ValueError):
        reject(tool, "$", "the arguments must be a JSON object", "object", describe_value(raw))
    try:
        if inputs.has_fixed_numbers:
            _reject_booleans(inputs, mapping, tool)
        # Where anything goes, the validator hands on the caller's own lists and dicts; a tool must not change those.
        return inputs.validate_python(deepcopy(mapping) if inputs.unbounded_depth else mapping, strict=True), ()
    except ValueError:
        return bind(_dump_arguments(mapping, tool))


def _dump_arguments(arguments: dict[str, Any], tool: str) -> str:
    # Values such as dates may come as JSON writes them, so a mapping that is not right as it stands
    # takes the same way as a text does.
    try:
        return to_json(arguments, inf_nan_mode="constants").decode()
    except Exception as error:  # noqa: BLE001 - a foreign object may raise anything while it is written
        reject(tool, "$", f"the arguments cannot be written as JSON: {clip(str(error), 200)}", "JSON values", "object")


# --- bounds ------------------------------------------------------------------------------------


def _check_bounds(inputs: Inputs, raw: str, tool: str, settings: EngineSettings) -> None:
    if len(raw) > settings.argument_bytes:
        message = f"the arguments are over the limit argument_bytes of {settings.argument_bytes}"
        reject(tool, "$", message, f"at most {settings.argument_bytes} bytes", f"{len(raw)} bytes")
    max_depth = settings.json_depth
    if (
        inputs.unbounded_depth
        and raw.count("[") + raw.count("{") > max_depth
        and measure_nesting(raw, max_depth) > max_depth
    ):
        message = f"the arguments are nested deeper than the limit json_depth of {max_depth}"
        reject(tool, "$", message, f"at most {max_depth} levels", "more")
    if inputs.has_fixed_numbers and ("true" in raw or "false" in raw):
        _reject_booleans(inputs, _parse(raw, tool), tool)
    # One letter first: that search is ten times as fast, and mostly the end of it.
    if inputs.may_hold_nan and (("N" in raw and "NaN" in raw) or ("I" in raw and "Infinity" in raw)):
        _parse(raw, tool)


def _reject_number_texts(inputs: Inputs, raw: str, tool: str) -> None:
    """Refuse a text where a number is wanted: inside a model, pydantic takes one for a decimal, and tells nobody.

    Raises:
        ValueError: there is one; what it means is for the repairs to say.
    """
    repairer = ArgumentRepairer(inputs.schema, inputs.enum_names)
    repairer.repair(_parse(raw, tool), inputs.schema)
    if repairer.text_paths:
        raise ValueError(f"{repairer.text_paths[0]}: a text is not a number")


def _reject_booleans(inputs: Inputs, data: dict[str, Any], tool: str) -> None:
    """Refuse a bool where a fixed number is wanted: Python holds True equal to 1, and a validator may too."""
    repairer = ArgumentRepairer(inputs.schema, inputs.enum_names)
    repairer.repair(data, inputs.schema)
    if repairer.boolean_paths:
        problems = [
            ArgumentProblem(path, "a boolean is not a number", "one of the values", "boolean")
            for path in repairer.boolean_paths
        ]
        raise InvalidArguments(problems, tool=tool)


def measure_nesting(text: str, limit: int) -> int:
    """Return how deep brackets nest, counting no further than one past `enough`. Linear in the text for real JSON."""
    data = text.encode("utf-8", "surrogatepass")
    brackets = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NOT_BRACKETS).replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    for level in range(8):
        # Flat data is done after a few rounds at the speed of `replace`; only what is left is walked.
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


def _check_keys(inputs: Inputs, raw: str, tool: str) -> None:
    """Refuse an object that says one key twice, and tell of those that were left out."""
    arguments = _reject_duplicate_keys(raw, tool)
    if inputs.validate_strict is not None:
        for key in arguments.keys() - inputs.schema["properties"].keys():
            _keeps_unknown_key(inputs, key, tool)


def _reject_duplicate_keys(raw: str, tool: str) -> dict[str, Any]:
    """Refuse an object that says one key twice: which of the two was meant cannot be known."""

    def collect_pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        unique_pairs = dict(items)
        if len(unique_pairs) != len(items):
            seen: set[str] = set()
            duplicate = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            reject(tool, "$", f"the key {clip(duplicate)!r} is given twice in one object", "each key once", "twice")
        return unique_pairs

    data: dict[str, Any] = json.loads(raw, object_pairs_hook=collect_pairs)
    return data


# --- what is not clean -------------------------------------------------------------------------


def normalize_arguments(inputs: Inputs, raw: Arguments, tool: str) -> dict[str, Any]:
    """Return arguments that fit as the model's own names and values, repairs made: what will run, to look at."""
    if isinstance(raw, str | bytes | bytearray | memoryview):
        text = raw if isinstance(raw, str) else str(raw, "utf-8")
        data = _parse(text, tool) if text.strip() else {}
    else:
        data = dict(raw or {})
    try:
        encoded = to_json(data)
    except (PydanticSerializationError, UnicodeError, TypeError, RecursionError):
        return data  # values that JSON cannot say were taken as they are
    try:
        inputs.validate_json(encoded, strict=True)
    except ValueError as error:
        return _repair_arguments(inputs, from_json(encoded), get_details(error), tool)[0]
    return data


def _recover(inputs: Inputs, raw: str, tool: str, error: ValueError) -> Bound:
    if not raw.strip():
        raw = "{}"  # some models send nothing at all for "no arguments"
        try:
            return inputs.validate_json(raw, strict=True), ()
        except ValueError as empty_error:
            error = empty_error
    data = _parse(raw, tool)
    if raw.count(":") != len(data):
        _reject_duplicate_keys(raw, tool)
    if len(raw) > MAX_REPAIR_BYTES:
        raise InvalidArguments(_sample_problems(inputs, data, count_problems(error)), tool=tool)
    if isinstance(error, ValidationError) and error.error_count() > MAX_PROBLEMS:
        raise InvalidArguments(_sample_problems(inputs, data, error.error_count()), tool=tool)
    details = get_details(error)
    fixed, repairs = _repair_arguments(inputs, data, details, tool)
    if fixed is not data:
        try:
            return inputs.validate_json(to_json(fixed), strict=True), tuple(repairs)
        except ValueError as second_error:
            error, details = second_error, get_details(second_error)
    raise InvalidArguments(make_problems(error, details, fixed), tool=tool)


MAX_PROBLEMS: Final = 1000
"""With more problems than this nothing is repaired, and a few stand for all: listing a million takes too long."""


MAX_REPAIR_BYTES: Final = 256 * 1024
"""Texts over this size are taken as they are or not at all: walking a huge one would hold up the loop."""


def _sample_problems(inputs: Inputs, data: dict[str, Any], count: int) -> list[ArgumentProblem]:
    sample = _take_sample(data)
    problems: list[ArgumentProblem] = []
    try:
        inputs.validate_json(to_json(sample), strict=True)
    except ValueError as error:
        problems = make_problems(error, get_details(error), sample)
    return [ArgumentProblem("$", f"{count} problems", "arguments that fit the schema", describe_value(data)), *problems]


def _take_sample(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _take_sample(value[key]) for key in list(value)[:20]}
    return [_take_sample(item) for item in value[:20]] if isinstance(value, list) else value


def _repair_arguments(
    inputs: Inputs, data: dict[str, Any], details: list[Mapping[str, Any]] | None, tool: str
) -> tuple[dict[str, Any], list[Repair]]:
    """Return the arguments without what does not belong, and with what is nearly right put right.

    Only the arguments that were complained about are looked at; what is right stays as it is.
    """
    properties = inputs.schema.get("properties", {})
    reported_keys = data if details is None else {item["loc"][0] for item in details if item["loc"]}
    suspects = [key for key in data if key in reported_keys or key not in properties]
    fixed, repairs = data, ArgumentRepairer(inputs.schema, inputs.enum_names)
    for key in suspects:
        if key in properties:
            value = _repair_argument(inputs, fixed[key], key, repairs)
        else:
            value = UNCHANGED if _keeps_unknown_key(inputs, key, tool) else ABSENT
        if value is ABSENT:
            fixed = {name: item for name, item in fixed.items() if name != key}
        elif value is not UNCHANGED and value is not fixed[key]:
            fixed = {**fixed, key: value}
    return fixed, repairs.repairs


def _repair_argument(inputs: Inputs, value: Any, key: str, repairs: ArgumentRepairer) -> Any:
    """Return what an argument clearly meant; ABSENT for a null that stands for "left out"."""
    root = inputs.schema
    schema = root["properties"][key]
    if value is None:
        return UNCHANGED if key in root.get("required", ()) or _admits_null(schema, root) else ABSENT
    if isinstance(value, (dict, list)):
        value = drop_nulls(value, schema, root)
    return value if inputs.strict_types else repairs.repair(value, schema, f"$.{key}")


def _keeps_unknown_key(inputs: Inputs, key: str, tool: str) -> bool:
    if key in inputs.injected:
        _log.warning("%s: ignored %r, which the application fills in and a model must not send", tool, key)
        return False
    if inputs.extra == "ignore":
        _log.debug("%s: ignored an argument that it does not take", tool)
    return inputs.extra != "ignore"


def _parse(raw: str, tool: str) -> dict[str, Any]:
    try:
        data = from_json(raw if raw.isascii() else raw.encode(), allow_inf_nan=False)
    except ValueError as error:
        reason = str(error)
        if reason.startswith("EOF while parsing"):
            message = f"the JSON text was cut off ({reason}); send the whole object again"
            problem = ArgumentProblem("$", message, CUT_OFF, f"…{clip(raw[-40:])}")
        else:
            hint = "; send bare JSON, without a code fence" if raw.lstrip().startswith("```") else ""
            problem = ArgumentProblem(
                "$", f"not valid JSON: {clip(reason, 160)}{hint}", "a JSON object", clip(raw[:200])
            )
        raise InvalidArguments([problem], tool=tool, raw=raw) from None
    if isinstance(data, dict):
        return data
    hint_text = ""
    if isinstance(data, str) and data.lstrip().startswith("{"):
        hint_text = "; this is a JSON text inside a JSON text: send the object itself"
    raise InvalidArguments(
        [ArgumentProblem("$", f"the arguments must be a JSON object{hint_text}", "object", describe_value(data))],
        tool=tool,
    )


def drop_nulls(data: Any, schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """Drop a null that stands for "left out": an optional key whose type does not admit null."""
    if not isinstance(data, (dict, list)) or not isinstance(schema, dict) or depth > 64:  # noqa: PLR2004 - deeper than any schema of use
        return data
    if "$ref" in schema:
        schema = root.get("$defs", {}).get(schema["$ref"].removeprefix("#/$defs/"), {})
    if isinstance(data, list):
        items = schema.get("items")
        return [drop_nulls(item, items, root, depth + 1) for item in data] if items else data
    properties, required = schema.get("properties", {}), schema.get("required", ())
    return {
        key: drop_nulls(value, properties.get(key), root, depth + 1)
        for key, value in data.items()
        if value is not None or key in required or key not in properties or _admits_null(properties[key], root)
    }


def _admits_null(schema: Any, root: Mapping[str, Any], depth: int = 0) -> bool:
    if not isinstance(schema, dict) or depth > 64:  # noqa: PLR2004 - as above
        return True
    if "$ref" in schema:
        return _admits_null(root.get("$defs", {}).get(schema["$ref"].removeprefix("#/$defs/"), {}), root, depth + 1)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return any(_admits_null(branch, root, depth + 1) for branch in branches)
    return matches_type(None, schema)
