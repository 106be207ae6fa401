"""What a server sends, looked over before anything trusts it: results that are no results, definitions that do harm.

Lives here: which answer belongs to which question, strict result types, quarantine of single definitions.
The SDK refuses a whole list for one bad entry, and checks results against schemas that a server wrote, on the loop;
both are settled here, before it sees them. Not here: transports.
"""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from mcp_types import (
    INTERNAL_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    Prompt,
    Resource,
    ResourceTemplate,
    Tool,
)
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from toolmason._core.define.schema_nodes import iter_subschemas
from toolmason.errors import clip

_log = logging.getLogger("toolmason.mcp")

MAX_NAME_BYTES: Final = 128
MAX_RESOURCE_NAME_BYTES: Final = 1024
"""The longest name of a resource: it may be that of a file, with its folders."""
MAX_DESCRIPTION_BYTES: Final = 4 * 1024
MAX_META_BYTES: Final = 16 * 1024
MAX_EXTRA_BYTES: Final = 64 * 1024
"""All that is beside the words and the schemas: hints, icons, `_meta`, what we do not know."""
MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_SCHEMA_DEPTH: Final = 32
MAX_SUBSCHEMAS: Final = 2000
_OTHER_LISTS: Final[Mapping[str, tuple[str, str, type[BaseModel]]]] = {
    "prompts/list": ("prompts", "prompt", Prompt),
    "resources/list": ("resources", "resource", Resource),
    "resources/templates/list": ("resourceTemplates", "resource template", ResourceTemplate),
}
"""The lists beside that of the tools: their field, what an entry is called, and its form."""
_RESULT_TYPES: Final = frozenset({"complete", "input_required", "task"})
_CONTENT_TYPES: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_CHECKED_FIELDS: Final = frozenset({"name", "title", "description", "inputSchema", "outputSchema"})
_VERSION_META_KEY: Final = "io.modelcontextprotocol/protocolVersion"
_HIDDEN_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co"})
_INVISIBLE_CHARACTERS: Final = frozenset(
    {
        *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0",
        *"\u2028\u2029",
        *map(chr, range(0xFE00, 0xFE0F)),
        *map(chr, range(0xE0100, 0xE01F0)),
    }
)
"""Marks and letters that show nothing, and the ends of lines that few programs show as such."""
_ZERO_WIDTH_JOINER: Final = "\u200d"
_EMOJI_SELECTOR: Final = "\ufe0f"
_INFORMATION_SIGN: Final = "\u2139"
"""The one emoji that counts as a letter."""
_VIRAMA_CLASS: Final = 9


@dataclass(slots=True, eq=False, repr=False)
class Sanitizer:
    """What one connection has asked, and what came of it."""

    server: str
    pending: dict[Any, tuple[str, bool]] = field(default_factory=dict)
    """By id: the method, and whether the question was of the stateless era."""
    definitions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Definitions by tool, as they came; the SDK does not get to see their output schemas."""
    rejected: dict[str, str] = field(default_factory=dict)
    """Tools that are not taken, and why."""

    def track(self, message: JSONRPCMessage) -> None:
        """Take note of a question."""
        if isinstance(message, JSONRPCRequest):
            meta = (message.params or {}).get("_meta")
            self.pending[message.id] = (message.method, isinstance(meta, Mapping) and _VERSION_META_KEY in meta)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self.pending.pop((message.params or {}).get("requestId"), None)

    @property
    def tool_list_ids(self) -> set[Any]:
        """The ids of questions for a list of tools."""
        return {request_id for request_id, (method, _) in self.pending.items() if method == "tools/list"}

    def sanitize(self, message: JSONRPCMessage) -> JSONRPCMessage:
        """Return an answer as the SDK may see it."""
        if isinstance(message, JSONRPCError):
            self.pending.pop(message.id, None)
            return message
        if not isinstance(message, JSONRPCResponse):
            return message
        method, modern = self.pending.pop(message.id, ("", False))
        result = message.result
        if modern and method != "server/discover":
            result_type = result.get("resultType")
            if result_type is None:
                # Absent means complete; so says the specification, and the SDK does not.
                result = {**result, "resultType": "complete"}
            elif result_type not in _RESULT_TYPES:
                reason = f"the result is of the unknown type {clip(str(result_type))!r}"
                return make_error_response(message.id, reason)
        if method == "tools/list":
            result = self._filter_tools(result)
        elif method in _OTHER_LISTS:
            result = self._filter_entries(result, *_OTHER_LISTS[method])
        elif method == "tools/call":
            result = _replace_unknown_parts(result)
        return message if result is message.result else message.model_copy(update={"result": result})

    def _filter_tools(self, result: Mapping[str, Any]) -> dict[str, Any]:
        tools = result.get("tools")
        if not isinstance(tools, list):
            return dict(result)
        kept: list[dict[str, Any]] = []
        for entry in tools:
            name = entry.get("name") if isinstance(entry, dict) else None
            reason = find_tool_problem(entry)
            if reason is not None:
                label = clip(str(name)) if isinstance(name, str) else "(no name)"
                self.rejected[label] = reason
                _log.warning("server %r: its tool %r is not used: %s", self.server, label, reason)
                continue
            tool = dict(entry)
            tool.pop("outputSchema", None)
            self.definitions[tool["name"]] = entry
            kept.append(tool)
        return {**result, "tools": kept}

    def _filter_entries(self, result: dict[str, Any], key: str, kind: str, model: type[BaseModel]) -> dict[str, Any]:
        entries = result.get(key)
        if not isinstance(entries, list):
            return result
        kept: list[Any] = []
        for entry in entries:
            reason = find_entry_problem(entry, model)
            if reason is None:
                kept.append(entry)
                continue
            name = entry.get("name") if isinstance(entry, dict) else None
            label = clip(name) if isinstance(name, str) else "(no name)"
            _log.warning("server %r: its %s %r is not used: %s", self.server, kind, label, reason)
        return {**result, key: kept}


def _replace_unknown_parts(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result whose content is of kinds that we know; any other is kept as its JSON, and costs no more."""
    content = result.get("content")
    if not isinstance(content, list) or not any(map(_is_unknown_part, content)):
        return result
    known_parts = [
        {"type": "text", "text": to_json(part).decode()} if _is_unknown_part(part) else part for part in content
    ]
    return {**result, "content": known_parts}


