"""Convert toolboxes, manifests and locks to listings, the form in which tools are compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic_core import from_json

from toolmason._core.define.tool import Tool
from toolmason._core.load.json_forms import (
    EFFECTS,
    JsonObject,
    check_schemas,
    dump_definition,
    get_effects,
    get_extra_wire_fields,
    get_object,
    load_definition,
)
from toolmason._core.load.manifest import MANIFEST_FORMAT as MANIFEST
from toolmason._core.load.manifest import parse_manifest
from toolmason._core.values.definition import ToolDefinition, canonicalize
from toolmason.errors import ConfigError, clip

LOCK_FORMAT = "toolmason-lock"
"""Value of `format` in a lock file."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A tool without its code: the definition that a model sees, and its declared effects."""

    definition: ToolDefinition
    effects: Mapping[str, bool] = field(default_factory=dict)
    wire: Mapping[str, Any] | None = None
    """Other fields of a remote server's tool definition; None for a local tool."""

    @property
    def digest(self) -> str:
        """Digest of the definition."""
        return self.definition.digest

    def to_dict(self) -> JsonObject:
        """Return the listing as JSON data, digest first."""
        return {
            "digest": self.digest,
            "effects": dict(sorted(self.effects.items())),
            **dump_definition(self.definition),
            **({} if self.wire is None else {"wire": canonicalize(self.wire)}),
        }


Listings: TypeAlias = dict[str, Listing]
"""Listings by tool name."""


def make_listing(tool: Tool) -> Listing:
    """Return the listing of a tool."""
    return Listing(tool.definition, get_effects(tool.options), get_extra_wire_fields(tool))


def listings_of(tools: Iterable[Tool]) -> Listings:
    """Return the listings of tools, by name."""
    return {tool.name: make_listing(tool) for tool in tools}


def format_listing(listing: Listing | None) -> str:
    """Return a listing as text that can be compared by lines, without its digest; empty for None."""
    data = {} if listing is None else {key: value for key, value in listing.to_dict().items() if key != "digest"}
    return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=True) if data else ""


def parse_listing(data: Mapping[str, Any], origin: str) -> Listing:
    """Parse a listing from its JSON data.

    Raises:
        ConfigError: the data is malformed, or the digest does not match the definition.
    """
    definition = check_schemas(load_definition(data, origin), origin)
    effects = get_object({"effects": {}, **data}, "effects", origin)
    if invalid := [name for name, value in effects.items() if name not in EFFECTS or not isinstance(value, bool)]:
        raise ConfigError(f"{origin}: invalid effect {clip(invalid[0])!r} of tool {clip(definition.name)!r}.")
    if data.get("digest", definition.digest) != definition.digest:
        raise ConfigError(
            f"{origin}: the digest of tool {clip(definition.name)!r} does not match its definition. "
            "The file was edited; write it again with `toolmason lock`."
        )
    return Listing(definition, effects, get_object(data, "wire", origin) if "wire" in data else None)


def parse_json_file(text: bytes, origin: str) -> JsonObject:
    """Parse the JSON of a manifest or a lock.

    Raises:
        ConfigError: the text is not JSON, or neither a manifest nor a lock.
    """
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ConfigError(
            f"{origin} is not valid JSON: {error}. Write it again with `toolmason build` or `toolmason lock`."
        ) from error
    if not isinstance(data, dict) or data.get("format") not in (MANIFEST, LOCK_FORMAT):
        raise ConfigError(
            f"{origin} is neither a manifest nor a lock. Use a file that `toolmason build` or `toolmason lock` wrote."
        )
    return data


def parse_listings(text: bytes, origin: str) -> Listings:
    """Parse the tools of a manifest or a lock.

    Raises:
        ConfigError: the file is neither a manifest nor a lock, or is malformed.
    """
    data = parse_json_file(text, origin)
    if data["format"] == LOCK_FORMAT:
        return parse_tools(get_object({"tools": {}, **data}, "tools", origin), origin)
    manifest = parse_manifest(text, origin)
    listings: Listings = {}
    for entry in manifest.entries:
        if entry.kind == "tool":
            effects = {name: entry.options[name] for name in EFFECTS if isinstance(entry.options.get(name), bool)}
            if entry.name in listings and manifest.needs_given_instance(entry):
                continue
            if entry.name in listings:
                raise ConfigError(f"{origin} lists two tools named {clip(entry.name)!r}. Rebuild the file.")
            listings[entry.name] = Listing(check_schemas(load_definition(entry.data, origin), origin), effects)
    return listings


def parse_tools(entries: Mapping[str, Any], origin: str) -> Listings:
    """Parse one table of tools from a lock.

    Raises:
        ConfigError: an entry is malformed.
    """
    return {name: parse_listing({**get_object(entries, name, origin), "name": name}, origin) for name in entries}
