"""Convert a tool's return value to the text, content and structured data of a result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from math import isfinite
from typing import Any, Final, TypeAlias, cast, get_origin

from pydantic_core import ValidationError, from_json, to_json
from typing_extensions import is_typeddict

from toolmason._core.arguments.problems import find_non_finite
from toolmason._core.define.decorators import MISSING
from toolmason._core.define.invocation import expand, may_hold_content
from toolmason._core.define.schema_nodes import TypeSchema, admits_number, admits_unbounded_depth, resolve_root
from toolmason._core.define.tool import Tool, compile_tool
from toolmason._core.values.content import CONTENT_TYPES, Content, Text, describe_part, encode_base64
from toolmason._core.values.definition import SCALAR_TYPES
from toolmason._core.values.foreign_values import to_builtins
from toolmason._core.values.remote_executor import StoredValue
from toolmason._core.values.results import (
    ResultFields,
    StructuredFrom,
    ToolResult,
    ToolReturn,
    make_result,
    replace_result,
)
from toolmason.errors import ResultError, clip

VOID_TEXT: Final = "Success"
NO_OUTPUT: Final = "(no output)"
_MAX_DEPTH: Final = 200
_SMALL_SIZE: Final = 32
"""Maximum number of items for which validating first is cheaper than serializing with warnings as errors."""

_NUMBER_TYPES: Final = frozenset({int, float, bool})

Renderer: TypeAlias = Callable[[Any, Mapping[str, Any]], ToolResult]
"""Converts a return value, given the call's values, to a result without the fields of its call. Raises ResultError."""
Writer: TypeAlias = Callable[[Any], str | None]
"""Returns the text of a return value, or None if `convert` has to make the result."""

MAX_ITEMS: Final = 100_000
"""Maximum number of items of a returned iterator."""


class NeedsThread(Exception):
    """Converting the return value waits, or runs code of the tool: a future, an iterator or a converter.

    `convert` does it in a thread.
    """


