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

from toolmason._core.define.schema_nodes import subschemas
from toolmason.errors import clip

_log = logging.getLogger("toolmason.mcp")

NAME_BYTES: Final = 128
LABEL_BYTES: Final = 1024
"""The longest name of a resource: it may be that of a file, with its folders."""
DESCRIPTION_BYTES: Final = 4 * 1024
META_BYTES: Final = 16 * 1024
EXTRA_BYTES: Final = 64 * 1024
"""All that is beside the words and the schemas: hints, icons, `_meta`, what we do not know."""
SCHEMA_BYTES: Final = 64 * 1024
SCHEMA_DEPTH: Final = 32
SUBSCHEMAS: Final = 2000
_OTHERS: Final[Mapping[str, tuple[str, str, type[BaseModel]]]] = {
    "prompts/list": ("prompts", "prompt", Prompt),
    "resources/list": ("resources", "resource", Resource),
    "resources/templates/list": ("resourceTemplates", "resource template", ResourceTemplate),
}
"""The lists beside that of the tools: their field, what an entry is called, and its form."""
_TYPES: Final = frozenset({"complete", "input_required", "task"})
_KINDS: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_LOOKED_AT: Final = frozenset({"name", "title", "description", "inputSchema", "outputSchema"})
_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co"})
_BLANK: Final = frozenset(
    {
        *"\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0",
        *"\u2028\u2029",
        *map(chr, range(0xFE00, 0xFE0F)),
        *map(chr, range(0xE0100, 0xE01F0)),
    }
)
"""Marks and letters that show nothing, and the ends of lines that few programs show as such."""
_JOINER: Final = "\u200d"
_AS_EMOJI: Final = "\ufe0f"
_INFORMATION: Final = "\u2139"
"""The one emoji that counts as a letter."""
_VIRAMA: Final = 9


