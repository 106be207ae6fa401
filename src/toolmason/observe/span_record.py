"""Hold spans as plain data, and put them in the order of a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

MAX_SHOWN: Final = 5000
"""Maximum number of spans in one tree or page."""
_NOTED: Final = ("toolmason.server", "toolmason.approval.verdict", "toolmason.run.finish", "toolmason.effect.key")
"""Attributes that a line shows as they are."""


@dataclass(frozen=True, slots=True)
class SpanRecord:
    """One span that has ended."""

    name: str
    id: str
    parent: str | None
    """ID of the parent, which need not be among the recorded spans."""
    start: int
    """Nanoseconds since the epoch."""
    end: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    trace: str = ""
    """Trace ID."""
    links: tuple[str, ...] = ()
    """IDs of linked spans."""
    failed: bool = False
    kind: str = "internal"
    """`internal`, `client` or `server`."""

    @property
    def milliseconds(self) -> float:
        """Duration."""
        return (self.end - self.start) / 1e6

    @property
    def note(self) -> str:
        """The facts that matter most, as a short text: errors, tokens, attempts."""
        found = self.attributes
        words = ["server"] if self.kind == "server" else []
        if self.name == "execute_tool":  # of a tool that does not exist, so that its name is not one of few
            words.append(str(found.get("gen_ai.tool.name", "")))
        words += [str(found[name]) for name in _NOTED if name in found]
        words += map(str, found.get("gen_ai.response.finish_reasons", ()))
        if "gen_ai.usage.input_tokens" in found or "gen_ai.usage.output_tokens" in found:
            counts = [found.get(f"gen_ai.usage.{kind}_tokens", 0) for kind in ("input", "output")]
            words.append(f"{counts[0]:,} → {counts[1]:,} tokens")
        if "http.response.status_code" in found:
            words.append(str(found["http.response.status_code"]))
        if found.get("toolmason.effect.replayed"):
            words.append("from the journal")
        if "toolmason.attempts" in found:
            words.append(f"{found['toolmason.attempts']} attempts")
        if self.failed:
            words.append(f"✗ {found.get('error.type', 'failed')}")
        if self.links:
            words.append("continues another trace")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One span in its place in a tree."""

    span: SpanRecord
    lasts: tuple[bool, ...]
    """For each level from the root: True if the span on the way is the last of its siblings."""


def walk_tree(spans: Iterable[SpanRecord]) -> Iterator[TreeRow]:
    """Yield spans, parents before their children and siblings in the order in which they started."""
    shown = sorted(spans, key=lambda span: (span.start, span.end))[:MAX_SHOWN]
    known = {span.id for span in shown}
    children: dict[str | None, list[SpanRecord]] = {}
    for span in shown:
        children.setdefault(span.parent if span.parent in known else None, []).append(span)
    stack = [TreeRow(span, ()) for span in reversed(children.get(None, ()))]
    while stack:
        row = stack.pop()
        yield row
        below = children.pop(row.span.id, [])  # popped, so that a ring of forged parents ends
        stack += [TreeRow(span, (*row.lasts, span is below[-1])) for span in reversed(below)]