def _read_items(tool: str, value: Iterator[Any]) -> list[Any]:
    items = list(islice(value, MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise ResultError(tool, f"it yields more than {MAX_ITEMS} items.")
    return items


def make_renderer(tool: Tool) -> Renderer:
    """Return a function that renders the other return values. It raises NeedsThread if it would run user code."""
    render_remote = compile_tool(tool).renderer
    if tool.options.converter is not None and render_remote is None:
        return refuse_to_render

    def render(value: Any, values: Mapping[str, Any]) -> ToolResult:
        if render_remote is not None:
            result = render_remote(value)
        elif isinstance(value, StoredValue):
            result = ToolResult("", tool.name, value=value, text=str(value))
        elif isinstance(value.value if type(value) is ToolReturn else value, Iterator | Future):
            raise NeedsThread
        else:
            result = convert(tool, value, values)
        if tool.options.return_direct:
            result.__dict__["return_direct"] = True
        return result

    return render


def make_writer(tool: Tool) -> Writer:
    """Return a function that writes the usual return values of a tool: one for each type, without its branches."""
    compiled, options = compile_tool(tool), tool.options
    output, returns = compiled.output, compiled.returns
    if compiled.renderer is not None or options.converter is not None:
        return _write_nothing
    if returns is str:
        return _write_nothing if options.substitute_result else _write_text
    if returns in (MISSING, Any):
        return _make_untyped_writer(writes_text=not options.substitute_result)
    if output is None or output.writes_nan:
        return _write_nothing
    if returns is int:
        return _write_integer
    serialize = _make_serializer(output)
    if returns is float:
        return lambda value: serialize(value).decode() if type(value) is float and isfinite(value) else None
    return _make_typed_writer(returns, output, serialize)


def _write_nothing(value: Any) -> None:
    """Leave every value to `convert`."""


def _write_text(value: Any) -> str | None:
    return value if type(value) is str and value and value.isascii() else None


def _write_integer(value: Any) -> str | None:
    try:
        return repr(value) if type(value) is int else None
    except ValueError:
        return None  # it has more than 4,300 digits


def _make_untyped_writer(*, writes_text: bool) -> Writer:
    def write(value: Any) -> str | None:
        actual = type(value)
        if actual is str:
            return value if writes_text and value and value.isascii() else None
        if not _is_flat(value, actual):
            return None
        try:
            text = to_json(value, inf_nan_mode="constants").decode()
        except Exception:  # noqa: BLE001 - the full path finds and reports the problem
            return None
        return None if "NaN" in text or "Infinity" in text else text

    return write


def _make_typed_writer(returns: Any, output: TypeSchema, serialize: Callable[..., bytes]) -> Writer:
    kind, may_hold_nan = _get_builtin_type(returns), admits_number(output.schema)
    check = output.validator.validate_python
    own_class = returns if kind is None and isinstance(returns, type) else None

    def write(value: Any) -> str | None:
        actual = type(value)
        try:
            if actual is kind and (kind is bool or len(value) <= _SMALL_SIZE):
                check(value, strict=True)
                text = serialize(value).decode()
            elif actual is own_class:
                text = serialize(value, warnings="error").decode()
            else:
                return None
        except Exception:  # noqa: BLE001 - the full path finds and reports the problem
            return None
        # Searching for one letter first takes a third of the time.
        has_nan = may_hold_nan and (
            "null" in text or ("N" in text and "NaN" in text) or ("I" in text and "Inf" in text)
        )
        return None if has_nan else text

    return write


def refuse_to_render(value: Any, values: Mapping[str, Any]) -> ToolResult:  # noqa: ARG001 - same signature for every renderer
    """Let `convert` render a value in a thread: it needs one, or may be as large as the arguments."""
    raise NeedsThread


def _get_builtin_type(hint: Any) -> type | None:
    """Return the builtin type of the values of a hint, if they can be validated as they are, or None."""
    kind: Any = get_origin(hint) or hint
    if is_typeddict(kind):
        return dict
    if kind in (bool, dict):
        return cast("type", kind)
    return list if kind is list and not may_hold_content(hint) else None


def _is_flat(value: Any, kind: type) -> bool:
    """Return True for a number, or a small dict of scalars, which hold neither bytes nor objects."""
    if kind is dict:
        return len(value) <= _SMALL_SIZE and SCALAR_TYPES.issuperset(map(type, value.values()))
    return kind in _NUMBER_TYPES


def _make_serializer(output: TypeSchema) -> Callable[..., bytes]:
    serialize = output.serializer.to_json
    # An object in an untyped part may have aliases that the schema does not show.
    has_aliases = output.has_aliases or admits_unbounded_depth(output.schema)
    return partial(serialize, by_alias=True) if has_aliases else serialize


def get_structured_shape(tool: Tool) -> StructuredFrom:
    """Return how the structured data of a tool's results derives from their text."""
    compiled = compile_tool(tool)
    if tool.definition.output_schema is None:
        return None
    if compiled.returns is str:
        return "wrapped text"
    output = compiled.output
    return "json" if output is None or resolve_root(output.schema).get("type") == "object" else "wrapped json"


def convert(tool: Tool, value: Any, values: Mapping[str, Any]) -> ToolResult:
    """Return the result for a return value, without the fields of its call.

    Raises:
        ResultError: the value cannot be sent; the message says where and why.
    """
    if isinstance(value, Iterator):
        value = _read_items(tool.name, value)
    if type(value) is ToolReturn:
        return _render_tool_return(tool, value, values)
    if tool.options.converter is not None:
        return _render_parts(tool, value, _apply_converter(tool, value))
    if type(value) is str and (result := _render_text(tool, value, values)) is not None:
        return result
    returns = compile_tool(tool).returns
    if value is None and returns in (MISSING, None, type(None)):
        return make_result({"value": None, "text": VOID_TEXT})
    if _is_content(value):
        return _render_parts(tool, value, value)
    serialized = to_text(tool, value)
    return make_result({"value": value, "text": serialized, "structured_from": get_structured_shape(tool)})


def _apply_converter(tool: Tool, value: Any) -> Any:
    converter, returns = tool.options.converter, compile_tool(tool).returns
    assert converter is not None  # noqa: S101 - checked by the caller
    try:
        return converter(value, None if returns is MISSING else returns)
    except Exception as error:
        raise ResultError(tool.name, f"its converter failed: {clip(_describe_error(error), 200)}.") from error


def _render_text(tool: Tool, value: str, values: Mapping[str, Any]) -> ToolResult | None:
    """Return the result for a string, or None if the declared type does not accept one."""
    compiled = compile_tool(tool)
    if compiled.output is not None:
        try:
            compiled.output.validator.validate_python(value, strict=True)
        except ValidationError:
            return None
    text = value
    if compiled.substitutable:
        names = compiled.substitutable
        text = expand(value, {shown: values[name] for shown, name in names.items() if name in values})
    check_text(tool, text)
    shape: StructuredFrom = "wrapped text" if tool.definition.output_schema is not None else None
    fields: ResultFields = {"value": value, "text": text or NO_OUTPUT, "structured_from": shape}
    if not text and shape is not None:
        fields["structured"] = {"result": ""}
    return make_result(fields)


def _render_tool_return(tool: Tool, returned: ToolReturn, values: Mapping[str, Any]) -> ToolResult:
    rendered = convert(tool, returned.value, values)
    if returned.content is not None:
        shown = _render_parts(tool, returned.value, returned.content)
        return replace_result(shown, structured=rendered.structured, meta=dict(returned.meta))
    return replace_result(rendered, meta=dict(returned.meta))


def _is_content(value: Any) -> bool:
    if type(value) in CONTENT_TYPES:
        return True
    return isinstance(value, list | tuple) and not CONTENT_TYPES.isdisjoint(map(type, value))


def _render_parts(tool: Tool, value: Any, given: Any) -> ToolResult:
    is_sequence = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    items: Sequence[Any] = given if is_sequence else [given]
    parts: list[Content] = []
    for item in items:
        if isinstance(item, Content):
            parts.append(item)
        else:
            parts.append(Text(item if isinstance(item, str) else to_text(tool, item, typed=False)))
    content = tuple(parts) or (Text(NO_OUTPUT),)
    for part in content:
        for name in part.__slots__:
            if isinstance(field := getattr(part, name), str):
                check_text(tool, field)
    text = "\n".join(map(describe_part, content)) or NO_OUTPUT
    return make_result({"value": value, "content": content, "text": text})


# --- JSON --------------------------------------------------------------------------------------


def to_text(tool: Tool, value: Any, *, typed: bool = True) -> str:
    """Return a value as compact JSON, using the tool's return type if it has one.

    Raises:
        ResultError: the value has no JSON form.
    """
    try:
        value = list(value) if inspect.isgenerator(value) else value
        output = compile_tool(tool).output if typed else None
        data = to_json_bytes(value) if output is None else _serialize_typed(tool, output, value)
        if output is None or output.writes_nan or (b"null" in data and admits_number(output.schema)):
            check_finite(value, data)
        return data.decode()
    except ResultError:
        raise
    except RecursionError:
        raise ResultError(tool.name, "it is nested too deeply.") from None
    except Exception as error:
        reason = clip(_describe_error(error), 200)
        raise ResultError(tool.name, f"{reason}. Return JSON-like data, a model or a string.") from error


def _serialize_typed(tool: Tool, output: TypeSchema, value: Any) -> bytes:
    if value is not None:  # the serializer accepts None for any type without an error
        try:
            return output.serializer.to_json(value, warnings="error", by_alias=True)
        except (ValueError, TypeError):
            pass
    # A near match, such as a tuple for a list or a dict for a model: validate it as the declared type.
    try:
        validated = output.validator.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the value"
        reason = f"it does not match the declared return type at {where}: {clip(first['msg'], 160)}."
        raise ResultError(tool.name, reason) from error
    return output.serializer.to_json(validated, by_alias=True)


def to_json_bytes(value: Any, indent: int | None = None) -> bytes:
    """Return any value as JSON. Raise if it has no JSON form."""
    if isinstance(value, bytes | dict | list | tuple | set | frozenset):
        value = _encode_bytes(value)
    return to_json(value, indent=indent, by_alias=True, inf_nan_mode="constants", fallback=to_builtins)


def _encode_bytes(value: Any, depth: int = 0) -> Any:
    """Encode bytes as standard base64. Pydantic uses the URL-safe alphabet."""
    if isinstance(value, bytes):
        return encode_base64(value)
    if depth > _MAX_DEPTH:
        return value
    if type(value) is dict:
        encoded = {key: _encode_bytes(item, depth + 1) for key, item in value.items()}
        return encoded if any(encoded[key] is not value[key] for key in encoded) else value
    if type(value) in (list, tuple):
        items = [_encode_bytes(item, depth + 1) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    return value


def check_finite(value: Any, data: bytes) -> None:
    """Reject NaN and infinity, which some serializers silently write as null.

    Raises:
        ValueError: a number is not finite; the message says where.
    """
    path = find_non_finite(value) if b"null" in data or b"NaN" in data or b"Infinity" in data else None
    if path is None and (b"NaN" in data or b"Infinity" in data):
        try:
            from_json(data, allow_inf_nan=False)
        except ValueError as error:
            path = "$" if "number out of range" not in str(error) else None
    if path is not None:
        raise ValueError(f"the number at {path} is not finite, and JSON cannot represent it")


def _describe_error(error: Exception) -> str:
    text = str(error)
    if "Circular reference" in text:
        return "it contains itself"
    if "surrogates not allowed" in text:
        return "it contains a lone surrogate, which cannot be encoded"
    return text.removeprefix("Error calling function `to_builtins`: ") or type(error).__name__


def check_text(tool: Tool, text: str) -> None:
    """Reject a string that cannot be encoded: it would make the whole conversation unsendable.

    Raises:
        ResultError: the string contains a lone surrogate; the message says where.
    """
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        reason = f"character {error.start} is a lone surrogate, which cannot be encoded."
        raise ResultError(tool.name, reason) from None
