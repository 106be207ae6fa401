"""Convert tool definitions and options to JSON and back, for manifests and lock files; code is named, never stored."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import fields
from typing import Any, Final, TypeAlias, TypeVar

from pydantic_core import PydanticSerializationError, from_json, to_json

from toolmason._core.define.decorators import make_options
from toolmason._core.define.schema_nodes import find_malformed_keyword, resolve_root
from toolmason._core.define.tool import LazyTool, Tool, compile_tool
from toolmason._core.values.definition import ToolDefinition, ToolOptions, canonicalize
from toolmason._core.values.policy import INHERIT, Rate, Retry
from toolmason.errors import ConfigError, DefinitionError, clip

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object."""

CODE_KEY: Final = "code"
"""Key under which an option that is code stores its qualified name."""

EFFECTS: Final = ("read_only", "destructive", "idempotent", "open_world")
SAFETY_OPTIONS: Final = (*EFFECTS, "approval", "enabled", "scopes", "skip_permission", "external")
"""Options that decide whether a call may run; a manifest with wrong values for them is rejected."""

_MODEL_VISIBLE_KEYS: Final = frozenset({"name", "title", "description", "inputSchema", "outputSchema"})
"""Keys of a server's tool definition that `ToolDefinition` and its digest cover."""
_DEFAULT_OPTIONS: Final = ToolOptions()
_DEFAULTS: Final[dict[str, Any]] = {item.name: getattr(_DEFAULT_OPTIONS, item.name) for item in fields(ToolOptions)}


def dump_definition(definition: ToolDefinition) -> JsonObject:
    """Return a definition as JSON data, without unset fields."""
    data: JsonObject = {"name": definition.name}
    if definition.title is not None:
        data["title"] = definition.title
    data["description"] = definition.description
    data["input_schema"] = definition.input_schema
    if definition.output_schema is not None:
        data["output_schema"] = definition.output_schema
    return data


def load_definition(data: Mapping[str, Any], place: str) -> ToolDefinition:
    """Return the definition in a JSON object.

    Raises:
        ConfigError: a field is missing or has the wrong type; names the location and the field.
    """
    name = data.get("name")
    text = data.get("description")
    schema = data.get("input_schema")
    output = data.get("output_schema")
    title = data.get("title")
    # Check all fields at once, because a thousand are read at start-up; locate the problem only on failure.
    optional_fit = (output is None or isinstance(output, dict)) and (title is None or isinstance(title, str))
    if isinstance(name, str) and name.strip() and isinstance(text, str) and isinstance(schema, dict) and optional_fit:
        return ToolDefinition(name, text, schema, output, title)
    place = f"{place}: tool {clip(get_text(data, 'name', place))!r}"
    get_text(data, "description", place)
    if title is not None:
        get_text(data, "title", place)
    get_object(data, "input_schema", place)
    if output is not None:
        get_object(data, "output_schema", place)
    raise ConfigError(f"{place} needs a non-empty name. Rebuild the file.")


def check_schemas(definition: ToolDefinition, place: str) -> ToolDefinition:
    """Return a definition whose schemas can be read. Not a part of `load_definition`: 1,000 tools would take 4 ms.

    Raises:
        ConfigError: a keyword has a value of the wrong type; names the location and the keyword.
    """
    for key, schema in (("input_schema", definition.input_schema), ("output_schema", definition.output_schema or {})):
        if (keyword := find_malformed_keyword(schema)) is not None:
            place = f"{place}: tool {clip(definition.name)!r}"
            raise ConfigError(f"{place}: the value of {keyword!r} in {key!r} has the wrong type. Rebuild the file.")
    return definition


_T = TypeVar("_T")


def get_text(data: Mapping[str, Any], key: str, place: str) -> str:
    """Return a string field of a JSON object. Raise `ConfigError` if it is not a string."""
    return _get_field(data, key, place, str, "a string")


def get_object(data: Mapping[str, Any], key: str, place: str) -> JsonObject:
    """Return an object field of a JSON object. Raise `ConfigError` if it is not an object."""
    return _get_field(data, key, place, dict, "an object")


def _get_field(data: Mapping[str, Any], key: str, place: str, kind: type[_T], noun: str) -> _T:
    value = data.get(key)
    if not isinstance(value, kind):
        raise ConfigError(f"{place}: {key!r} must be {noun}, not {clip(repr(value))}. Rebuild the file.")
    return value


def wraps_result(tool: Tool) -> bool:
    """Return True if the values of a tool are sent to MCP clients as `{"result": value}`."""
    if isinstance(tool, LazyTool):
        return tool.wraps_result
    compiled = compile_tool(tool)
    output = compiled.output
    return compiled.returns is str or (output is not None and resolve_root(output.schema).get("type") != "object")


