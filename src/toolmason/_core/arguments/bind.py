"""Bind a model's arguments to a tool's parameters, with every repair recorded or every problem reported.

Valid arguments go straight from JSON through the validator; most of this module handles the others.
"""

from __future__ import annotations

import logging
import marshal
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, Final, TypeAlias

from pydantic_core import PydanticSerializationError, ValidationError, from_json, to_json

from toolmason._core.arguments.nulls import NullSearch
from toolmason._core.arguments.problems import (
    count_problems,
    describe_value,
    explain_json_error,
    find_non_finite,
    get_details,
    make_problems,
    reject,
    suggest_names,
)
from toolmason._core.arguments.repair import UNCHANGED, ArgumentRepairer, may_be_repaired
from toolmason._core.define.inputs import Inputs
from toolmason._core.values.definition import SCALAR_TYPES
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import Arguments, Repair
from toolmason._wire import DuplicateKey, has_large_number, load_json, pause_garbage_collection
from toolmason.errors import CUT_OFF, ArgumentProblem, InvalidArguments, clip

_log = logging.getLogger("toolmason")
_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}:"'))
_SPACE_BEFORE_COLON: Final = re.compile(r"[\n\t\r]:")
_SEARCHED_KEYS: Final = 64
"""Number of keys up to which a search is cheaper than parsing once more."""
_ABSENT: Final = object()
"""Marks an argument to drop."""
Bound: TypeAlias = tuple[dict[str, Any], tuple[Repair, ...]]
"""Values for a call, and the repairs that produced them."""


def make_binder(inputs: Inputs, tool: str, settings: EngineSettings) -> Callable[[Arguments], Bound]:
    """Return a function that binds a tool's arguments and raises InvalidArguments with every problem.

    Everything that does not depend on the call is computed once here, because this is the hottest path.
    """
    validate, validate_strict = inputs.validate_json, inputs.validate_strict
    needs_bounds_check = inputs.unbounded_depth or inputs.may_hold_nan or inputs.has_fixed_numbers
    has_decimals = inputs.has_decimals
    max_bytes = settings.argument_bytes
    max_search_bytes = settings.duplicate_key_bytes
    validate_usual = validate_strict or validate
    is_usual = validate_strict is not None and not needs_bounds_check
    max_usual_bytes = min(max_bytes, max_search_bytes) if is_usual else -1

    def bind(raw: Arguments, parsed: dict[str, Any] | None = None) -> Bound:
        if type(raw) is not str:
            return _bind_non_text(inputs, raw, tool, bind)
        size = len(raw)
        try:
            values = validate_usual(raw) if size <= max_usual_bytes else validate_bounded(raw, size)
        except ValueError as error:
            # Recover outside the handler and drop the traceback: chained exceptions create reference cycles.
            failure = error.with_traceback(None)
        else:
            count = len(values)
            # Every key has a colon, so as many colons as keys means no duplicate and no unknown key.
            if raw.count(":") != count and size <= max_search_bytes and not _has_each_key_once(raw, count, inputs):
                return values, _check_keys(inputs, raw, tool)
            return values, ()
        return _recover(inputs, raw, tool, failure, max_search_bytes, parsed)

    def validate_bounded(raw: str, size: int) -> dict[str, Any]:
        if needs_bounds_check or size > max_bytes:
            _check_bounds(inputs, raw, tool, settings)
        if validate_strict is not None and size <= max_search_bytes:
            return validate_strict(raw)
        if has_decimals:
            _reject_numeric_strings(inputs, raw, tool)
        values: dict[str, Any] = (validate if size <= MAX_REPAIR_BYTES else inputs.large.validate_json)(
            raw, strict=True
        )
        return values

    return bind


def bind_once(inputs: Inputs, raw: Arguments, tool: str, settings: EngineSettings) -> Bound:
    """Bind the arguments of one call."""
    return make_binder(inputs, tool, settings)(raw)


