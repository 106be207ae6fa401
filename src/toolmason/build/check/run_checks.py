"""Targets and settings → one report: every rule, ignore comments, order.

Lives here: the composition of a check. Not here: any rule, or any output (`report`, `sarif`).
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal

from toolmason.build.check.dynamic import ToolReport, check_loaded
from toolmason.build.check.find_files import PythonFile, Target
from toolmason.build.check.ignores import Ignore, read_ignores, unused, without_ignored
from toolmason.build.check.rules import RULES, UNREADABLE, Finding, Place, Severity
from toolmason.build.check.settings import CheckSettings
from toolmason.build.check.static.definition_rules import Look, check_definition, check_names
from toolmason.build.check.static.project import Project
from toolmason.build.check.static.safety_rules import check_safety
from toolmason.build.check.static.set_rules import check_sets
from toolmason.build.check.static.source_file import Source, read_source

Mode = Literal["auto", "static", "dynamic"]
"""Whether targets are loaded: those with a name after a colon, none, or all."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found."""

    findings: tuple[Finding, ...] = ()
    """Sorted by place, then by code."""
    tools: tuple[ToolReport, ...] = ()
    """The tools of the targets that were loaded."""
    files: int = 0
    """How many files were read."""
    declared: tuple[tuple[Place, str], ...] = ()
    """The tools and prompts that were found in them: place and name."""

    def count(self, severity: Severity) -> int:
        """Return how many findings are this grave."""
        return sum(found.severity == severity for found in self.findings)

    def failed(self, *, strict: bool = False) -> bool:
        """Tell whether the check failed: on errors, and on warnings where it is strict."""
        return bool(self.count("error") or (strict and self.count("warning")))


def check(targets: Sequence[Target], settings: CheckSettings, *, mode: Mode = "auto", strict: bool = False) -> Report:
    """Check what targets mean; nothing is imported unless a target is to be loaded."""
    files = {file.path.resolve(): file for target in targets for file in target.files}
    with _uncollected():
        read = _read_all(files.values(), settings)
    findings = list(read.findings)
    chosen = [target for target in targets if mode == "dynamic" or (mode == "auto" and target.name)]
    reports: list[ToolReport] = []
    for target in chosen:
        seen, found = check_loaded(target, settings, read.lines)
        reports += seen
        findings += found
    kept = list(without_ignored((found for found in findings if found.code in settings.codes), read.ignores))
    if strict:
        kept += _unused(read.ignores, settings, loaded=bool(chosen))
    unique = {(found.order, found.severity): found for found in kept}
    ordered = sorted(unique.values(), key=lambda found: found.order)
    return Report(tuple(ordered), _once(reports), len(files), read.declared)


@dataclass(frozen=True, slots=True)
class _Read:
    """What the source alone tells; no syntax tree is kept."""

    findings: list[Finding]
    declared: tuple[tuple[Place, str], ...]
    lines: dict[tuple[str, int], Place]
    ignores: dict[str, dict[int, Ignore]]


def _read_all(files: Iterable[PythonFile], settings: CheckSettings) -> _Read:
    sources, findings = _read(files)
    project = Project(sources)
    looks = [Look(project, declared) for declared in project.declarations()]
    findings += project.broken
    findings += _static(project, looks, settings)
    declared = sorted((look.declared.place, look.declared.shown) for look in looks)
    ignores = {source.path: read_ignores(source.text, source.lines, source.path) for source in sources}
    return _Read(findings, tuple(declared), _lines(looks), ignores)


@contextmanager
def _uncollected() -> Generator[None, None, None]:
    # Trees are millions of small objects without rings: looking for rings in them takes longer than parsing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def _read(files: Iterable[PythonFile]) -> tuple[list[Source], list[Finding]]:
    sources: list[Source] = []
    broken: list[Finding] = []
    for file in files:
        read = read_source(file.path, file.shown, file.module)
        if isinstance(read, Source):
            sources.append(read)
        else:
            broken.append(read)
    return sources, broken


def _static(project: Project, looks: Sequence[Look], settings: CheckSettings) -> Iterator[Finding]:
    gated = any(
        word.arg in ("approve", "approver") for facts in project.files for box in facts.boxes for word in box.keywords
    )
    for look in looks:
        try:
            found = [
                *check_definition(look),
                *check_names(look, settings.max_description),
                *check_safety(look, gated=gated),
            ]
        except RecursionError:
            found = [
                look.say(UNREADABLE, look.declared.place, f"{look.declared.shown!r} is nested too deeply to be checked")
            ]
        if settings.require_descriptions == "off":
            found = [item for item in found if item.code != "TM101"]
        graver = settings.require_descriptions == "error"
        yield from (replace(item, severity="error") if graver and item.code == "TM101" else item for item in found)
    yield from check_sets(project, experimental=settings.experimental)


def _lines(looks: Sequence[Look]) -> dict[tuple[str, int], Place]:
    """Return where tools are named, by file and first line, which is what a loaded function knows."""
    lines: dict[tuple[str, int], Place] = {}
    for look in looks:
        node = look.declared.node
        if node is not None:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            lines[look.declared.source.path, first] = look.declared.place
    return lines


def _unused(ignores: dict[str, dict[int, Ignore]], settings: CheckSettings, *, loaded: bool) -> Iterator[Finding]:
    if "TM199" not in settings.codes:
        return
    judged = frozenset(code for code in settings.codes if loaded or not RULES[code].dynamic)
    marks = [mark for own in ignores.values() for mark in own.values()]
    yield from unused(marks, judged)


def _once(reports: Iterable[ToolReport]) -> tuple[ToolReport, ...]:
    return tuple(sorted(dict.fromkeys(reports), key=lambda report: (report.name, report.place)))