def _is_unknown_part(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(kind := part.get("type"), str) and kind not in _CONTENT_TYPES


def make_error_response(request_id: Any, reason: str) -> JSONRPCError:
    """Return an answer that says why there is none."""
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=INTERNAL_ERROR, message=reason))


def find_tool_problem(entry: Any) -> str | None:
    """Return why a tool definition cannot be taken; `None` where it can."""
    if not isinstance(entry, dict):
        return "it is not an object"
    if (reason := _find_text_problem(entry)) is not None:
        return reason
    schema, output = entry.get("inputSchema"), entry.get("outputSchema")
    if not isinstance(schema, dict):
        return "it has no input schema"
    if schema.get("type", "object") != "object":
        return f"its input schema is of type {clip(str(schema.get('type')))!r}, not an object"
    if (reason := _find_schema_problem(schema, "input")) is not None:
        return reason
    if output is not None and not isinstance(output, dict):
        return "its output schema is not an object"
    if output is not None and (reason := _find_schema_problem(output, "output")) is not None:
        return reason
    if (reason := _find_extra_problem(entry)) is not None:
        return reason
    return _find_model_problem(entry, Tool)


def find_entry_problem(entry: Any, model: type[BaseModel]) -> str | None:
    """Return why a prompt, a resource or a template cannot be taken; `None` where it can."""
    if not isinstance(entry, dict):
        return "it is not an object"
    max_bytes = MAX_NAME_BYTES if model is Prompt else MAX_RESOURCE_NAME_BYTES
    return _find_text_problem(entry, max_bytes) or _find_extra_problem(entry) or _find_model_problem(entry, model)


def _find_model_problem(entry: dict[str, Any], model: type[BaseModel]) -> str | None:
    try:
        model.model_validate(entry, by_name=False)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        return f"it does not fit the protocol at {'.'.join(map(str, problem['loc']))}"
    return None


def _find_text_problem(entry: dict[str, Any], max_name_bytes: int = MAX_NAME_BYTES) -> str | None:
    name, description = entry.get("name"), entry.get("description")
    if not isinstance(name, str) or not name.strip():
        return "it has no name"
    if description is not None and not isinstance(description, str):
        return "its description is not a text"
    for key, max_bytes in (
        ("name", max_name_bytes),
        ("title", max_name_bytes * 4),
        ("description", MAX_DESCRIPTION_BYTES),
    ):
        text = entry.get(key)
        if not isinstance(text, str):
            continue
        if len(text.encode("utf-8", "replace")) > max_bytes:
            return f"its {key} is longer than {max_bytes} bytes"
        if (hidden := find_hidden_character(text, multiline=key == "description")) is not None:
            return f"its {key} holds the hidden character U+{ord(hidden):04X}"
    return None