class LargeArguments(dict[str, Any]):
    """Arguments that are bound before their call, off the event loop."""

    __slots__ = ("_outcome",)
    _outcome: Bound | InvalidArguments | None

    def bind(self, inputs: Inputs, tool: str, settings: EngineSettings) -> None:
        """Bind the arguments in a thread. The call takes the outcome."""
        self._outcome = None
        with pause_garbage_collection():
            try:
                self._outcome = bind_once(inputs, self, tool, settings)
            except InvalidArguments as error:
                self._outcome = error.with_traceback(None)

    def take(self) -> Bound | None:
        """Return the outcome once: a tool may change the values, and is retried with others."""
        outcome, self._outcome = getattr(self, "_outcome", None), None
        if isinstance(outcome, InvalidArguments):
            raise outcome
        return outcome


def _bind_non_text(inputs: Inputs, raw: Arguments, tool: str, bind: Callable[..., Bound]) -> Bound:
    if (is_large := isinstance(raw, LargeArguments)) and (bound := raw.take()) is not None:
        return bound
    if isinstance(raw, str | bytes | bytearray | memoryview):
        return bind(_decode(raw, tool))
    try:
        mapping: dict[str, Any] = dict(raw or {})
    except (TypeError, ValueError):
        reject(tool, "$", "the arguments must be a JSON object", "object", describe_value(raw))
    if is_large:
        mapping = _drop_unknown(inputs, mapping, tool)
    elif inputs.may_hold_nan:
        _reject_non_finite(mapping, tool)
    try:
        if inputs.has_fixed_numbers:
            _reject_booleans(inputs, mapping, tool)
        # Untyped values pass through the validator uncopied; a tool must not mutate the caller's lists and dicts.
        if inputs.unbounded_depth:
            mapping = _copy_json(mapping) if is_large else copy_values(mapping)
        values = (inputs.large if is_large else inputs).validate_python(mapping, strict=True)
        return values, () if len(values) >= len(mapping) else _note_dropped(inputs, mapping, tool)
    except ValueError:
        # Without unknown arguments it may be valid; writing large ones as JSON would take longer than the call.
        declared = _drop_unknown(inputs, mapping, tool)
        if declared is not mapping:
            return _bind_declared(inputs, declared, mapping, tool, bind)
        return bind(_dump_arguments(mapping, tool), mapping if is_large else None)


def _bind_declared(
    inputs: Inputs, declared: dict[str, Any], given: dict[str, Any], tool: str, bind: Callable[..., Bound]
) -> Bound:
    """Bind the declared ones of the given arguments."""
    try:
        values, repairs = _bind_non_text(inputs, declared, tool, bind)
    except InvalidArguments as error:
        problems = suggest_names(list(error.problems), given, inputs.schema.get("properties", {}))
        raise InvalidArguments(problems, tool=tool, raw=error.raw) from None
    return values, (*repairs, *_note_dropped(inputs, given, tool))


def _drop_unknown(inputs: Inputs, mapping: dict[str, Any], tool: str) -> dict[str, Any]:
    """Return the arguments without undeclared ones, or the same mapping if all are declared or passed on."""
    known = inputs.schema.get("properties", {})
    unknown = [name for name in mapping if name not in known]
    if inputs.extra == "forbid":
        unwanted = set(unknown[MAX_PROBLEMS:])  # each is a problem
    else:
        unwanted = {name for name in unknown if not _keeps_unknown_key(inputs, name, tool)}
    return {name: value for name, value in mapping.items() if name not in unwanted} if unwanted else mapping


def _decode(raw: str | bytes | bytearray | memoryview, tool: str) -> str:
    if isinstance(raw, str):
        return str(raw)
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        reject(tool, "$", f"the arguments are not UTF-8: byte {error.start} is {error.reason}", "UTF-8 text", "bytes")


def copy_values(value: Any) -> Any:
    """Copy lists and dicts, as `deepcopy` does in ten times the time."""
    kind = type(value)
    if kind is dict:
        return {key: copy_values(item) for key, item in value.items()}
    if kind is list:
        return [copy_values(item) for item in value]
    return value if kind in SCALAR_TYPES else deepcopy(value)


def _copy_json(values: dict[str, Any]) -> dict[str, Any]:
    """Copy parsed JSON, in a tenth of the time of `copy_values`: it has no other types."""
    copied: dict[str, Any] = marshal.loads(marshal.dumps(values))  # noqa: S302 - it was written a moment ago
    return copied


