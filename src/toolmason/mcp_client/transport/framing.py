"""Split bytes into lines and parse them as messages, so that a bad line costs that line and not the session."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final

from pydantic_core import from_json, to_json

from toolmason._core.arguments.bounds import extract_structure, measure_nesting
from toolmason._wire import KEPT_BYTES, LARGE_JSON_BYTES, has_large_number, pause_garbage_collection

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""Maximum length of a line."""
MAX_DEPTH: Final = 128
MAX_PARTS: Final = 660_000
"""Brackets and colons of one large message: a tenth of a second in the parser or the garbage collector."""
MAX_KEYS: Final = 150_000
"""Keys of one object of a large message: the same."""
_INNER_VALUES: Final = re.compile(rb"\[\]|\{:*+\}")
_MAX_VISITED: Final = 1000
_TOO_DEEP: Final = f"it is nested deeper than {MAX_DEPTH} levels"
_MAX_PRUNED_BYTES: Final = 1024 * 1024
# An unterminated string matches to the end: restarting the search at each quote would take quadratic time.
_TOKEN_PATTERN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_ID: Final = rb'"id"\s*+:\s*+(-?\d{1,18}|"(?:[^"\\\x00-\x1f]|\\.){1,200}")\s*+'
_START_PATTERN: Final = re.compile(_ID + rb"(?=[,}])|" + _TOKEN_PATTERN.pattern, re.DOTALL)
_END_PATTERN: Final = re.compile(_ID + rb'(?:,\s*+"(?:jsonrpc|method)"\s*+:\s*+"[^"\\]{0,200}"\s*+)*+\}\s*\Z')


@dataclass(frozen=True, slots=True)
class UnreadableMessage:
    """A line that is not a valid message: the reason, and the id of the request it would have answered."""

    reason: str
    id: int | str | None = None


def parse_message(line: bytes, list_ids: Container[Any] = ()) -> dict[str, Any] | UnreadableMessage | None:
    """Return the JSON object in a line, or None for other text, such as a banner.

    `list_ids` are the ids of list requests: from their responses, only the entries that are too deep are dropped.
    """
    text = line.strip()
    if not text.startswith(b"{"):
        return None
    data = parse_json(text)
    if isinstance(data, UnreadableMessage) and data.reason is _TOO_DEEP and len(text) <= _MAX_PRUNED_BYTES:
        data = parse_json(prune(text)) if data.id is not None and data.id in list_ids else data
    return data if isinstance(data, dict | UnreadableMessage) else None


def parse_large_json(text: bytes) -> Any:
    """Return the parsed text, as `parse_json`, if it does not have so many parts that nothing else could run.

    The parser keeps other threads from running, so a thread alone is not enough.
    """
    structure = extract_structure(text)
    if len(structure) > MAX_PARTS:
        return UnreadableMessage(f"it has more than {MAX_PARTS:,} brackets and colons", find_id(text))
    if structure.count(b":") > MAX_KEYS and _has_wide_object(structure):
        return UnreadableMessage(f"it has an object with more than {MAX_KEYS:,} keys", find_id(text))
    with pause_garbage_collection():
        return parse_json(text, structure)


def _has_wide_object(structure: bytes) -> bool:
    for _ in range(8):  # with values of more levels, such an object has more than 4 MiB
        if b":" * (MAX_KEYS + 1) in structure:
            return True
        structure = _INNER_VALUES.sub(b"", structure)
    return False


def parse_json(text: bytes, structure: bytes | None = None) -> Any:
    """Return the parsed text, or an `UnreadableMessage` if another parser could read it differently.

    The standard library accepts UTF-16, lone surrogates, NaN and Infinity, which this parser rejects. `structure` is
    that of `extract_structure`, if it is known.
    """
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH:
        structure = extract_structure(text) if structure is None else structure
        if measure_nesting(structure, MAX_DEPTH) > MAX_DEPTH:
            return UnreadableMessage(_TOO_DEEP, find_id(text))
    try:
        data = from_json(text, allow_inf_nan=False)
    except (ValueError, RecursionError) as error:
        return UnreadableMessage(f"it is not valid JSON: {str(error)[:160]}", find_id(text))
    try:
        written = to_json(data, inf_nan_mode="constants")
    except ValueError:
        written = b""  # a number that cannot be serialized
    # Serialized again, the data has one colon fewer for each lost key, and shows a number that became infinite.
    if b"\\" not in text and text.count(b":") == written.count(b":") and b"Infinity" not in written:
        return data
    if has_large_number(text) and _has_infinity(data):
        return UnreadableMessage("a number is too large for a float", find_id(text))
    return UnreadableMessage("an object has a duplicate key", find_id(text)) if has_duplicate_key(text, data) else data


def _has_infinity(data: Any) -> bool:
    try:
        from_json(to_json(data, inf_nan_mode="constants"), allow_inf_nan=False)
    except ValueError:
        return True
    return False


def has_duplicate_key(text: bytes, data: Any) -> bool:
    """Return True if an object in `text` has a duplicate key; `data` is the parsed text.

    Parsers disagree on which value counts, so the checked value may not be the one that is used. Serialized again,
    the data has one colon fewer for each lost key; those in strings count only if an escape may have added one.
    """
    colons = text.count(b":")
    if len(text) > LARGE_JSON_BYTES and colons == _count_outer_keys(data, colons):
        return False
    written = to_json(data)
    if b"\\" not in text and colons == written.count(b":"):
        return False
    return extract_structure(text).count(b":") != extract_structure(written).count(b":")


def _count_outer_keys(data: Any, most: int) -> int:
    """Return the number of keys, of those that are found soon: usually all, if the values are long lists of numbers."""
    count, pending = 0, [data]
    for value in pending:
        if isinstance(value, dict):
            count += len(value)
        if count >= most or len(pending) + len(value) > _MAX_VISITED:
            break
        inner = value.values() if isinstance(value, dict) else value
        pending += [item for item in inner if isinstance(item, dict | list)]
    return count


def prune(text: bytes, max_depth: int = MAX_DEPTH) -> bytes:
    """Replace values nested deeper than `max_depth` with null."""
    parts: list[bytes] = []
    level = start = 0
    for match in _TOKEN_PATTERN.finditer(text):
        token = match[0]
        if token in b"[{":
            level += 1
            if level == max_depth + 1:
                parts.append(text[start : match.start()])
        elif token in b"]}":
            if level == max_depth + 1:
                parts.append(b"null")
                start = match.end()
            level -= 1
    return b"".join((*parts, text[start:] if level <= max_depth else b""))


def find_id(text: bytes) -> int | str | None:
    """Return the id of a message that cannot be parsed, from its start or its end. Ignore ids inside of it."""
    found, level = None, 0
    for match in _START_PATTERN.finditer(text[:KEPT_BYTES]):
        if match[1] is not None and level == 1:
            found = match
            break
        level += (match[0] in b"[{") - (match[0] in b"]}")
    found = found or _END_PATTERN.search(text[-KEPT_BYTES:])
    if found is None:
        return None
    try:
        value = from_json(found[1])
    except ValueError:
        return None
    return value if isinstance(value, int | str) else None