@dataclass(slots=True, eq=False, repr=False)
class Screen:
    """What one connection has asked, and what came of it."""

    server: str
    asked: dict[Any, tuple[str, bool]] = field(default_factory=dict)
    """By id: the method, and whether the question was of the stateless era."""
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Definitions by tool, as they came; the SDK does not get to see their output schemas."""
    refused: dict[str, str] = field(default_factory=dict)
    """Tools that are not taken, and why."""

    def sent(self, message: JSONRPCMessage) -> None:
        """Take note of a question."""
        if isinstance(message, JSONRPCRequest):
            meta = (message.params or {}).get("_meta")
            self.asked[message.id] = (message.method, isinstance(meta, Mapping) and _VERSION in meta)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self.asked.pop((message.params or {}).get("requestId"), None)

    @property
    def lists(self) -> set[Any]:
        """The ids of questions for a list of tools."""
        return {asked for asked, (method, _) in self.asked.items() if method == "tools/list"}

    def received(self, message: JSONRPCMessage) -> JSONRPCMessage:
        """Return an answer as the SDK may see it."""
        if isinstance(message, JSONRPCError):
            self.asked.pop(message.id, None)
            return message
        if not isinstance(message, JSONRPCResponse):
            return message
        method, modern = self.asked.pop(message.id, ("", False))
        result = message.result
        if modern and method != "server/discover":
            kind = result.get("resultType")
            if kind is None:
                # Absent means complete; so says the specification, and the SDK does not.
                result = {**result, "resultType": "complete"}
            elif kind not in _TYPES:
                reason = f"the result is of the unknown type {clip(str(kind))!r}"
                return failure(message.id, reason)
        if method == "tools/list":
            result = self._listing(result)
        elif method in _OTHERS:
            result = self._other_listing(result, *_OTHERS[method])
        elif method == "tools/call":
            result = _readable(result)
        return message if result is message.result else message.model_copy(update={"result": result})

    def _listing(self, result: Mapping[str, Any]) -> dict[str, Any]:
        tools = result.get("tools")
        if not isinstance(tools, list):
            return dict(result)
        kept: list[dict[str, Any]] = []
        for entry in tools:
            name = entry.get("name") if isinstance(entry, dict) else None
            reason = trouble_with(entry)
            if reason is not None:
                shown = clip(str(name)) if isinstance(name, str) else "(no name)"
                self.refused[shown] = reason
                _log.warning("server %r: its tool %r is not used: %s", self.server, shown, reason)
                continue
            own = dict(entry)
            own.pop("outputSchema", None)
            self.entries[own["name"]] = entry
            kept.append(own)
        return {**result, "tools": kept}

    def _other_listing(self, result: dict[str, Any], key: str, what: str, form: type[BaseModel]) -> dict[str, Any]:
        entries = result.get(key)
        if not isinstance(entries, list):
            return result
        kept: list[Any] = []
        for entry in entries:
            reason = trouble_with_other(entry, form)
            if reason is None:
                kept.append(entry)
                continue
            name = entry.get("name") if isinstance(entry, dict) else None
            shown = clip(name) if isinstance(name, str) else "(no name)"
            _log.warning("server %r: its %s %r is not used: %s", self.server, what, shown, reason)
        return {**result, key: kept}


def _readable(result: dict[str, Any]) -> dict[str, Any]:
    """Return a result whose content is of kinds that we know; any other is kept as its JSON, and costs no more."""
    content = result.get("content")
    if not isinstance(content, list) or not any(map(_is_strange, content)):
        return result
    shown = [{"type": "text", "text": to_json(part).decode()} if _is_strange(part) else part for part in content]
    return {**result, "content": shown}


def _is_strange(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(kind := part.get("type"), str) and kind not in _KINDS


def failure(request: Any, reason: str) -> JSONRPCError:
    """Return an answer that says why there is none."""
    return JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=INTERNAL_ERROR, message=reason))


def trouble_with(entry: Any) -> str | None:
    """Return why a tool definition cannot be taken; `None` where it can."""
    if not isinstance(entry, dict):
        return "it is not an object"
    if (reason := _words_trouble(entry)) is not None:
        return reason
    schema, output = entry.get("inputSchema"), entry.get("outputSchema")
    if not isinstance(schema, dict):
        return "it has no input schema"
    if schema.get("type", "object") != "object":
        return f"its input schema is of type {clip(str(schema.get('type')))!r}, not an object"
    if (reason := _schema_trouble(schema, "input")) is not None:
        return reason
    if output is not None and not isinstance(output, dict):
        return "its output schema is not an object"
    if output is not None and (reason := _schema_trouble(output, "output")) is not None:
        return reason
    if (reason := _extra_trouble(entry)) is not None:
        return reason
    return _form_trouble(entry, Tool)


def trouble_with_other(entry: Any, form: type[BaseModel]) -> str | None:
    """Return why a prompt, a resource or a template cannot be taken; `None` where it can."""
    if not isinstance(entry, dict):
        return "it is not an object"
    most = NAME_BYTES if form is Prompt else LABEL_BYTES
    return _words_trouble(entry, most) or _extra_trouble(entry) or _form_trouble(entry, form)


def _form_trouble(entry: dict[str, Any], form: type[BaseModel]) -> str | None:
    try:
        form.model_validate(entry, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"it does not fit the protocol at {'.'.join(map(str, first['loc']))}"
    return None


def _words_trouble(entry: dict[str, Any], longest: int = NAME_BYTES) -> str | None:
    name, description = entry.get("name"), entry.get("description")
    if not isinstance(name, str) or not name.strip():
        return "it has no name"
    if description is not None and not isinstance(description, str):
        return "its description is not a text"
    for what, most in (("name", longest), ("title", longest * 4), ("description", DESCRIPTION_BYTES)):
        text = entry.get(what)
        if not isinstance(text, str):
            continue
        if len(text.encode("utf-8", "replace")) > most:
            return f"its {what} is longer than {most} bytes"
        if (hidden := hidden_in(text, lines=what == "description")) is not None:
            return f"its {what} holds the hidden character U+{ord(hidden):04X}"
    return None


def _extra_trouble(entry: dict[str, Any]) -> str | None:
    """Return what is wrong with the rest of a definition, all of which may be passed on."""
    for what, most in (("_meta", META_BYTES), ("annotations", META_BYTES)):
        if len(to_json(entry.get(what))) > most:
            return f"its {what} is longer than {most} bytes"
    extra = {key: value for key, value in entry.items() if key not in _LOOKED_AT}
    if len(to_json(extra)) > EXTRA_BYTES:
        return f"what it holds beside its schemas is longer than {EXTRA_BYTES} bytes"
    for key, value in extra.items():
        if (hidden := _hidden_within([key, value])) is not None:
            return f"its {clip(key)} holds the hidden character U+{ord(hidden):04X}"
    return None


def _hidden_within(value: Any) -> str | None:
    """Return the first hidden character in any text of JSON data, keys included."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, str):
            if (hidden := hidden_in(item)) is not None:
                return hidden
        elif isinstance(item, dict):
            left += [*item, *item.values()]
        elif isinstance(item, list):
            left += item
    return None


