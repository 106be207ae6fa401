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

from toolmason._core.arguments.problems import count_of, details_of, fail, got, problems_of
from toolmason._core.arguments.repair import UNCHANGED, Repairs, fits
from toolmason._core.define.inputs import Inputs
from toolmason._core.values.policy import Settings
from toolmason._core.values.results import Arguments, Repair
from toolmason.errors import CUT_OFF, ArgumentProblem, InvalidArguments, clip

_log = logging.getLogger("toolmason")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))
ABSENT: Final = object()


Bound: TypeAlias = tuple[dict[str, Any], tuple[Repair, ...]]
"""The values for a call, and what was repaired on the way."""


def binder_of(inputs: Inputs, tool: str, settings: Settings) -> Callable[[Arguments], Bound]:
    """Return the function that binds a tool's arguments; it raises InvalidArguments with every problem.

    What does not depend on the call is worked out here, once: this is the hottest path there is.
    """
    validate, skim = inputs.validate_json, inputs.skim
    careful, decimals = inputs.deep or inputs.floats or inputs.counts, inputs.decimals
    longest, searched = settings.argument_bytes, settings.duplicate_key_bytes

    def bind(raw: Arguments) -> Bound:
        if type(raw) is not str:
            return _bind_other(inputs, raw, tool, bind)
        size = len(raw)
        if careful or size > longest:
            _check_bounds(inputs, raw, tool, settings)
        try:
            if skim is not None and size <= searched:
                values = skim(raw)
            else:
                if decimals:
                    _refuse_texts(inputs, raw, tool)
                values = validate(raw, strict=True)
        except ValueError as error:
            # Outside of the handler, and without its frames: chained exceptions make rings for the garbage collector.
            failure = error.with_traceback(None)
        else:
            # Every key has a colon: as many colons as keys means that none is there twice, and none is strange.
            if raw.count(":") != len(values) and size <= searched:
                _look_at_keys(inputs, raw, tool)
            return values, ()
        return _recover(inputs, raw, tool, failure)

    return bind


def bind_once(inputs: Inputs, raw: Arguments, tool: str, settings: Settings) -> Bound:
    """Bind the arguments of one call."""
    return binder_of(inputs, tool, settings)(raw)


def _bind_other(inputs: Inputs, raw: Arguments, tool: str, bind: Callable[[str], Bound]) -> Bound:
    if isinstance(raw, str):
        return bind(str(raw))
    if isinstance(raw, bytes | bytearray | memoryview):
        try:
            return bind(str(raw, "utf-8"))
        except UnicodeDecodeError as error:
            fail(tool, "$", f"the arguments are not UTF-8: byte {error.start} is {error.reason}", "UTF-8 text", "bytes")
    try:
        given: dict[str, Any] = dict(raw or {})
    except (TypeError, ValueError):
        fail(tool, "$", "the arguments must be a JSON object", "object", got(raw))
    try:
        if inputs.counts:
            _refuse_bools(inputs, given, tool)
        # Where anything goes, the validator hands on the caller's own lists and dicts; a tool must not change those.
        return inputs.validate_python(deepcopy(given) if inputs.deep else given, strict=True), ()
    except ValueError:
        return bind(_as_text(given, tool))


def _as_text(given: dict[str, Any], tool: str) -> str:
    # Values such as dates may come as JSON writes them, so a mapping that is not right as it stands
    # takes the same way as a text does.
    try:
        return to_json(given, inf_nan_mode="constants").decode()
    except Exception as error:  # noqa: BLE001 - a foreign object may raise anything while it is written
        fail(tool, "$", f"the arguments cannot be written as JSON: {clip(str(error), 200)}", "JSON values", "object")


# --- bounds ------------------------------------------------------------------------------------


def _check_bounds(inputs: Inputs, raw: str, tool: str, settings: Settings) -> None:
    if len(raw) > settings.argument_bytes:
        message = f"the arguments are over the limit argument_bytes of {settings.argument_bytes}"
        fail(tool, "$", message, f"at most {settings.argument_bytes} bytes", f"{len(raw)} bytes")
    deepest = settings.json_depth
    if inputs.deep and raw.count("[") + raw.count("{") > deepest and nesting(raw, deepest) > deepest:
        message = f"the arguments are nested deeper than the limit json_depth of {deepest}"
        fail(tool, "$", message, f"at most {deepest} levels", "more")
    if inputs.counts and ("true" in raw or "false" in raw):
        _refuse_bools(inputs, _parsed(raw, tool), tool)
    # One letter first: that search is ten times as fast, and mostly the end of it.
    if inputs.floats and (("N" in raw and "NaN" in raw) or ("I" in raw and "Infinity" in raw)):
        _parsed(raw, tool)


