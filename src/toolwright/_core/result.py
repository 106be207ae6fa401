"""What a tool returned or raised → the result that the model and the application read.

Lives here: conversion, what a failure is called, what is shown of it. Not here: running anything.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, get_origin

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json
from typing_extensions import is_typeddict

from toolwright._core.declare import MISSING
from toolwright._core.foreign import plain
from toolwright._core.policy import OnError
from toolwright._core.schema import admits_number, resolved_root
from toolwright._core.template import expand
from toolwright._core.tool import Tool, may_hold_content
from toolwright._core.values import CONTENT_TYPES, Content, Text, ToolResult, ToolReturn, note_of
from toolwright.errors import ExecutionError, ResultError, ToolCallError, ToolError, clip

_log = logging.getLogger("toolwright")
VOID: Final = "Success"
NO_OUTPUT: Final = "(no output)"
_SCALARS: Final = frozenset({int, float, bool, dict})
_DEEPEST: Final = 200


Render: TypeAlias = Callable[[Any, Mapping[str, Any]], dict[str, Any]]
"""What a tool returned and what it was called with → the fields of its result; raises ResultError."""


def renderer_of(tool: Tool) -> Render:
    """Return the function that renders what a tool returns; the usual cases take the shortest way."""
    options, output = tool.options, tool.output
    if options.converter is not None or options.substitute_result:
        return lambda value, values: convert(tool, value, values)
    text_shape = "wrapped text" if tool.definition.output_schema is not None else None
    usual = _class_of(tool.returns) if output is not None else None
    finite = output is None or not admits_number(output.schema)
    to_bytes = None if output is None else output.serializer.to_json
    shape = _shape_of(tool)

    def render(value: Any, values: Mapping[str, Any]) -> dict[str, Any]:
        if type(value) is str and value and value.isascii():
            return {"value": value, "text": value, "structured_from": text_shape if output is None else None}
        if finite and usual is not None and type(value) is usual:
            try:
                data = to_bytes(value, warnings=False, by_alias=True)  # type: ignore[misc]
            except Exception:  # noqa: BLE001 - the long way round finds out what is wrong, and says it
                return convert(tool, value, values)
            return {"value": value, "text": data.decode(), "structured_from": shape}
        return convert(tool, value, values)

    return render


def _class_of(hint: Any) -> type | None:
    """Return the class that values of a type are usually of, where there is one."""
    kind = get_origin(hint) or hint
    if not isinstance(kind, type):
        return None
    if is_typeddict(kind):
        return dict
    return kind if not issubclass(kind, list | tuple) or not may_hold_content(hint) else None


def _shape_of(tool: Tool) -> str | None:
    if tool.definition.output_schema is None or tool.output is None:
        return None
    return "json" if resolved_root(tool.output.schema).get("type") == "object" else "wrapped json"


def convert(tool: Tool, value: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a result for what a tool returned.

    Raises:
        ResultError: it cannot be sent; says where and why.
    """
    if tool.options.converter is not None and type(value) is not ToolReturn:
        return {"value": value, **_parts(tool, tool.options.converter(value, _type_of(tool)))}
    if type(value) is str and (tool.output is None or tool.returns is str):
        text = expand(value, values) if tool.options.substitute_result else value
        _check_text(tool, text)
        wrapped = text and tool.definition.output_schema is not None
        return {"value": value, "text": text or NO_OUTPUT, "structured_from": "wrapped text" if wrapped else None}
    if type(value) is ToolReturn:
        return _from_return(tool, value, values)
    if value is None and (tool.returns in (MISSING, None, type(None))):
        return {"value": None, "text": VOID}
    if type(value) not in _SCALARS and _is_content(value):
        return {"value": value, **_parts(tool, value)}
    text = to_text(tool, value)
    return {"value": value, "text": text, "structured_from": _shape_of(tool)}


def _type_of(tool: Tool) -> Any:
    return None if tool.returns is MISSING else tool.returns


def _from_return(tool: Tool, returned: ToolReturn, values: Mapping[str, Any]) -> dict[str, Any]:
    fields = convert(tool, returned.value, values) if returned.content is None else _parts(tool, returned.content)
    return {**fields, "value": returned.value, "meta": dict(returned.meta)}


def _is_content(value: Any) -> bool:
    if type(value) in CONTENT_TYPES:
        return True
    return isinstance(value, list | tuple) and not CONTENT_TYPES.isdisjoint(map(type, value))


def _parts(tool: Tool, given: Any) -> dict[str, Any]:
    several = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    items: Sequence[Any] = given if several else [given]
    parts: list[Content] = []
    for item in items:
        if isinstance(item, str):
            _check_text(tool, item)
            parts.append(Text(item))
        elif isinstance(item, Content):
            parts.append(item)
        else:
            parts.append(Text(to_text(tool, item, typed=False)))
    content = tuple(parts) or (Text(NO_OUTPUT),)
    return {"content": content, "text": "\n".join(map(note_of, content)) or NO_OUTPUT}


