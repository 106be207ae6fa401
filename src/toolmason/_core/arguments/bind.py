"""Bind a model's arguments to a tool's parameters, with every repair recorded or every problem reported.

Valid arguments go straight from JSON through the validator; most of this module handles the others.
"""

from __future__ import annotations

import logging
import marshal
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

from pydantic_core import PydanticSerializationError, ValidationError, from_json, to_json

from toolmason._core.arguments.bounds import (
    check_bounds,
    needs_bounds_check,
    reject_booleans,
    reject_depth,
    reject_non_finite,
    reject_numeric_strings,
)
from toolmason._core.arguments.key_counts import KeyCounts, make_key_counts
from toolmason._core.arguments.nulls import NullSearch
from toolmason._core.arguments.problems import (
    count_problems,
    describe_value,
    get_details,
    make_problems,
    parse_object,
    reject,
    suggest_names,
)
from toolmason._core.arguments.repair import UNCHANGED, ArgumentRepairer, may_be_repaired
from toolmason._core.define.inputs import Inputs
from toolmason._core.values.definition import SCALAR_TYPES
from toolmason._core.values.policy import EngineSettings
from toolmason._core.values.results import Arguments, Repair
from toolmason._wire import DuplicateKey, has_long_integer, load_json, pause_garbage_collection
from toolmason.errors import ArgumentProblem, InvalidArguments, clip

_log = logging.getLogger("toolmason")
_SPACE_BEFORE_COLON: Final = re.compile(r"[\n\t\r]:")
_SEARCHED_KEYS: Final = 64
"""Number of keys up to which a search is cheaper than parsing once more."""
_ABSENT: Final = object()
"""Marks an argument to drop."""
Bound: TypeAlias = tuple[dict[str, Any], tuple[Repair, ...]]
"""Values for a call, and the repairs that produced them."""


def make_binder(
    inputs: Inputs, tool: str, settings: EngineSettings, counts: KeyCounts | None
) -> Callable[[Arguments], Bound]:
    """Return a function that binds a tool's arguments and raises InvalidArguments with every problem.

    Everything that does not depend on the call is computed once here, because this is the hottest path.
    """
    bind_thoroughly = _make_thorough_binder(inputs, tool, settings)
    may_hold_nan = inputs.may_hold_nan
    counts = None if inputs.mistakable else counts
    validate, count_keys, max_bytes = _choose_validator(inputs, counts, settings)
    drops_inner_keys = counts is not None and counts.validate_lenient is not None

    def bind(raw: Arguments, parsed: dict[str, Any] | None = None) -> Bound:
        if type(raw) is not str:
            return _bind_non_text(inputs, raw, tool, bind, settings.json_depth)
        if len(raw) > max_bytes:
            return bind_thoroughly(raw, parsed)
        try:
            values = validate(raw)
        except ValueError as error:
            # Recover outside the handler and drop the traceback: chained exceptions create reference cycles.
            failure = error.with_traceback(None)
        else:
            # Every key has a colon, so as many colons as keys means no duplicate and no unknown key.
            if raw.count(":") == (count := count_keys(values)) or _has_colons_in_strings(raw, count):
                return values, ()
            return bind_thoroughly(raw, parsed)
        if drops_inner_keys:
            return bind_thoroughly(raw, parsed)
        if may_hold_nan:
            check_bounds(inputs, raw, tool, settings)
        return _recover(inputs, raw, tool, failure, settings, parsed)

    return bind


def _choose_validator(
    inputs: Inputs, counts: KeyCounts | None, settings: EngineSettings
) -> tuple[Callable[[str], Any], Callable[[Any], int], int]:
    """Return a validator, a counter of the keys of its values, and the size of the arguments that both are for."""
    max_search_bytes = settings.duplicate_key_bytes
    validate = inputs.validate_strict or partial(inputs.validate_json, strict=True)
    if counts is not None:
        # To search a long text for numbers that are not finite takes less time than to look at each number.
        max_bytes = max_search_bytes if counts.checks_floats else MAX_REPAIR_BYTES
        return counts.validate_lenient or validate, counts.count, min(settings.argument_bytes, max_bytes)
    if inputs.validate_strict is None or needs_bounds_check(inputs):
        return validate, len, -1
    return validate, len, min(settings.argument_bytes, max_search_bytes)