def _refuse_texts(inputs: Inputs, raw: str, tool: str) -> None:
    """Refuse a text where a number is wanted: inside a model, pydantic takes one for a decimal, and tells nobody.

    Raises:
        ValueError: there is one; what it means is for the repairs to say.
    """
    walk = Repairs(inputs.schema, inputs.enum_names)
    walk.value(_parsed(raw, tool), inputs.schema)
    if walk.texts:
        raise ValueError(f"{walk.texts[0]}: a text is not a number")


def _refuse_bools(inputs: Inputs, data: dict[str, Any], tool: str) -> None:
    """Refuse a bool where a fixed number is wanted: Python holds True equal to 1, and a validator may too."""
    walk = Repairs(inputs.schema, inputs.enum_names)
    walk.value(data, inputs.schema)
    if walk.bools:
        problems = [
            ArgumentProblem(path, "a boolean is not a number", "one of the values", "boolean") for path in walk.bools
        ]
        raise InvalidArguments(problems, tool=tool)


def nesting(text: str, enough: int) -> int:
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
        if deepest > enough:
            break
    return deepest


def _look_at_keys(inputs: Inputs, raw: str, tool: str) -> None:
    """Refuse an object that says one key twice, and tell of those that were left out."""
    given = _refuse_duplicates(raw, tool)
    if inputs.skim is not None:
        for key in given.keys() - inputs.schema["properties"].keys():
            _keeps_stranger(inputs, key, tool)


def _refuse_duplicates(raw: str, tool: str) -> dict[str, Any]:
    """Refuse an object that says one key twice: which of the two was meant cannot be known."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(items)
        if len(found) != len(items):
            seen: set[str] = set()
            twice = next(key for key, _ in items if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            fail(tool, "$", f"the key {clip(twice)!r} is given twice in one object", "each key once", "twice")
        return found

    data: dict[str, Any] = json.loads(raw, object_pairs_hook=pairs)
    return data


# --- what is not clean -------------------------------------------------------------------------


def as_read(inputs: Inputs, raw: Arguments, tool: str) -> dict[str, Any]:
    """Return arguments that fit as the model's own names and values, repairs made: what will run, to look at."""
    if isinstance(raw, str | bytes | bytearray | memoryview):
        text = raw if isinstance(raw, str) else str(raw, "utf-8")
        data = _parsed(text, tool) if text.strip() else {}
    else:
        data = dict(raw or {})
    try:
        written = to_json(data)
    except (PydanticSerializationError, UnicodeError, TypeError, RecursionError):
        return data  # values that JSON cannot say were taken as they are
    try:
        inputs.validate_json(written, strict=True)
    except ValueError as error:
        return _fixed(inputs, from_json(written), details_of(error), tool)[0]
    return data


def _recover(inputs: Inputs, raw: str, tool: str, error: ValueError) -> Bound:
    if not raw.strip():
        raw = "{}"  # some models send nothing at all for "no arguments"
        try:
            return inputs.validate_json(raw, strict=True), ()
        except ValueError as empty:
            error = empty
    data = _parsed(raw, tool)
    if raw.count(":") != len(data):
        _refuse_duplicates(raw, tool)
    if len(raw) > REPAIRED_BYTES:
        raise InvalidArguments(_sampled(inputs, data, count_of(error)), tool=tool)
    if isinstance(error, ValidationError) and error.error_count() > MOST_PROBLEMS:
        raise InvalidArguments(_sampled(inputs, data, error.error_count()), tool=tool)
    details = details_of(error)
    fixed, repairs = _fixed(inputs, data, details, tool)
    if fixed is not data:
        try:
            return inputs.validate_json(to_json(fixed), strict=True), tuple(repairs)
        except ValueError as still:
            error, details = still, details_of(still)
    raise InvalidArguments(problems_of(error, details, fixed), tool=tool)


MOST_PROBLEMS: Final = 1000
"""With more problems than this nothing is repaired, and a few stand for all: listing a million takes too long."""


