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
    Form,
    definition_form,
    definition_from,
    effects_of,
    object_in,
    wire_of,
)
from toolmason._core.load.manifest import FORMAT as MANIFEST
from toolmason._core.load.manifest import parse_manifest
from toolmason._core.values.definition import ToolDefinition, canonical
from toolmason.errors import ConfigError, clip

LOCK = "toolmason-lock"
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

    def form(self) -> Form:
        """Return it as JSON, its digest first."""
        return {
            "digest": self.digest,
            "effects": dict(sorted(self.effects.items())),
            **definition_form(self.definition),
            **({} if self.wire is None else {"wire": canonical(self.wire)}),
        }


Listings: TypeAlias = dict[str, Listing]
"""Tools by name."""


def listings_of(tools: Iterable[Tool]) -> Listings:
    """Return the listings of tools, by name."""
    return {tool.name: Listing(tool.definition, effects_of(tool.options), wire_of(tool)) for tool in tools}


def listing_from(form: Mapping[str, Any], place: str) -> Listing:
    """Return the listing that a form describes.

    Raises:
        ConfigError: it is damaged, or its digest is not that of its definition.
    """
    definition = definition_from(form, place)
    effects = object_in({"effects": {}, **form}, "effects", place)
    if wrong := [name for name, value in effects.items() if name not in EFFECTS or not isinstance(value, bool)]:
        raise ConfigError(f"{place}: the effect {clip(wrong[0])!r} of tool {clip(definition.name)!r} is none.")
    if form.get("digest", definition.digest) != definition.digest:
        raise ConfigError(
            f"{place}: the digest of tool {clip(definition.name)!r} is not that of its definition. "
            "The file was edited. Write it again with `toolmason lock`."
        )
    return Listing(definition, effects, object_in(form, "wire", place) if "wire" in form else None)


def parsed(text: bytes, place: str) -> Form:
    """Return a file of ours as JSON.

    Raises:
        ConfigError: it is not JSON, or neither a manifest nor a lock.
    """
    try:
        form = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise ConfigError(f"{place} is not JSON: {error}.") from error
    if not isinstance(form, dict) or form.get("format") not in (MANIFEST, LOCK):
        raise ConfigError(f"{place} is neither a manifest nor a lock. Give a file that `toolmason` wrote.")
    return form


def listings_in(text: bytes, place: str) -> Listings:
    """Return the tools that a manifest or a lock lists.

    Raises:
        ConfigError: it is neither, or it is damaged.
    """
    form = parsed(text, place)
    if form["format"] == LOCK:
        return tools_in(object_in({"tools": {}, **form}, "tools", place), place)
    manifest = parse_manifest(text, place)
    found: Listings = {}
    for entry in manifest.entries:
        if entry.kind == "tool":
            effects = {name: entry.options[name] for name in EFFECTS if isinstance(entry.options.get(name), bool)}
            if entry.name in found:
                raise ConfigError(f"{place} lists two tools named {clip(entry.name)!r}. Build the file again.")
            found[entry.name] = Listing(definition_from(entry.form, place), effects)
    return found


def tools_in(forms: Mapping[str, Any], place: str) -> Listings:
    """Return the tools of one part of a lock.

    Raises:
        ConfigError: it is damaged.
    """
    return {name: listing_from({**object_in(forms, name, place), "name": name}, place) for name in forms}
