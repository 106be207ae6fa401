"""Compare two lists of tools and classify each change as breaking or compatible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from toolmason.build.compare.listing import Listing
from toolmason.build.compare.schema_diff import Side, compare_schemas
from toolmason.errors import clip

MAX_SHOWN_TEXT: Final = 2000
"""Maximum characters of a description in a change."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change in a tool."""

    part: Literal["tool", "name", "title", "description", "input", "output", "effects", "wire"]
    path: str
    """JSON path in the schema; empty for other parts."""
    message: str
    breaking: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON data."""
        return {"part": self.part, "path": self.path, "text": self.message, "breaking": self.breaking}


@dataclass(frozen=True, slots=True)
class ToolDiff:
    """All changes in one tool."""

    name: str
    status: Literal["added", "removed", "changed"]
    changes: tuple[Change, ...]

    @property
    def breaking(self) -> bool:
        """True if callers or readers of the output must be adapted."""
        return any(change.breaking for change in self.changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the diff as JSON data."""
        parts = [change.to_dict() for change in self.changes]
        return {"tool": self.name, "status": self.status, "breaking": self.breaking, "changes": parts}


def compare(old: Mapping[str, Listing], new: Mapping[str, Listing]) -> list[ToolDiff]:
    """Return the differences between two lists of tools, sorted by name; unchanged tools are omitted."""
    removed, added = old.keys() - new.keys(), new.keys() - old.keys()
    renamed = _find_case_renames(removed, added)
    diffs: list[ToolDiff] = []
    for name in sorted(old.keys() | (added - set(renamed.values()))):
        if name in renamed:
            other = renamed[name]
            message = f"renamed to {other!r}; only the case differs"
            changes = (Change("name", "", message, breaking=True), *_find_changes(old[name], new[other]))
            diffs.append(ToolDiff(name, "changed", changes))
        elif name not in new:
            diffs.append(ToolDiff(name, "removed", (Change("tool", "", "removed", breaking=True),)))
        elif name not in old:
            diffs.append(ToolDiff(name, "added", (Change("tool", "", "added", breaking=False),)))
        elif changes := tuple(_find_changes(old[name], new[name])):
            diffs.append(ToolDiff(name, "changed", changes))
    return diffs


def _find_case_renames(removed: set[str], added: set[str]) -> dict[str, str]:
    """Return the old and new names of tools renamed only in case, if the pairing is unambiguous."""
    before: dict[str, list[str]] = {}
    after: dict[str, list[str]] = {}
    for names, folded in ((removed, before), (added, after)):
        for name in names:
            folded.setdefault(name.casefold(), []).append(name)
    pairs = ((before[key], after.get(key, [])) for key in before)
    return {old[0]: new[0] for old, new in pairs if len(old) == len(new) == 1}


def _find_changes(old: Listing, new: Listing) -> Iterator[Change]:
    before, after = old.definition, new.definition
    if old.wire is not None and old.wire != (new.wire or {}):
        keys = sorted(key for key in {*old.wire, *(new.wire or {})} if old.wire.get(key) != (new.wire or {}).get(key))
        yield Change("wire", "", f"{', '.join(keys)} changed", breaking=False)
    if old.digest == new.digest:
        yield from _compare_effects(old.effects, new.effects)
        return
    if before.description != after.description:
        # Both in full, up to a bound: a reviewer must have seen the description that is approved.
        shown = [repr(clip(text, MAX_SHOWN_TEXT)) for text in (before.description, after.description)]
        yield Change("description", "", f"changed from {shown[0]} to {shown[1]}", breaking=False)
    if before.title != after.title:
        yield Change("title", "", f"changed from {before.title!r} to {after.title!r}", breaking=False)
    yield from _compare_schema("input", before.input_schema, after.input_schema)
    if before.output_schema is None or after.output_schema is None:
        if before.output_schema is not None:
            yield Change("output", "$", "schema removed", breaking=True)
        elif after.output_schema is not None:
            yield Change("output", "$", "schema added", breaking=False)
    else:
        yield from _compare_schema("output", before.output_schema, after.output_schema)
    yield from _compare_effects(old.effects, new.effects)


def _compare_schema(side: Side, old: Any, new: Any) -> Iterator[Change]:
    for difference in compare_schemas(old, new):
        yield Change(side, difference.path, difference.message, difference.breaks(side))


_SAFE_EFFECTS = {"read_only": True, "idempotent": True, "destructive": False, "open_world": False}
"""For each effect, the value that lets a caller do more, such as calling without approval or retrying."""


def _compare_effects(old: Mapping[str, bool], new: Mapping[str, bool]) -> Iterator[Change]:
    for name, safe in _SAFE_EFFECTS.items():
        before, after = old.get(name), new.get(name)
        if before is after:
            continue
        # Revoking a safe value breaks callers that rely on it; declaring a new danger breaks every caller.
        message = f"{name} changed from {_format_effect(before)} to {_format_effect(after)}"
        yield Change("effects", "", message, breaking=before is safe or (after is True and not safe))


def _format_effect(effect: bool | None) -> str:  # noqa: FBT001 - an effect is True, False or None
    return "unset" if effect is None else str(effect).lower()
