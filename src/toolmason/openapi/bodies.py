"""Write the body of a request: JSON, a form, files, text or bytes."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from toolmason._core.values.definition import JsonSchema
from toolmason.openapi.document import ApiDocument, UnusablePart
from toolmason.openapi.operation import ApiBody
from toolmason.openapi.styles import ApiParameter, encode, refuse, to_text, write_pairs

_FILE: JsonSchema = {"type": "string", "contentEncoding": "base64", "description": "The bytes of a file, as base64."}


def find_files(document: ApiDocument, body: ApiBody) -> frozenset[str]:
    """Return the fields of a form with files that hold bytes, and `*` if the whole body does."""
    if body.kind == "binary":
        return frozenset({"*"})
    if body.kind != "multipart":
        return frozenset()
    schema = document.resolve(body.schema, "the schema of its request body")
    properties = schema.get("properties")
    found: set[str] = set()
    for name, part in properties.items() if isinstance(properties, Mapping) else ():
        try:
            node = document.resolve(part, "a field")
            items = document.resolve(node.get("items", {}), "the items of a field")
        except UnusablePart:
            continue
        if _is_file(node) or _is_file(items):
            found.add(str(name))
    return frozenset(found)


def _is_file(node: Mapping[str, Any]) -> bool:
    is_binary = node.get("format") == "binary" or node.get("contentMediaType") == "application/octet-stream"
    return is_binary or ("contentMediaType" in node and "contentEncoding" not in node)


def describe_body(body: ApiBody, schema: JsonSchema, files: frozenset[str]) -> JsonSchema:
    """Return the schema of a body as the model writes it: files are base64 text, and XML is text."""
    if body.kind == "text" and schema.get("type") != "string":
        return {"type": "string", "description": f"The body, as {body.media_type}."}
    if "*" in files:
        return dict(_FILE)
    if not files:
        return schema
    properties = dict(schema.get("properties", {}))
    for name in files & properties.keys():
        is_list = properties[name].get("type") == "array"
        properties[name] = {"type": "array", "items": _FILE} if is_list else _FILE
    return {**schema, "properties": properties}


def write_body(body: ApiBody, key: str, files: frozenset[str], value: Any) -> tuple[bytes, str]:
    """Return the bytes of a body and their content type.

    Raises:
        InvalidArguments: the value does not have the form that the media type needs.
    """
    if body.kind == "json":
        return to_json(value, inf_nan_mode="null"), body.media_type
    if body.kind == "text":
        return to_text(value).encode("utf-8", "replace"), f"{body.media_type.partition(';')[0]}; charset=utf-8"
    if body.kind == "binary":
        return _decode(key, value), body.media_type
    if not isinstance(value, Mapping):
        raise refuse(key, "must be an object, because it is sent as a form", "object", value)
    if body.kind == "form":
        pairs = (
            pair
            for name, item in value.items()
            if item is not None
            for pair in write_pairs(_get_encoding(body, key, str(name)), item)
        )
        return "&".join(f"{name}={text}" for name, text in pairs).encode(), body.media_type
    return _write_multipart(key, files, value)


def _get_encoding(body: ApiBody, key: str, name: str) -> ApiParameter:
    """Return how a field of a form is written: as the document says, else as a form."""
    given = body.encoding.get(name)
    rules = given if isinstance(given, Mapping) else {}
    style = rules.get("style", "form")
    return ApiParameter(
        name=name,
        location="query",
        key=f"{key}.{name}",
        style=style,
        explode=bool(rules.get("explode", style == "form")),
        is_json="json" in str(rules.get("contentType", "")),
    )


def _write_multipart(key: str, files: frozenset[str], value: Mapping[str, Any]) -> tuple[bytes, str]:
    boundary = secrets.token_hex(16)
    parts: list[bytes] = []
    for name, given in value.items():
        for item in given if isinstance(given, list) else [given]:
            if item is None:
                continue
            head = f'Content-Disposition: form-data; name="{encode(str(name), " ")}"'
            if name in files:
                head += f'; filename="{encode(str(name))}"\r\nContent-Type: application/octet-stream'
                data = _decode(f"{key}.{name}", item)
            elif isinstance(item, Mapping | list):
                head, data = f"{head}\r\nContent-Type: application/json", to_json(item)
            else:
                data = to_text(item).encode("utf-8", "replace")
            parts.append(f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n")
    return b"".join(parts) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def _decode(key: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise refuse(key, "must be base64, because it is sent as bytes", "base64 text", value) from None
