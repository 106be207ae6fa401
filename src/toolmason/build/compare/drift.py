"""Describe how the manifest on disk differs from the one built from source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolmason._core.load.manifest import Manifest, ManifestEntry, parse_manifest
from toolmason.build.compare.comparison import compare
from toolmason.build.compare.listing import parse_listings
from toolmason.build.manifest.package_manifest import ManifestFile
from toolmason.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference between a manifest and the source."""

    name: str
    """Name of a tool, prompt or module."""
    message: str

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as JSON data."""
        return {"name": self.name, "text": self.message}


def find_drift(built: ManifestFile) -> list[Drift]:
    """Return the differences between the manifest on disk and the built one, or an empty list if they are equal."""
    try:
        data = built.path.read_bytes()
    except OSError:
        return [Drift(built.path.name, "the manifest does not exist yet")]
    if data == built.data:
        return []
    try:
        old = parse_manifest(data, repr(str(built.path)))
        drift = [*_compare_tools(data, built, old), *_compare_entries(old, parse_manifest(built.data, "the source"))]
    except ConfigError as error:
        return [Drift(built.path.name, str(error))]
    return drift or [Drift(built.path.name, "formatted differently, with the same content")]


def _compare_tools(data: bytes, built: ManifestFile, old: Manifest) -> Iterator[Drift]:
    for tool in compare(parse_listings(data, old.place), parse_listings(built.data, "the source")):
        for change in tool.changes:
            if change.part != "effects":
                place = "" if change.part in ("tool", "name") else f"{f'{change.part} {change.path}'.rstrip()}: "
                yield Drift(tool.name, f"{place}{change.message}")


def _compare_entries(old: Manifest, new: Manifest) -> Iterator[Drift]:
    before, after = ({(entry.kind, entry.name): entry for entry in side.entries} for side in (old, new))
    for key in sorted(before.keys() & after.keys()):
        before_entry, after_entry = before[key], after[key]
        if before_entry.path != after_entry.path:
            yield Drift(before_entry.name, f"moved from {before_entry.path} to {after_entry.path}")
        yield from _compare_options(before_entry, after_entry)
        if key[0] == "prompt" and _get_prompt_fields(before_entry.data) != _get_prompt_fields(after_entry.data):
            yield Drift(before_entry.name, "prompt changed")
    for kind, name in sorted(before.keys() ^ after.keys()):
        if kind == "prompt":
            yield Drift(name, "prompt added" if (kind, name) in after else "prompt removed")
    yield from _compare_modules(old, new)


def _compare_modules(old: Manifest, new: Manifest) -> Iterator[Drift]:
    for module in sorted(old.modules.keys() | new.modules.keys()):
        if old.modules.get(module) != new.modules.get(module):
            yield Drift(module, "source changed")
    for path in sorted(old.classes.keys() | new.classes.keys()):
        if old.classes.get(path) != new.classes.get(path):
            yield Drift(path, "constructor arguments changed")
    if old.notes != new.notes:
        yield Drift(new.package, "notes changed")


def _compare_options(before_entry: ManifestEntry, after_entry: ManifestEntry) -> Iterator[Drift]:
    before, after = before_entry.options, after_entry.options
    for option in sorted(before.keys() | after.keys()):
        if before.get(option) != after.get(option):
            yield Drift(
                before_entry.name,
                f"{option} changed from {_format_option(before, option)} to {_format_option(after, option)}",
            )


def _get_prompt_fields(data: dict[str, Any]) -> list[Any]:
    return [data.get(key) for key in ("description", "input_schema", "role")]


def _format_option(options: dict[str, Any], name: str) -> str:
    return repr(options[name]) if name in options else "unset"