REPAIRED_BYTES: Final = 256 * 1024
"""Texts over this size are taken as they are or not at all: walking a huge one would hold up the loop."""


def _sampled(inputs: Inputs, data: dict[str, Any], count: int) -> list[ArgumentProblem]:
    few = _few(data)
    found: list[ArgumentProblem] = []
    try:
        inputs.validate_json(to_json(few), strict=True)
    except ValueError as error:
        found = problems_of(error, details_of(error), few)
    return [ArgumentProblem("$", f"{count} problems", "arguments that fit the schema", got(data)), *found]


def _few(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _few(value[key]) for key in list(value)[:20]}
    return [_few(item) for item in value[:20]] if isinstance(value, list) else value


def _fixed(
    inputs: Inputs, data: dict[str, Any], details: list[Mapping[str, Any]] | None, tool: str
) -> tuple[dict[str, Any], list[Repair]]:
    """Return the arguments without what does not belong, and with what is nearly right put right.

    Only the arguments that were complained about are looked at; what is right stays as it is.
    """
    known = inputs.schema.get("properties", {})
    blamed = data if details is None else {item["loc"][0] for item in details if item["loc"]}
    suspects = [key for key in data if key in blamed or key not in known]
    fixed, repairs = data, Repairs(inputs.schema, inputs.enum_names)
    for key in suspects:
        if key in known:
            value = _put_right(inputs, fixed[key], key, repairs)
        else:
            value = UNCHANGED if _keeps_stranger(inputs, key, tool) else ABSENT
        if value is ABSENT:
            fixed = {name: item for name, item in fixed.items() if name != key}
        elif value is not UNCHANGED and value is not fixed[key]:
            fixed = {**fixed, key: value}
    return fixed, repairs.made


def _put_right(inputs: Inputs, value: Any, key: str, repairs: Repairs) -> Any:
    """Return what an argument clearly meant; ABSENT for a null that stands for "left out"."""
    root = inputs.schema
    schema = root["properties"][key]
    if value is None:
        return UNCHANGED if key in root.get("required", ()) or _admits_null(schema, root) else ABSENT
    if isinstance(value, (dict, list)):
        value = without_nulls(value, schema, root)
    return value if inputs.strict_types else repairs.value(value, schema, f"$.{key}")


def _keeps_stranger(inputs: Inputs, key: str, tool: str) -> bool:
    if key in inputs.injected:
        _log.warning("%s: ignored %r, which the application fills in and a model must not send", tool, key)
        return False
    if inputs.extra == "ignore":
        _log.debug("%s: ignored an argument that it does not take", tool)
    return inputs.extra != "ignore"


def _parsed(raw: str, tool: str) -> dict[str, Any]:
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
    more = ""
    if isinstance(data, str) and data.lstrip().startswith("{"):
        more = "; this is a JSON text inside a JSON text: send the object itself"
    raise InvalidArguments(
        [ArgumentProblem("$", f"the arguments must be a JSON object{more}", "object", got(data))], tool=tool
    )


def without_nulls(data: Any, schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """Drop a null that stands for "left out": an optional key whose type does not admit null."""
    if not isinstance(data, (dict, list)) or not isinstance(schema, dict) or depth > 64:  # noqa: PLR2004 - deeper than any schema of use
        return data
    if "$ref" in schema:
        schema = root.get("$defs", {}).get(schema["$ref"].removeprefix("#/$defs/"), {})
    if isinstance(data, list):
        items = schema.get("items")
        return [without_nulls(item, items, root, depth + 1) for item in data] if items else data
    known, required = schema.get("properties", {}), schema.get("required", ())
    return {
        key: without_nulls(value, known.get(key), root, depth + 1)
        for key, value in data.items()
        if value is not None or key in required or key not in known or _admits_null(known[key], root)
    }


def _admits_null(schema: Any, root: Mapping[str, Any], depth: int = 0) -> bool:
    if not isinstance(schema, dict) or depth > 64:  # noqa: PLR2004 - as above
        return True
    if "$ref" in schema:
        return _admits_null(root.get("$defs", {}).get(schema["$ref"].removeprefix("#/$defs/"), {}), root, depth + 1)
    if branches := schema.get("anyOf") or schema.get("oneOf"):
        return any(_admits_null(branch, root, depth + 1) for branch in branches)
    return fits(None, schema)