def _dump_arguments(arguments: dict[str, Any], tool: str) -> str:
    # Values such as dates may arrive in their JSON form, so a mapping that fails validation is retried as JSON.
    try:
        return to_json(arguments, inf_nan_mode="constants").decode()
    except Exception as error:  # noqa: BLE001 - a foreign object may raise anything while it is serialized
        reject(
            tool, "$", f"the arguments cannot be serialized to JSON: {clip(str(error), 200)}", "JSON values", "object"
        )


# --- bounds ------------------------------------------------------------------------------------


def _check_bounds(inputs: Inputs, raw: str, tool: str, settings: EngineSettings) -> None:
    if len(raw) > settings.argument_bytes:
        message = f"the arguments exceed the limit argument_bytes of {settings.argument_bytes}"
        reject(tool, "$", message, f"at most {settings.argument_bytes} bytes", f"{len(raw)} bytes")
    max_depth = settings.json_depth
    if (
        inputs.unbounded_depth
        and raw.count("[") + raw.count("{") > max_depth
        and measure_nesting(extract_structure(raw.encode("utf-8", "surrogatepass")), max_depth) > max_depth
    ):
        message = f"the arguments are nested deeper than the limit json_depth of {max_depth}"
        reject(tool, "$", message, f"at most {max_depth} levels", "more")
    if inputs.has_fixed_numbers and ("true" in raw or "false" in raw):
        _reject_booleans(inputs, _parse(raw, tool), tool)
    if inputs.may_hold_nan and _may_hold_non_finite(raw):
        _reject_non_finite(_parse(raw, tool), tool)


def _may_hold_non_finite(raw: str) -> bool:
    # Searching for one letter first is ten times as fast and usually decides.
    if ("N" in raw and "NaN" in raw) or ("I" in raw and "Infinity" in raw):
        return True
    return has_large_number(raw.encode("utf-8", "surrogatepass"))


def _reject_non_finite(data: Mapping[str, Any], tool: str) -> None:
    """Reject NaN and infinity, and numbers that a float cannot hold: JSON has none, so another process gets null."""
    if path := find_non_finite(data):
        reject(tool, path, "the number must be finite, and not too large for a float", "a finite number", "another")


def _reject_numeric_strings(inputs: Inputs, raw: str, tool: str) -> None:
    """Reject a string in place of a number, because pydantic silently accepts one for a decimal inside a model.

    Raises:
        InvalidArguments: one cannot be converted exactly.
        ValueError: all can be converted, which the repair step does.
    """
    repairer = _examine(inputs, _parse(raw, tool), tool)
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