def _make_thorough_binder(
    inputs: Inputs, tool: str, settings: EngineSettings
) -> Callable[[str, dict[str, Any] | None], Bound]:
    """Return a function that binds any text."""
    validate, validate_strict = inputs.validate_json, inputs.validate_strict
    max_search_bytes = settings.duplicate_key_bytes

    def bind(raw: str, parsed: dict[str, Any] | None) -> Bound:
        size = len(raw)
        try:
            values = validate_bounded(raw, size)
        except ValueError as error:
            failure = error.with_traceback(None)  # as above
        else:
            if inputs.may_hold_nan and has_long_integer(raw.encode("utf-8", "surrogatepass")):
                reject_non_finite(values, tool)  # an integer in place of a float
            count = len(values) if inputs.shows_keys else -1
            if raw.count(":") != count and size <= max_search_bytes and not _has_each_key_once(raw, count, inputs):
                return values, _check_keys(inputs, raw, tool)
            return values, ()
        return _recover(inputs, raw, tool, failure, settings, parsed)

    def validate_bounded(raw: str, size: int) -> dict[str, Any]:
        if needs_bounds_check(inputs) or size > settings.argument_bytes:
            check_bounds(inputs, raw, tool, settings)
        if validate_strict is not None and size <= max_search_bytes:
            return validate_strict(raw)
        if inputs.has_decimals:
            reject_numeric_strings(inputs, raw, tool)
        values: dict[str, Any] = (validate if size <= MAX_REPAIR_BYTES else inputs.large.validate_json)(
            raw, strict=True
        )
        return values

    return bind


def bind_once(inputs: Inputs, raw: Arguments, tool: str, settings: EngineSettings) -> Bound:
    """Bind the arguments of one call."""
    return make_binder(inputs, tool, settings, make_key_counts(inputs))(raw)


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


def _bind_non_text(inputs: Inputs, raw: Arguments, tool: str, bind: Callable[..., Bound], max_depth: int) -> Bound:
    if (is_large := isinstance(raw, LargeArguments)) and (bound := raw.take()) is not None:
        return bound
    if isinstance(raw, str | bytes | bytearray | memoryview):
        return bind(_decode(raw, tool))
    mapping = dict(raw) if type(raw) is dict else _to_mapping(raw, tool)
    if is_large:
        mapping = _drop_unknown(inputs, mapping, tool)
    elif inputs.may_hold_nan:
        reject_non_finite(mapping, tool)
    if inputs.is_ambiguous and _is_json(mapping, max_depth):
        return bind(_dump_arguments(mapping, tool), mapping if is_large else None)
    try:
        if inputs.mistakable:
            reject_booleans(inputs, mapping, tool)
        # Untyped values pass through the validator uncopied; a tool must not mutate the caller's lists and dicts.
        if inputs.unbounded_depth:
            mapping = _copy_json(mapping) if is_large else _copy_bounded(mapping, tool, max_depth)
        values = (inputs.large if is_large else inputs).validate_python(mapping, strict=True)
        return values, () if len(values) >= len(mapping) else _note_dropped(inputs, mapping, tool)
    except ValueError:
        # Without unknown arguments it may be valid; writing large ones as JSON would take longer than the call.
        declared = _drop_unknown(inputs, mapping, tool)
        if declared is not mapping:
            return _bind_declared(inputs, declared, mapping, tool, bind, max_depth)
        return bind(_dump_arguments(mapping, tool), mapping if is_large else None)


def _to_mapping(raw: Any, tool: str) -> dict[str, Any]:
    if raw is not None and not isinstance(raw, Mapping):
        reject(tool, "$", "the arguments must be a JSON object", "object", describe_value(raw))
    return dict(raw or {})


def _bind_declared(
    inputs: Inputs, declared: dict[str, Any], given: dict[str, Any], tool: str, bind: Callable[..., Bound], depth: int
) -> Bound:
    """Bind the declared ones of the given arguments."""
    try:
        values, repairs = _bind_non_text(inputs, declared, tool, bind, depth)
    except InvalidArguments as error:
        problems = suggest_names(list(error.problems), given, inputs.schema.get("properties", {}))
        raise InvalidArguments(problems, tool=tool, raw=error.raw) from None
    return values, (*repairs, *_make_notes(given, declared))


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


class TooDeep(Exception):
    """Lists and dicts are nested deeper than a limit."""


