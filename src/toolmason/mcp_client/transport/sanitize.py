"""Sanitize a server's messages before the SDK reads them: result types, definitions and content.

The SDK rejects a whole list for one bad entry, and validates results on the event loop against schemas that the
server wrote. Both are prevented here.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import mcp_types
from pydantic import BaseModel, ValidationError
from pydantic_core import to_json

from toolmason._core.define.schema_nodes import (
    KEYWORD_KINDS,
    find_malformed_keyword,
    has_few_alternatives,
    iter_subschemas,
)
from toolmason._text import BLANK_CHARACTERS, HIDDEN_CATEGORIES
from toolmason.errors import clip
from toolmason.mcp_client.specification import PROTOCOL_VERSION_META_KEY

_log = logging.getLogger("toolmason.mcp")

MAX_NAME_BYTES: Final = 128
MAX_RESOURCE_NAME_BYTES: Final = 1024
"""Maximum length of a resource name, which may be a file path."""
MAX_DESCRIPTION_BYTES: Final = 4 * 1024
MAX_META_BYTES: Final = 16 * 1024
MAX_EXTRA_BYTES: Final = 64 * 1024
"""Maximum size of all other fields: hints, icons, `_meta`, unknown keys."""
MAX_SCHEMA_BYTES: Final = 64 * 1024
MAX_SCHEMA_DEPTH: Final = 32
MAX_SUBSCHEMAS: Final = 2000
MAX_SERVER_REQUESTS: Final = 100
"""Maximum number of requests of a server in progress. Each costs the SDK a task."""
_OTHER_LISTS: Final[Mapping[str, tuple[str, str, type[BaseModel]]]] = {
    "prompts/list": ("prompts", "prompt", mcp_types.Prompt),
    "resources/list": ("resources", "resource", mcp_types.Resource),
    "resources/templates/list": ("resourceTemplates", "resource template", mcp_types.ResourceTemplate),
}
"""Lists other than tools: the result key, the name of an entry, and its model."""
_RESULT_TYPES: Final = frozenset({"complete", "input_required", "task"})
_CONTENT_TYPES: Final = frozenset({"text", "image", "audio", "resource", "resource_link"})
_CHECKED_FIELDS: Final = frozenset({"name", "title", "description", "inputSchema", "outputSchema"})
_UNUSUAL: Final = re.compile(rb"\\[bfru]|[\x7f-\xff]")
"""Bytes of JSON text with controls or other scripts; text without them has no hidden character."""
_ZERO_WIDTH_JOINER: Final = "\u200d"
_EMOJI_SELECTOR: Final = "\ufe0f"
_INFORMATION_SIGN: Final = "\u2139"
"""The only emoji that Unicode categorizes as a letter."""
_VIRAMA_CLASS: Final = 9
_SIMILAR_ALPHABETS: Final = frozenset({"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC"})


@dataclass(slots=True, eq=False, repr=False)
class Sanitizer:
    """Pending requests of one connection, and the definitions that it received."""

    server: str
    pending: dict[Any, tuple[str, bool]] = field(default_factory=dict)
    """Method of each request by id, and True if the request is of the stateless era."""
    definitions: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Tool definitions by name, as received. The SDK gets stubs of them: it would validate each one twice."""
    server_requests: set[str] = field(default_factory=set)
    """Ids of the server's own requests in progress."""
    has_refused: bool = False
    """True if one of them was refused."""

    def track(self, message: mcp_types.JSONRPCMessage) -> None:
        """Record an outgoing request or cancellation."""
        if isinstance(message, mcp_types.JSONRPCRequest):
            meta = (message.params or {}).get("_meta")
            self.pending[message.id] = (message.method, isinstance(meta, Mapping) and PROTOCOL_VERSION_META_KEY in meta)
        elif isinstance(message, mcp_types.JSONRPCNotification) and message.method == "notifications/cancelled":
            self.pending.pop((message.params or {}).get("requestId"), None)

    def refuse(self, message: mcp_types.JSONRPCMessage) -> mcp_types.JSONRPCError | None:
        """Return the error for a request of the server beyond the limit. Return None for any other message.

        The id of a request is unique, and the SDK can cancel only the last one of an id.
        """
        if isinstance(message, mcp_types.JSONRPCNotification) and message.method == "notifications/cancelled":
            # The SDK does not answer a cancelled request.
            self.server_requests.discard(str((message.params or {}).get("requestId")))
        if not isinstance(message, mcp_types.JSONRPCRequest):
            return None
        if len(self.server_requests) < MAX_SERVER_REQUESTS and str(message.id) not in self.server_requests:
            self.server_requests.add(str(message.id))
            return None
        if not self.has_refused:
            self.has_refused = True
            _log.warning("server %r: more than %d requests at once are refused", self.server, MAX_SERVER_REQUESTS)
        return make_error_response(message.id, f"more than {MAX_SERVER_REQUESTS} requests at once, or a repeated id")

    def settle(self, message: mcp_types.JSONRPCMessage) -> None:
        """Record that a message was sent, if it answers a request of the server."""
        if isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
            self.server_requests.discard(str(message.id))

    @property
    def tool_list_ids(self) -> set[Any]:
        """Ids of pending `tools/list` requests."""
        return {request_id for request_id, (method, _) in self.pending.items() if method == "tools/list"}

    def sanitize(self, message: mcp_types.JSONRPCMessage) -> mcp_types.JSONRPCMessage:
        """Return a message in a form that is safe for the SDK."""
        if isinstance(message, mcp_types.JSONRPCError):
            self.pending.pop(message.id, None)
            return message
        if not isinstance(message, mcp_types.JSONRPCResponse):
            return message
        method, modern = self.pending.pop(message.id, ("", False))
        result = message.result
        if modern and method != "server/discover":
            result_type = result.get("resultType")
            if result_type is None:
                # The specification reads an absent type as complete; the SDK does not.
                result = {**result, "resultType": "complete"}
            elif result_type not in _RESULT_TYPES:
                reason = f"the result has the unknown type {clip(str(result_type))!r}"
                return make_error_response(message.id, reason)
        if method == "tools/list":
            result = self._filter_tools(result)
        elif method in _OTHER_LISTS:
            result = self._filter_entries(result, *_OTHER_LISTS[method])
        elif method == "tools/call":
            result = _replace_unknown_parts(result)
        return message if result is message.result else message.model_copy(update={"result": result})

    def _filter_tools(self, result: dict[str, Any]) -> dict[str, Any]:
        filtered = self._filter_entries(result, "tools", "tool", mcp_types.Tool)
        if filtered is result:
            return result
        self.definitions.update((entry["name"], entry) for entry in filtered["tools"])
        return {**filtered, "tools": list(map(_make_stub, filtered["tools"]))}

    def _filter_entries(self, result: dict[str, Any], key: str, kind: str, model: type[BaseModel]) -> dict[str, Any]:
        entries = result.get(key)
        if not isinstance(entries, list):
            return result
        kept: list[Any] = []
        for entry in entries:
            try:
                reason = find_tool_problem(entry) if model is mcp_types.Tool else find_entry_problem(entry, model)
            except Exception as error:  # noqa: BLE001 - one entry must not take the others with it
                reason = f"it cannot be checked: {type(error).__name__}"
            if reason is None:
                kept.append(entry)
                continue
            name = entry.get("name") if isinstance(entry, dict) else None
            label = clip(name) if isinstance(name, str) else "(no name)"
            _log.warning("server %r: ignoring %s %r: %s", self.server, kind, label, reason)
        return {**result, key: kept}


