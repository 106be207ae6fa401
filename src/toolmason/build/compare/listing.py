"""Toolboxes, manifests and locks → the one form in which lists of tools are compared.

Lives here: what is compared of a tool, and reading it from a file of either kind. Not here: comparing (`diff`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pydantic_core import from_json

from toolmason._core.define.tool import Tool
from toolmason._core.load.json_forms import (
    EFFECTS,
    JsonObject,
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
"""What a lock says it is."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What is known of a tool without its code: what a model sees, and the effects that it says."""

    definition: ToolDefinition
    effects: Mapping[str, bool] = field(default_factory=dict)
    wire: Mapping[str, Any] | None = None
    """What else the definition of a server's tool holds; `None` for a tool of our own, and in an older lock."""

    @property
    def digest(self) -> str:
        """The digest of its definition."""
        return self.definition.digest

    def to_dict(self) -> JsonObject:
        """Return it as JSON, its digest first."""
        return {
            "digest": self.digest,
            "effects": dict(sorted(self.effects.items())),
            **dump_definition(self.definition),
            **({} if self.wire is None else {"wire": canonicalize(self.wire)}),
        }


Listings: TypeAlias = dict[str, Listing]
"""Tools by name."""


def listings_of(tools: Iterable[Tool]) -> Listings:
    """Return the listings of tools, by name."""
    return {
        tool.name: Listing(tool.definition, get_effects(tool.options), get_extra_wire_fields(tool)) for tool in tools
    }


def parse_listing(data: Mapping[str, Any], origin: str) -> Listing:
    """Return the listing that a form describes.

    Raises:
        ConfigError: it is damaged, or its digest is not that of its definition.
    """
    definition = load_definition(data, origin)
    effects = get_object({"effects": {}, **data}, "effects", origin)
    if invalid := [name for name, value in effects.items() if name not in EFFECTS or not isinstance(value, bool)]:
        raise ConfigError(f"{origin}: the effect {clip(invalid[0])!r} of tool {clip(definition.name)!r} is none.")
    if data.get("digest", definition.digest) != definition.digest:
        raise ConfigError(
            f"{origin}: the digest of tool {clip(definition.name)!r} is not that of its definition. "
            "The file was edited. Write it again with `toolmason lock`."
        )
    return Listing(definition, effects, get_object(data, "wire", origin) if "wire" in data else None)


def parse_json_file(text: bytes, origin: str) -> JsonObject:
    """Return a file of ours as JSON.

    Raises:
        ConfigError: it is not JSON, or neither a manifest nor a lock.
    """
    try:
        data = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ConfigError(f"{origin} is not JSON: {error}.") from error
    if not isinstance(data, dict) or data.get("format") not in (MANIFEST, LOCK_FORMAT):
        raise ConfigError(f"{origin} is neither a manifest nor a lock. Give a file that `toolmason` wrote.")
    return data


def parse_listings(text: bytes, origin: str) -> Listings:
    """Return the tools that a manifest or a lock lists.

    Raises:
        ConfigError: it is neither, or it is damaged.
    """
    data = parse_json_file(text, origin)
    if data["format"] == LOCK_FORMAT:
        return parse_tools(get_object({"tools": {}, **data}, "tools", origin), origin)
    manifest = parse_manifest(text, origin)
    listings: Listings = {}
    for entry in manifest.entries:
        if entry.kind == "tool":
            effects = {name: entry.options[name] for name in EFFECTS if isinstance(entry.options.get(name), bool)}
            if entry.name in listings:
                raise ConfigError(f"{origin} lists two tools named {clip(entry.name)!r}. Build the file again.")
            listings[entry.name] = Listing(load_definition(entry.data, origin), effects)
    return listings


def parse_tools(entries: Mapping[str, Any], origin: str) -> Listings:
    """Return the tools of one part of a lock.

    Raises:
        ConfigError: it is damaged.
    """
    return {name: parse_listing({**get_object(entries, name, origin), "name": name}, origin) for name in entries}