def _reject_booleans(inputs: Inputs, data: dict[str, Any], tool: str) -> None:
    """Reject a bool in place of a fixed number: Python treats True as equal to 1, and a validator may too."""
    problems = [
        ArgumentProblem(path, "a boolean is not a number", "one of the values", "boolean")
        for path in _examine(inputs, data, tool).boolean_paths
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


def _has_each_key_once(raw: str, count: int, inputs: Inputs) -> bool:
    """Return True if no key appears twice, as far as a search in the text can tell; `count` is that of the values."""
    keys = raw.count('":')
    if keys > _SEARCHED_KEYS or "\\" in raw or " :" in raw:
        return False
    if ("\n" in raw or "\t" in raw or "\r" in raw) and _SPACE_BEFORE_COLON.search(raw):
        return False
    if keys == count:  # the other colons are in strings, such as URLs
        return True
    if inputs.validate_strict is not None:  # it drops unknown keys, which `_check_keys` logs
        return False
    return len({part.rpartition('"')[2] for part in raw.split('":')[:-1]}) == keys


def _check_keys(inputs: Inputs, raw: str, tool: str) -> tuple[Repair, ...]:
    """Reject duplicate keys, and return the keys that were dropped, which are logged."""
    arguments = from_json(raw)
    if _may_repeat_key(raw, arguments):
        arguments = _parse_without_duplicates(raw, tool)
    return _note_dropped(inputs, arguments, tool) if inputs.validate_strict is not None else ()


def _note_dropped(inputs: Inputs, arguments: Mapping[str, Any], tool: str) -> tuple[Repair, ...]:
    """Return a note for each undeclared argument that the validator has dropped."""
    properties = inputs.schema.get("properties", {})
    unknown = [name for name in arguments if name not in properties and not _keeps_unknown_key(inputs, name, tool)]
    return tuple(Repair(f"$.{clip(str(name))}", "undeclared", arguments[name], None) for name in unknown[:_MAX_NOTES])


def _may_repeat_key(raw: str, arguments: dict[str, Any]) -> bool:
    """Return True unless each object in the text surely has each key once; `arguments` are parsed from it."""
    # Written again, the arguments have a colon less for each key that was lost, and the same in strings.
    return "\\" in raw or to_json(arguments).count(b":") != raw.count(":")


def _parse_without_duplicates(raw: str, tool: str) -> dict[str, Any]:
    """Parse valid JSON. Reject an object with a duplicate key, because either value could be meant."""
    try:
        data: dict[str, Any] = load_json(raw)
    except DuplicateKey as duplicate:
        reject(tool, "$", f"the key {clip(duplicate.key)!r} appears twice in one object", "each key once", "twice")
    return data


# --- invalid arguments -------------------------------------------------------------------------


def normalize_arguments(inputs: Inputs, raw: Arguments, tool: str) -> dict[str, Any]:
    """Return valid arguments under the model's names, with repairs applied, to show what will run."""
    if isinstance(raw, str | bytes | bytearray | memoryview):
        text = _decode(raw, tool)
        data = {} if text.strip() in ("", "null") else _parse(text, tool)
    else:
        data = dict(raw or {})
    try:
        encoded = to_json(data)
    except (PydanticSerializationError, UnicodeError, TypeError, RecursionError):
        return data  # values without a JSON form were accepted unchanged
    try:
        inputs.validate_json(encoded, strict=True)
    except ValueError as error:
        return _repair_arguments(inputs, from_json(encoded), get_details(error), tool)[0]
    return data


def _recover(
    inputs: Inputs, raw: str, tool: str, error: ValueError, max_search_bytes: int, parsed: dict[str, Any] | None
) -> Bound:
    if raw.strip() in ("", "null"):
        raw = "{}"  # some models send an empty string or null for "no arguments"
        try:
            return inputs.validate_json(raw, strict=True), ()
        except ValueError as empty_error:
            error = empty_error
    data = _parse(raw, tool) if parsed is None else parsed
    if len(raw) <= max_search_bytes and raw.count(":") != len(data) and _may_repeat_key(raw, data):
        _parse_without_duplicates(raw, tool)
    if len(raw) > MAX_REPAIR_BYTES or (isinstance(error, ValidationError) and error.error_count() > MAX_PROBLEMS):
        raise InvalidArguments(_sample_problems(inputs, data, error), tool=tool)
    details = get_details(error)
    fixed = data
    repairs: list[Repair] = []
    properties = inputs.schema.get("properties", {})
    has_unknown = bool(data.keys() - properties)
    if details is None or has_unknown or may_be_repaired(details, inputs):
        fixed, repairs = _repair_arguments(inputs, data, details, tool)
    if fixed is not data:
        try:
            return inputs.validate_json(to_json(fixed), strict=True), tuple(repairs)
        except ValueError as second_error:
            error = second_error
            details = get_details(second_error)
    problems = make_problems(error, details, fixed)
    raise InvalidArguments(suggest_names(problems, data, properties) if has_unknown else problems, tool=tool)


_MAX_NOTES: Final = 20
"""Maximum number of notes about dropped arguments."""

MAX_PROBLEMS: Final = 1000
"""Beyond this number of problems nothing is repaired and only a sample is listed; listing a million takes too long."""

MAX_REPAIR_BYTES: Final = 256 * 1024
"""Beyond this size arguments are not repaired, because walking a huge text would block the event loop."""


def _sample_problems(inputs: Inputs, data: dict[str, Any], error: ValueError) -> list[ArgumentProblem]:
    """Return the problems of a sample of the arguments, or those in the error if the sample has none."""
    sample, count = _take_sample(data), count_problems(error)
    if count > MAX_PROBLEMS:
        message = f"{count} problems"
        error = ValueError(message)
    else:  # validation of large arguments stops early
        message = "the arguments are too large to list every problem"
    try:
        inputs.validate_json(to_json(sample), strict=True)
        problems = make_problems(error, get_details(error), data)
    except ValueError as sample_error:
        problems = make_problems(sample_error, get_details(sample_error), sample)
    return [ArgumentProblem("$", message, "arguments that match the schema", describe_value(data)), *problems]


def _take_sample(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _take_sample(value[key]) for key in list(value)[:20]}
    return [_take_sample(item) for item in value[:20]] if isinstance(value, list) else value


def _repair_arguments(
    inputs: Inputs, data: dict[str, Any], details: list[Mapping[str, Any]] | None, tool: str
) -> tuple[dict[str, Any], list[Repair]]:
    """Return the arguments without undeclared keys and with repairable values repaired.

    Only the arguments that validation complained about are examined.
    """
    properties = inputs.schema.get("properties", {})
    reported_keys = data if details is None else {item["loc"][0] for item in details if item["loc"]}
    suspects = [key for key in data if key in reported_keys or key not in properties]
    fixed = data
    repairer = ArgumentRepairer(inputs.schema, inputs.enum_names)
    for key in suspects:
        if key in properties:
            value = _repair_argument(inputs, fixed[key], key, repairer)
        else:
            value = UNCHANGED if _keeps_unknown_key(inputs, key, tool) else _ABSENT
        if value is _ABSENT:
            if key not in properties and len(repairer.repairs) < _MAX_NOTES:
                repairer.repairs.append(Repair(f"$.{clip(key)}", "undeclared", data[key], None))
            fixed = {name: item for name, item in fixed.items() if name != key}
        elif value is not UNCHANGED and value is not fixed[key]:
            fixed = {**fixed, key: value}
    return fixed, repairer.repairs


def _repair_argument(inputs: Inputs, value: Any, key: str, repairer: ArgumentRepairer) -> Any:
    """Return a repaired argument, or _ABSENT for a null that means "omitted"."""
    root = inputs.schema
    schema = root["properties"][key]
    if value is None:
        return UNCHANGED if key in root.get("required", ()) or NullSearch(root).admits_null(schema) else _ABSENT
    if isinstance(value, (dict, list)):
        value = NullSearch(root).drop(value, schema)
    return value if inputs.strict_types else repairer.repair(value, schema, f"$.{key}")


def _keeps_unknown_key(inputs: Inputs, key: str, tool: str) -> bool:
    """Return True if an undeclared argument is passed on to the validator. Log it if it is dropped."""
    if key in inputs.injected:
        _log.warning("%s: ignored %r: the application sets it, a model must not send it", tool, key)
        return False
    if inputs.extra == "ignore":
        _log.debug("%s: ignored an undeclared argument", tool)
    return inputs.extra != "ignore"


def _parse(raw: str, tool: str) -> dict[str, Any]:
    try:
        data = from_json(raw if raw.isascii() else raw.encode(), allow_inf_nan=False)
    except ValueError as error:
        reason = str(error)
        if reason.startswith("EOF while parsing"):
            message = f"the JSON was truncated at {reason.rpartition(' at ')[2]}; send the complete object again"
            problem = ArgumentProblem("$", message, CUT_OFF, f"…{clip(raw[-40:])}")
        else:
            hint = "; send bare JSON, without a code fence" if raw.lstrip().startswith("```") else ""
            problem = ArgumentProblem(
                "$", f"not valid JSON: {clip(explain_json_error(reason), 160)}{hint}", "a JSON object", clip(raw[:200])
            )
        raise InvalidArguments([problem], tool=tool, raw=raw) from None
    if not isinstance(data, dict):
        is_encoded = isinstance(data, str) and data.lstrip().startswith("{")
        hint = "; this is JSON encoded as a string: send the object itself" if is_encoded else ""
        reject(tool, "$", f"the arguments must be a JSON object{hint}", "object", describe_value(data))
    return data