def _make_stub(entry: dict[str, Any]) -> dict[str, Any]:
    """Return a tool with the fields that the SDK needs: the name, and a schema that mirrors parameters in headers."""
    schema = entry["inputSchema"]
    is_mirrored = b"x-mcp-header" in to_json(schema)
    return {"name": entry["name"], "inputSchema": schema if is_mirrored else {"type": "object"}}


def _replace_unknown_parts(result: dict[str, Any]) -> dict[str, Any]:
    """Replace content parts of unknown type with text parts that hold their JSON."""
    content = result.get("content")
    if not isinstance(content, list) or not any(map(_is_unknown_part, content)):
        return result
    known_parts = [
        {"type": "text", "text": to_json(part).decode()} if _is_unknown_part(part) else part for part in content
    ]
    return {**result, "content": known_parts}


def _is_unknown_part(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(kind := part.get("type"), str) and kind not in _CONTENT_TYPES


def make_error_response(request_id: Any, reason: str) -> mcp_types.JSONRPCError:
    """Return an error response with a reason."""
    return mcp_types.JSONRPCError(
        jsonrpc="2.0", id=request_id, error=mcp_types.ErrorData(code=mcp_types.INTERNAL_ERROR, message=reason)
    )


def find_tool_problem(entry: Any) -> str | None:
    """Return why a tool definition is rejected, or None if it is valid. Keywords that count as absent are removed.

    Servers in Go send null for an empty list, and `required` was once the boolean of a property.
    """
    if not isinstance(entry, dict):
        return "it is not an object"
    if (reason := _find_text_problem(entry) or _find_name_problem(entry["name"])) is not None:
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
    return _find_model_problem(entry, mcp_types.Tool)


def _find_name_problem(name: str) -> str | None:
    """Return why the name of a tool or prompt can be taken for another one, or None."""
    if name != name.strip():
        return "its name begins or ends with a blank"
    if ".." in re.split(r"[/\\]", name):
        return "its name contains the path `..`"
    if name.isascii():
        return None
    if unicodedata.normalize("NFKC", name) != unicodedata.normalize("NFC", name):
        return "its name contains a character that looks like another one"
    # Letters of one of these alphabets look like those of another one.
    alphabets = {unicodedata.name(character, "").partition(" ")[0] for character in name if character.isalpha()}
    if len(alphabets & _SIMILAR_ALPHABETS) > 1:
        return f"its name mixes the alphabets {' and '.join(sorted(alphabets & _SIMILAR_ALPHABETS))}"
    return None


def find_entry_problem(entry: Any, model: type[BaseModel]) -> str | None:
    """Return why a prompt, resource or template is rejected, or None if it is valid."""
    if not isinstance(entry, dict):
        return "it is not an object"
    is_prompt = model is mcp_types.Prompt
    reason = _find_text_problem(entry, MAX_NAME_BYTES if is_prompt else MAX_RESOURCE_NAME_BYTES)
    if is_prompt and reason is None:
        reason = _find_name_problem(entry["name"])
    return reason or _find_extra_problem(entry) or _find_model_problem(entry, model)


def _find_model_problem(entry: dict[str, Any], model: type[BaseModel]) -> str | None:
    try:
        model.model_validate(entry, by_name=False)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        return f"it does not match the protocol at {'.'.join(map(str, problem['loc']))}"
    return None


def _find_text_problem(entry: dict[str, Any], max_name_bytes: int = MAX_NAME_BYTES) -> str | None:
    name, description = entry.get("name"), entry.get("description")
    if not isinstance(name, str) or not name.strip():
        return "it has no name"
    if description is not None and not isinstance(description, str):
        return "its description is not a string"
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
            return f"its {key} contains the hidden character U+{ord(hidden):04X}"
    return None


def _find_extra_problem(entry: dict[str, Any]) -> str | None:
    """Return a problem with the other fields of a definition, all of which may be forwarded, or None."""
    extra = {key: value for key, value in entry.items() if key not in _CHECKED_FIELDS}
    if not extra:
        return None
    for part, max_bytes in (("_meta", MAX_META_BYTES), ("annotations", MAX_META_BYTES)):
        if len(to_json(entry.get(part))) > max_bytes:
            return f"its {part} is longer than {max_bytes} bytes"
    text = to_json(extra)
    if len(text) > MAX_EXTRA_BYTES:
        return f"its other fields are larger than {MAX_EXTRA_BYTES} bytes"
    if not _UNUSUAL.search(text):
        return None
    for key, value in extra.items():
        if (hidden := _find_hidden_in_json([key, value])) is not None:
            return f"its {clip(key)} contains the hidden character U+{ord(hidden):04X}"
    return None


def _find_hidden_in_json(value: Any) -> str | None:
    """Return the first hidden character in any string of JSON data, including keys, or None."""
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
        nodes = list(map(_drop_absent, islice(iter_subschemas(schema), MAX_SUBSCHEMAS + 1)))
        text = to_json(schema)
    except (ValueError, RecursionError, TypeError, AttributeError):
        text, nodes = b"", []
    # A schema with few brackets is not deep; measuring the others takes longer than all checks of one of these.
    is_small = text and text.count(b"{") + text.count(b"[") <= MAX_SCHEMA_DEPTH
    if not is_small and _measure_depth(schema) > MAX_SCHEMA_DEPTH:
        return f"its {side} schema is nested deeper than {MAX_SCHEMA_DEPTH} levels"
    if not text:
        return f"its {side} schema is not a JSON Schema"
    if _UNUSUAL.search(text) and (hidden := _find_hidden_in_json(schema)) is not None:
        return f"its {side} schema contains the hidden character U+{ord(hidden):04X}"
    if len(text) > MAX_SCHEMA_BYTES:
        return f"its {side} schema is longer than {MAX_SCHEMA_BYTES} bytes"
    if len(nodes) > MAX_SUBSCHEMAS:
        return f"its {side} schema has more than {MAX_SUBSCHEMAS} subschemas"
    if (keyword := find_malformed_keyword(schema)) is not None:
        return f"its {side} schema is not a JSON Schema: its {keyword!r} has the wrong type"
    refs = (node[key] for node in nodes for key in ("$ref", "$dynamicRef") if key in node)
    external = next((ref for ref in refs if isinstance(ref, str) and not ref.startswith("#")), None)
    if external is not None:
        return f"its {side} schema references {clip(external)!r}, which is external"
    if not has_few_alternatives(schema):
        return f"its {side} schema is too complex: its parts refer to each other too often"
    return None


def _drop_absent(node: dict[str, Any]) -> dict[str, Any]:
    for key in KEYWORD_KINDS.keys() & node.keys():
        if node[key] is None or (key == "required" and isinstance(node[key], bool)):
            del node[key]
    return node


def _measure_depth(value: dict[str, Any]) -> int:
    """Return the nesting depth of a schema, measured only slightly past the limit."""
    containers: list[Any] = [value]
    depth = 0
    while containers and depth <= MAX_SCHEMA_DEPTH * 2:
        children = [child for item in containers for child in (item.values() if isinstance(item, dict) else item)]
        containers = [child for child in children if isinstance(child, dict | list)]
        depth += 1
    # Each schema level is two JSON levels: the keyword and its value.
    return (depth + 1) // 2


def find_hidden_character(text: str, *, multiline: bool = True) -> str | None:
    """Return the first character that a model sees and a reader does not: controls, bidi, blanks, tags.

    `multiline` allows line breaks and tabs.
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
        elif character in BLANK_CHARACTERS or unicodedata.category(character) in HIDDEN_CATEGORIES:
            return character
    return None


def _is_in_emoji(text: str, index: int) -> bool:
    """Return True if an invisible mark has its proper use: a single one after a symbol.

    A run of marks, or one after each letter, can encode hidden bits.
    """
    before = text[index - 1 : index] if index else ""
    after = text[index + 1 : index + 2]
    if not before or before == _ZERO_WIDTH_JOINER:
        return False
    if text[index] == _EMOJI_SELECTOR:
        is_symbol = before != _EMOJI_SELECTOR and unicodedata.category(before) != "Mn" and not before.isalpha()
        return is_symbol or before == _INFORMATION_SIGN
    if unicodedata.combining(before) == _VIRAMA_CLASS:
        return True  # joins half letters in Indic scripts
    return (before == _EMOJI_SELECTOR or unicodedata.category(before) in ("So", "Sk")) and bool(
        after and unicodedata.category(after) == "So"
    )