def copy_values(value: Any, levels: int) -> Any:
    """Copy lists and dicts of at most so many levels, as `deepcopy` does in ten times the time."""
    kind = type(value)
    if kind in SCALAR_TYPES:
        return value
    if levels <= 0 and kind in (dict, list):
        raise TooDeep
    if kind is dict:
        return {key: copy_values(item, levels - 1) for key, item in value.items()}
    if kind is list:
        return [copy_values(item, levels - 1) for item in value]
    return deepcopy(value)


def _is_json(value: Any, levels: int) -> bool:
    """Return True if a value has only types that JSON is parsed to, and at most so many levels."""
    kind = type(value)
    if kind in SCALAR_TYPES:
        return True
    if kind is dict and all(type(key) is str for key in value):
        value = value.values()
    elif kind is not list:
        return False
    return levels > 0 and all(_is_json(item, levels - 1) for item in value)


def _copy_bounded(mapping: dict[str, Any], tool: str, max_depth: int) -> dict[str, Any]:
    try:
        copied: dict[str, Any] = copy_values(mapping, max_depth)
    except TooDeep:
        reject_depth(tool, max_depth)
    return copied


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


# --- duplicate and unknown keys ----------------------------------------------------------------


def _has_colons_in_strings(raw: str, count: int) -> bool:
    """Return True if the text surely has `count` keys, so that its other colons are in strings, such as URLs."""
    return raw.count('":') == count and not _has_space_before_colon(raw)


def _has_space_before_colon(raw: str) -> bool:
    if " :" in raw:
        return True
    return ("\n" in raw or "\t" in raw or "\r" in raw) and _SPACE_BEFORE_COLON.search(raw) is not None


def _has_each_key_once(raw: str, count: int, inputs: Inputs) -> bool:
    """Return True if no key appears twice, as far as a search in the text can tell; `count` is that of the values."""
    keys = raw.count('":')
    if keys > _SEARCHED_KEYS or "\\" in raw or _has_space_before_colon(raw):
        return False
    if keys == count:
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


def _note_dropped(inputs: Inputs, arguments: dict[str, Any], tool: str) -> tuple[Repair, ...]:
    """Return a note for each undeclared argument that the validator has dropped."""
    return _make_notes(arguments, _drop_unknown(inputs, arguments, tool))


def _make_notes(given: Mapping[str, Any], declared: Mapping[str, Any]) -> tuple[Repair, ...]:
    dropped = islice((name for name in given if name not in declared), _MAX_NOTES)
    return tuple(Repair(f"$.{clip(str(name))}", "undeclared", given[name], None) for name in dropped)


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
        data = {} if text.strip() in ("", "null") else parse_object(text, tool, inputs.secret_names)
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
    inputs: Inputs, raw: str, tool: str, error: ValueError, settings: EngineSettings, parsed: dict[str, Any] | None
) -> Bound:
    if raw.strip() in ("", "null"):
        raw = "{}"  # some models send an empty string or null for "no arguments"
        try:
            return inputs.validate_json(raw, strict=True), ()
        except ValueError as empty_error:
            error = empty_error
    data = parse_object(raw, tool, inputs.secret_names) if parsed is None else parsed
    if len(raw) <= settings.duplicate_key_bytes and raw.count(":") != len(data) and _may_repeat_key(raw, data):
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
            return _validate_repaired(inputs, fixed, tool, settings), tuple(repairs)
        except ValueError as second_error:
            error = second_error
            details = get_details(second_error)
    problems = make_problems(error, details, fixed, inputs.secret_names, inputs.schema)
    raise InvalidArguments(suggest_names(problems, data, properties) if has_unknown else problems, tool=tool)


def _validate_repaired(inputs: Inputs, fixed: dict[str, Any], tool: str, settings: EngineSettings) -> dict[str, Any]:
    text = to_json(fixed).decode()
    if inputs.unbounded_depth:
        check_bounds(inputs, text, tool, settings)  # JSON that was text may be deep
    values: dict[str, Any] = inputs.validate_json(text, strict=True)
    if inputs.may_hold_nan:
        reject_non_finite(values, tool)  # a long integer in place of a float
    return values


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
        problems = make_problems(error, get_details(error), data, inputs.secret_names)
    except ValueError as sample_error:
        problems = make_problems(sample_error, get_details(sample_error), sample, inputs.secret_names, inputs.schema)
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
            fixed = dict(data) if fixed is data else fixed
            del fixed[key]
        elif value is not UNCHANGED and value is not fixed[key]:
            fixed = dict(data) if fixed is data else fixed
            fixed[key] = value
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