def get_effects(options: ToolOptions) -> dict[str, bool]:
    """Return the effects that a tool declares, without unset ones."""
    return {name: value for name in EFFECTS if (value := getattr(options, name)) is not None}


def get_extra_wire_fields(tool: Any) -> JsonObject | None:
    """Return the fields of a server's tool definition that the model does not see, or None for a local tool."""
    entry = getattr(getattr(tool, "root", tool), "entry", None)
    return None if entry is None else {key: entry[key] for key in sorted(entry) if key not in _MODEL_VISIBLE_KEYS}


def dump_options(options: ToolOptions) -> tuple[JsonObject, list[str]]:
    """Return the options that differ from the defaults as JSON data, and the `meta` keys without a JSON form."""
    data: JsonObject = {}
    unserializable_keys: list[str] = []
    for name in sorted(_DEFAULTS):
        value = getattr(options, name)
        if name == "meta":
            if value:
                data[name], unserializable_keys = _dump_meta(value)
        elif value != _DEFAULTS[name]:
            data[name] = _dump_option(value)
    return data, unserializable_keys


def _dump_meta(meta: Mapping[Any, Any]) -> tuple[JsonObject, list[str]]:
    data: JsonObject = {}
    unserializable_keys: list[str] = []
    for key in sorted(meta, key=str):
        try:
            data[str(key)] = to_plain_json(meta[key])
        except (PydanticSerializationError, ValueError):
            unserializable_keys.append(str(key))
    return data, unserializable_keys


def to_plain_json(value: Any) -> Any:
    """Return a value as JSON data that is stable across runs: keys and sets are sorted.

    Raises:
        ValueError: the value has no JSON form.
    """
    if isinstance(value, set | frozenset):
        return sorted((to_plain_json(item) for item in value), key=to_json)
    if isinstance(value, Mapping):
        return canonicalize({str(key): to_plain_json(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return [to_plain_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value!r} is not a valid JSON number")
    return from_json(to_json(value))


def _dump_option(value: Any) -> Any:
    if isinstance(value, Retry):
        parts = {name: getattr(value, name) for name in ("attempts", "delay", "factor", "jitter")}
        return {**parts, "on": [_get_qualified_name(kind) for kind in value.on]}
    if isinstance(value, Rate):
        keys = {"by": list(value.by)} if value.by else {}
        return {"calls": value.calls, "per": _dump_number(value.per), **keys}
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, Executor):
        return None  # the loaded tool has it
    if callable(value):
        return {CODE_KEY: _get_qualified_name(value)}
    return "inherit" if value is INHERIT else _dump_number(value)


def _dump_number(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _get_qualified_name(code: Any) -> str:
    kind = code if hasattr(code, "__qualname__") else type(code)
    return f"{kind.__module__}:{kind.__qualname__}"


PlaceholderMaker: TypeAlias = Callable[[str], Callable[..., Any]]
"""Function that takes an option's name and returns a function that calls the real one."""


def load_options(data: Mapping[str, Any], make_placeholder: PlaceholderMaker, place: str) -> ToolOptions:
    """Return the options in a JSON object. Placeholders stand in for code until the tool is loaded.

    Raises:
        ConfigError: an option is unknown, or its value is invalid.
    """
    keywords: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict) and set(value) == {CODE_KEY} and name != "meta":
            keywords[name] = make_placeholder(name)
        elif name in ("retry", "timeout", "on_error") and value == "inherit":
            keywords[name] = INHERIT
        elif name == "retry" and isinstance(value, dict):
            keywords[name] = _construct(lambda form=value: _load_retry(form), "retry", place)  # type: ignore[misc]
        elif name == "rate" and isinstance(value, dict):
            keywords[name] = _construct(lambda form=value: Rate(**_load_rate(form)), "rate", place)  # type: ignore[misc]
        else:
            keywords[name] = math.inf if name == "timeout" and value == "inf" else value
    return _construct(lambda: make_options(keywords), "options", place)  # type: ignore[no-any-return]


def _load_rate(data: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {name: float(value) if value == "inf" else value for name, value in data.items()}
    return {**numbers, "by": tuple(data["by"])} if isinstance(data.get("by"), list) else numbers


def _load_retry(data: Mapping[str, Any]) -> Retry:
    names = [str(name).removeprefix("builtins:") for name in data.get("on", ())]
    # Only builtin exceptions: others would need an import. The loaded tool has the real ones.
    candidates = [getattr(builtins, name, None) for name in names]
    on = tuple(kind for kind in candidates if isinstance(kind, type) and issubclass(kind, BaseException))
    parts: dict[str, Any] = {**data, "on": on}
    return Retry(**parts)


def _construct(make: Callable[[], Any], what: str, place: str) -> Any:
    try:
        return make()
    except (DefinitionError, ConfigError, TypeError, ValueError) as error:
        raise ConfigError(f"{place}: invalid {what}: {error}") from error