# --- JSON --------------------------------------------------------------------------------------


def to_text(tool: Tool, value: Any, *, typed: bool = True) -> str:
    """Return a value as compact JSON, by the tool's return type where it has one.

    Raises:
        ResultError: it has no JSON form.
    """
    try:
        data = _serialized(tool, value, typed=typed)
        if b"NaN" in data or b"Infinity" in data or b"null" in data:
            _check_finite(tool, value)
        return data.decode()
    except ResultError:
        raise
    except RecursionError:
        raise ResultError(tool.name, "it is nested too deep.") from None
    except Exception as error:
        raise ResultError(
            tool.name, f"{clip(_reason(error), 200)}. Return JSON-like data, a model or a text."
        ) from error


def _serialized(tool: Tool, value: Any, *, typed: bool) -> bytes:
    if inspect.isgenerator(value):
        value = list(value)
    output = tool.output if typed else None
    if output is not None:
        try:
            return output.serializer.to_json(value, warnings="error", by_alias=True)
        except (PydanticSerializationError, TypeError, ValueError):
            return _as_declared(tool, value)
    return to_json(value, by_alias=True, bytes_mode="base64", inf_nan_mode="constants", fallback=plain)


def _as_declared(tool: Tool, value: Any) -> bytes:
    """Read a value that is not quite of the declared type as that type; a tuple for a list, a dict for a model."""
    output = tool.output
    assert output is not None  # noqa: S101 - the caller has looked
    try:
        read = output.validator.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the value"
        raise ResultError(
            tool.name, f"it does not fit the declared return type at {where}: {clip(first['msg'], 160)}."
        ) from error
    return output.serializer.to_json(read, by_alias=True)


def _reason(error: Exception) -> str:
    text = str(error)
    if "Circular reference" in text:
        return "it contains itself"
    return text.removeprefix("Error calling function `plain`: ") or type(error).__name__


def _check_finite(tool: Tool, value: Any) -> None:
    if where := _not_finite(value):
        raise ResultError(tool.name, f"the number at {where} is not finite, and JSON has no word for it.")


def _not_finite(value: Any, path: str = "$", depth: int = 0) -> str | None:
    """Return where a NaN or infinity is, if there is one."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if depth > _DEEPEST:
        return None
    items: Any = ()
    if isinstance(value, Mapping):
        items = ((f"{path}.{key}", item) for key, item in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        items = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        items = ((f"{path}.{key}", item) for key, item in vars(value).items())
    return next((found for where, item in items if (found := _not_finite(item, where, depth + 1))), None)


def _check_text(tool: Tool, text: str) -> None:
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError as error:
        raise ResultError(
            tool.name, f"character {error.start} is half a surrogate pair, which no encoding takes."
        ) from None


# --- failures ----------------------------------------------------------------------------------


def named(tool: str, error: BaseException) -> ToolCallError:
    """Return what a tool raised as the error that its result carries."""
    if isinstance(error, ToolError | ResultError):
        error.tool = error.tool or tool
        return error
    if isinstance(error, ExecutionError) and error.tool == tool:
        return error
    if isinstance(error, asyncio.CancelledError):
        return ExecutionError(tool, RuntimeError("the tool cancelled itself"))
    return ExecutionError(tool, error, retryable=isinstance(error, TimeoutError | ConnectionError))


def shown(error: ToolCallError, policy: OnError) -> dict[str, Any]:
    """Return the fields of a failed result: what the model is shown, by policy.

    Raises:
        ToolCallError: the policy is to raise.
    """
    if policy == "message":
        return {"error": error}
    if policy == "raise":
        raise error
    if policy == "redact":
        return {"error": error, "text": to_json(_redacted(error)).decode()}
    told = policy(error)
    if isinstance(told, ToolResult):
        return {"error": told.error, "text": told.text, "content": told.content, "value": told.value}
    return {"error": error, "text": str(told) or NO_OUTPUT}


def _redacted(error: ToolCallError) -> dict[str, Any]:
    """Return the model's form without the words of a failure; the log has them, under the same id."""
    form = error.to_model()
    if isinstance(error, ExecutionError | ResultError):
        error_id = secrets.token_hex(6)
        _log.error("%s failed [%s]", error.tool, error_id, exc_info=error)
        again = "Trying again may help." if error.retryable else "Trying again will not help."
        form["error"]["message"] = f"{error.tool} failed because of an internal error. {again} Error id: {error_id}."
        form["error"]["id"] = error_id
    return form