def _schema_trouble(schema: dict[str, Any], side: str) -> str | None:
    try:
        if _depth(schema) > SCHEMA_DEPTH:
            return f"its {side} schema is nested deeper than {SCHEMA_DEPTH} levels"
        size = len(to_json(schema))
        nodes = list(islice(subschemas(schema), SUBSCHEMAS + 1))
    except (ValueError, RecursionError, TypeError, AttributeError):
        return f"its {side} schema is not a JSON Schema"
    if (hidden := _hidden_within(schema)) is not None:
        return f"its {side} schema holds the hidden character U+{ord(hidden):04X}"
    if size > SCHEMA_BYTES:
        return f"its {side} schema is longer than {SCHEMA_BYTES} bytes"
    if len(nodes) > SUBSCHEMAS:
        return f"its {side} schema has more than {SUBSCHEMAS} parts"
    for node in nodes:
        for key in ("$ref", "$dynamicRef"):
            ref = node.get(key)
            if isinstance(ref, str) and not ref.startswith("#"):
                return f"its {side} schema refers to {clip(ref)!r}, which is outside of it"
    return None


def _depth(value: Any) -> int:
    """Return how deep JSON data nest, no further than just past what is allowed."""
    level, deepest = [value], 0
    while level and deepest <= SCHEMA_DEPTH * 2:
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
            if isinstance(inner, dict | list)
        ]
        deepest += 1
    # A level of a schema is two of JSON: the keyword, and what it holds.
    return (deepest + 1) // 2


def hidden_in(text: str, *, lines: bool = True) -> str | None:
    """Return the first character that a reader would not see and a model would: controls, bidi, blanks, tags.

    `lines` tells whether the text may have several lines.
    """
    if text.isascii() and text.isprintable():
        return None
    for place, character in enumerate(text):
        if character in "\n\t" or text.startswith("\r\n", place):
            if not lines:
                return character
        elif character in (_JOINER, _AS_EMOJI):
            if not _is_in_emoji(text, place):
                return character
        elif character in _BLANK or unicodedata.category(character) in _HIDDEN:
            return character
    return None


def _is_in_emoji(text: str, place: int) -> bool:
    """Tell whether a mark that shows nothing does what it is for: one after a sign, and none after another.

    A row of them, or one after each letter, spells out bits.
    """
    before, after = text[place - 1 : place] if place else "", text[place + 1 : place + 2]
    if not before or before == _JOINER:
        return False
    if text[place] == _AS_EMOJI:
        sign = before != _AS_EMOJI and unicodedata.category(before) != "Mn" and not before.isalpha()
        return sign or before == _INFORMATION
    if unicodedata.combining(before) == _VIRAMA:
        return True  # how half a letter is written in the scripts of India
    return (before == _AS_EMOJI or unicodedata.category(before) in ("So", "Sk")) and bool(
        after and unicodedata.category(after) == "So"
    )