def _find_extra_problem(entry: dict[str, Any]) -> str | None:
    """Return what is wrong with the rest of a definition, all of which may be passed on."""
    for part, max_bytes in (("_meta", MAX_META_BYTES), ("annotations", MAX_META_BYTES)):
        if len(to_json(entry.get(part))) > max_bytes:
            return f"its {part} is longer than {max_bytes} bytes"
    extra = {key: value for key, value in entry.items() if key not in _CHECKED_FIELDS}
    if len(to_json(extra)) > MAX_EXTRA_BYTES:
        return f"what it holds beside its schemas is longer than {MAX_EXTRA_BYTES} bytes"
    for key, value in extra.items():
        if (hidden := _find_hidden_in_json([key, value])) is not None:
            return f"its {clip(key)} holds the hidden character U+{ord(hidden):04X}"
    return None


def _find_hidden_in_json(value: Any) -> str | None:
    """Return the first hidden character in any text of JSON data, keys included."""
    queue = [value]
    while queue:
        item = queue.pop()
        if isinstance(item, str):
            if (hidden := find_hidden_character(item)) is not None:
                return hidden
        elif isinstance(item, dict):
            queue += [*item, *item.values()]
        elif isinstance(item, list):
            queue += item
    return None


def _find_schema_problem(schema: dict[str, Any], side: str) -> str | None:
    try:
        if _measure_depth(schema) > MAX_SCHEMA_DEPTH:
            return f"its {side} schema is nested deeper than {MAX_SCHEMA_DEPTH} levels"
        size = len(to_json(schema))
        nodes = list(islice(iter_subschemas(schema), MAX_SUBSCHEMAS + 1))
    except (ValueError, RecursionError, TypeError, AttributeError):
        return f"its {side} schema is not a JSON Schema"
    if (hidden := _find_hidden_in_json(schema)) is not None:
        return f"its {side} schema holds the hidden character U+{ord(hidden):04X}"
    if size > MAX_SCHEMA_BYTES:
        return f"its {side} schema is longer than {MAX_SCHEMA_BYTES} bytes"
    if len(nodes) > MAX_SUBSCHEMAS:
        return f"its {side} schema has more than {MAX_SUBSCHEMAS} parts"
    for node in nodes:
        for key in ("$ref", "$dynamicRef"):
            ref = node.get(key)
            if isinstance(ref, str) and not ref.startswith("#"):
                return f"its {side} schema refers to {clip(ref)!r}, which is outside of it"
    return None


def _measure_depth(value: Any) -> int:
    """Return how deep JSON data nest, no further than just past what is allowed."""
    level, deepest = [value], 0
    while level and deepest <= MAX_SCHEMA_DEPTH * 2:
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
            if isinstance(inner, dict | list)
        ]
        deepest += 1
    # A level of a schema is two of JSON: the keyword, and what it holds.
    return (deepest + 1) // 2


def find_hidden_character(text: str, *, multiline: bool = True) -> str | None:
    """Return the first character that a reader would not see and a model would: controls, bidi, blanks, tags.

    `lines` tells whether the text may have several lines.
    """
    if text.isascii() and text.isprintable():
        return None
    for index, character in enumerate(text):
        if character in "\n\t" or text.startswith("\r\n", index):
            if not multiline:
                return character
        elif character in (_ZERO_WIDTH_JOINER, _EMOJI_SELECTOR):
            if not _is_in_emoji(text, index):
                return character
        elif character in _INVISIBLE_CHARACTERS or unicodedata.category(character) in _HIDDEN_CATEGORIES:
            return character
    return None


def _is_in_emoji(text: str, index: int) -> bool:
    """Tell whether a mark that shows nothing does what it is for: one after a sign, and none after another.

    A row of them, or one after each letter, spells out bits.
    """
    before, after = text[index - 1 : index] if index else "", text[index + 1 : index + 2]
    if not before or before == _ZERO_WIDTH_JOINER:
        return False
    if text[index] == _EMOJI_SELECTOR:
        is_symbol = before != _EMOJI_SELECTOR and unicodedata.category(before) != "Mn" and not before.isalpha()
        return is_symbol or before == _INFORMATION_SIGN
    if unicodedata.combining(before) == _VIRAMA_CLASS:
        return True  # how half a letter is written in the scripts of India
    return (before == _EMOJI_SELECTOR or unicodedata.category(before) in ("So", "Sk")) and bool(
        after and unicodedata.category(after) == "So"
    )
