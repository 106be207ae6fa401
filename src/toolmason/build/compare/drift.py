"""A manifest on disk and the one that the source gives → what differs, in words.

Lives here: what `toolmason build --check` says. Not here: building (`manifest`), definitions (`diff`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolmason._core.load.manifest import Entry, Manifest, parse_manifest
from toolmason.build.compare.comparison import compare
from toolmason.build.compare.listing import listings_in
from toolmason.build.manifest.package_manifest import Built
from toolmason.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Drift:
    """One way in which a manifest is out of date."""

    name: str
    """A tool, prompt or module."""
    words: str

    def form(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"name": self.name, "words": self.words}


def drift_of(built: Built) -> list[Drift]:
    """Return how the file of a package differs from what its source gives; an empty list where it does not."""
    try:
        data = built.file.read_bytes()
    except OSError:
        return [Drift(built.file.name, "there is no manifest yet")]
    if data == built.data:
        return []
    try:
        old = parse_manifest(data, repr(str(built.file)))
        found = [*_tools(data, built, old), *_parts(old, parse_manifest(built.data, "the source"))]
    except ConfigError as error:
        return [Drift(built.file.name, str(error))]
    return found or [Drift(built.file.name, "is written in another way; what it says is the same")]


def _tools(data: bytes, built: Built, old: Manifest) -> Iterator[Drift]:
    now = parse_manifest(built.data, "the source")
    for tool in compare(listings_in(data, old.place), listings_in(built.data, now.place)):
        for change in tool.changes:
            if change.part != "effects":
                yield Drift(tool.name, _sentence(change.part, change.path, change.words))


def _sentence(part: str, path: str, words: str) -> str:
    return words if part in ("tool", "name") else f"{part}{f' {path}' if path else ''}: {words}"


def _parts(old: Manifest, new: Manifest) -> Iterator[Drift]:
    before, after = ({(e.kind, e.name): e for e in side.entries} for side in (old, new))
    for key in sorted(before.keys() & after.keys()):
        was, now = before[key], after[key]
        if was.path != now.path:
            yield Drift(was.name, f"is at {now.path} instead of {was.path}")
        yield from _options(was, now)
        if key[0] == "prompt" and _words_of(was.form) != _words_of(now.form):
            yield Drift(was.name, "the prompt changed")
    for kind, name in sorted(before.keys() ^ after.keys()):
        if kind == "prompt":
            yield Drift(name, "the prompt was added" if (kind, name) in after else "the prompt was removed")
    for module in sorted(old.modules.keys() | new.modules.keys()):
        if old.modules.get(module) != new.modules.get(module):
            yield Drift(module, "its source changed")
    if old.notes != new.notes:
        yield Drift(new.package, "what is not listed changed")


def _options(was: Entry, now: Entry) -> Iterator[Drift]:
    before, after = was.options, now.options
    for option in sorted(before.keys() | after.keys()):
        if before.get(option) != after.get(option):
            yield Drift(was.name, f"{option} is {_shown(after, option)} instead of {_shown(before, option)}")


def _words_of(form: dict[str, Any]) -> list[Any]:
    return [form.get(key) for key in ("description", "input_schema", "role")]


def _shown(options: dict[str, Any], name: str) -> str:
    return repr(options[name]) if name in options else "not set"
