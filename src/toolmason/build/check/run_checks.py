"""Run every rule on the targets and combine the findings into one report."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from toolmason._wire import pause_garbage_collection
from toolmason.build.check.dynamic import ToolReport, check_loaded
from toolmason.build.check.find_files import PythonFile, Target
from toolmason.build.check.ignores import IgnoreComment, drop_ignored, find_unused, read_ignores
from toolmason.build.check.rules import RULES, UNREADABLE, UNUSED_IGNORE, Finding, Severity, SourceLocation
from toolmason.build.check.settings import CheckSettings
from toolmason.build.check.static.body_rules import check_body
from toolmason.build.check.static.declared import Kind
from toolmason.build.check.static.definition_rules import CheckedTool, check_definition, check_names
from toolmason.build.check.static.project import Project
from toolmason.build.check.static.safety_rules import check_safety
from toolmason.build.check.static.set_rules import check_sets
from toolmason.build.check.static.source_file import Source, read_source

Mode = Literal["auto", "static", "dynamic"]
"""Which targets to load: those with a name after a colon, none, or all."""


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a check."""

    findings: tuple[Finding, ...] = ()
    """Findings sorted by location, then code."""
    tools: tuple[ToolReport, ...] = ()
    """Tools of the loaded targets."""
    files: int = 0
    """Number of files read."""
    declared: tuple[tuple[SourceLocation, str, Kind], ...] = ()
    """Location, name and kind of each declared tool, prompt and resource."""

    def count_declared(self, kind: Kind) -> int:
        """Return the number of declared tools, prompts or resources."""
        return sum(each == kind for _, _, each in self.declared)

    def count(self, severity: Severity) -> int:
        """Return the number of findings of a severity."""
        return sum(finding.severity == severity for finding in self.findings)

    def has_failed(self, *, strict: bool = False) -> bool:
        """Return True if there are errors, or warnings in a strict check."""
        return bool(self.count("error") or (strict and self.count("warning")))


def check(targets: Sequence[Target], settings: CheckSettings, *, mode: Mode = "auto", strict: bool = False) -> Report:
    """Check targets; nothing is imported unless `mode` says that a target is loaded."""
    files = {file.path.resolve(): file for target in targets for file in target.files}
    with pause_garbage_collection(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the check reports neither odd escapes nor deprecated types
        static = _check_sources(files.values(), settings)
    findings = list(static.findings)
    loaded_targets = [target for target in targets if mode == "dynamic" or (mode == "auto" and target.name)]
    reports: list[ToolReport] = []
    for target in loaded_targets:
        tool_reports, found = check_loaded(target, settings, static.locations_by_line)
        reports += tool_reports
        findings += found
    visible = list(drop_ignored((found for found in findings if found.code in settings.codes), static.ignores))
    if strict and UNUSED_IGNORE in settings.codes:
        comments = [comment for file_ignores in static.ignores.values() for comment in file_ignores.values()]
        visible += find_unused(comments, {code for code in settings.codes if loaded_targets or not RULES[code].dynamic})
    unique = {(found.sort_key, found.severity): found for found in visible}
    ordered = sorted(unique.values(), key=lambda found: found.sort_key)
    tools = sorted(set(reports), key=lambda report: (report.name, report.location))
    return Report(tuple(ordered), tuple(tools), len(files), static.declared)


@dataclass(frozen=True, slots=True)
class _StaticResult:
    """Result of the static rules; holds no syntax trees."""

    findings: list[Finding]
    declared: tuple[tuple[SourceLocation, str, Kind], ...]
    locations_by_line: dict[tuple[str, int], SourceLocation]
    ignores: dict[str, dict[int, IgnoreComment]]


def _check_sources(files: Iterable[PythonFile], settings: CheckSettings) -> _StaticResult:
    read = [read_source(file.path, file.display_path, file.module) for file in files]
    sources = [source for source in read if isinstance(source, Source)]
    project = Project(sources)
    tools = [CheckedTool(project, declared) for declared in project.list_declarations()]
    findings = [found for found in read if isinstance(found, Finding)]
    findings += [*project.unreadable, *_check_statically(project, tools, settings)]
    declarations = [tool.declaration for tool in tools]
    found: list[tuple[SourceLocation, str, Kind]] = [
        (each.location, each.display_name, each.kind) for each in declarations
    ]
    declared = sorted(found)
    ignores = {source.path: read_ignores(source.text, source.path) for source in sources}
    return _StaticResult(findings, tuple(declared), _index_by_line(tools), ignores)


def _check_statically(project: Project, tools: Sequence[CheckedTool], settings: CheckSettings) -> Iterator[Finding]:
    has_approver = any(
        keyword.arg in ("approve", "approver")
        for file in project.files
        for box in file.toolbox_calls
        for keyword in box.keywords
    )
    for tool in tools:
        if tool.declaration.kind == "resource":
            continue  # the rules are about definitions that a model reads
        try:
            findings = [
                *check_definition(tool),
                *check_names(tool, settings.max_description),
                *check_safety(tool, has_approver=has_approver),
                *check_body(tool),
            ]
        except RecursionError:
            message = f"{tool.declaration.display_name!r} is nested too deeply to check"
            findings = [tool.make_finding(UNREADABLE, tool.declaration.location, message)]
        for found in findings:
            if found.code != "TM101":
                yield found
            elif settings.require_descriptions != "off":
                yield replace(found, severity=settings.require_descriptions)
    yield from check_sets(project, experimental=settings.experimental)


def _index_by_line(tools: Sequence[CheckedTool]) -> dict[tuple[str, int], SourceLocation]:
    """Return name locations by file and first line, the position that a loaded function reports."""
    lines: dict[tuple[str, int], SourceLocation] = {}
    for tool in tools:
        node = tool.declaration.node
        if node is not None:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            lines[tool.declaration.file.source.path, first] = tool.declaration.location
    return lines
