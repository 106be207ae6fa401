"""A target that is loaded → what its definitions cost and what providers make of them.

Lives here: the dynamic rules. This is the only part of a check that imports what it checks.
Not here: the limits of providers (`portability`), reading source.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from toolmason._core.catalog.discovery import has_members, load_target
from toolmason._core.define.signature import inner_function
from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason.build.check.find_files import PythonFile, Target, shown_path
from toolmason.build.check.portability import Verdict, verdicts_on
from toolmason.build.check.provider_limits import tokens_of
from toolmason.build.check.rules import NOT_LOADED, Finding, Place, finding
from toolmason.build.check.settings import CheckSettings
from toolmason.errors import ConfigError

Lines = Mapping[tuple[str, int], Place]
"""(file, first line of a function) → where its name stands."""


@dataclass(frozen=True, slots=True)
class ToolReport:
    """What one built tool costs, and what providers make of it."""

    name: str
    place: Place
    tokens: int
    verdicts: tuple[Verdict, ...]


def check_loaded(target: Target, settings: CheckSettings, lines: Lines) -> tuple[list[ToolReport], list[Finding]]:
    """Load a target and look at what it holds.

    Raises:
        ConfigError: what stands after the colon is not there.
    """
    try:
        # What a module prints while it is loaded must not end up in the middle of JSON.
        with redirect_stdout(sys.stderr):
            found, missing = _looked_up(target)
            tools = [] if missing else list(_tools_of(target, found))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - loading runs foreign code: whatever it raises is what is found
        words = str(error) or type(error).__name__
        told = words.startswith((repr(target.text), repr(_place(target))))
        message = words if told else f"{target.text!r}: {words}"
        return [], [finding(NOT_LOADED, Place(target.files[0].shown), message)]
    if missing:
        raise ConfigError(f"{target.text!r}: {_place(target)!r} has no {missing!r}. Check the name after the colon.")
    names = [tool.name for tool in tools]
    reports = [_report(tool, target, lines, names) for tool in tools]
    findings = [item for report in reports for item in _judge(report, settings)]
    total = sum(report.tokens for report in reports)
    if settings.budget is not None and total > settings.budget:
        message = (
            f"the {len(reports)} tools of {target.text!r} take about {total:,} tokens; {settings.budget:,} are the most"
        )
        findings.append(finding("TM401", Place(target.files[0].shown), message))
    return reports, findings


def _place(target: Target) -> str:
    return target.text.removesuffix(f":{target.name}") if target.name else target.text


def _looked_up(target: Target) -> tuple[Any, str]:
    """Load what a target names; the part of the name that is not there, where there is one."""
    if not target.name:
        return None, ""
    found = load_target(_place(target))
    for part in target.name.split("."):
        if not hasattr(found, part):
            return None, part
        found = getattr(found, part)
    return found, ""


def _tools_of(target: Target, found: Any) -> Iterator[Tool]:
    if target.name:
        yield from _box(found).tools
        return
    seen: set[int] = set()
    for file in target.files:
        module = _module(file)
        if not has_members(module, "tool"):
            continue
        for tool in Toolbox(module).tools:
            origin = getattr(tool, "fn", tool)
            if id(origin) not in seen:
                seen.add(id(origin))
                yield tool


def _box(found: Any) -> Toolbox:
    if isinstance(found, Toolbox):
        return found
    return Toolbox(found)


def _module(file: PythonFile) -> ModuleType:
    if "." not in file.module and file.path.name != "__init__.py":
        found: ModuleType = load_target(str(file.path))
        return found
    root = file.path.resolve().parents[len(file.module.split(".")) - (file.path.name != "__init__.py")]
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(file.module)


def _report(tool: Tool, target: Target, lines: Lines, names: Sequence[str]) -> ToolReport:
    code = getattr(inner_function(getattr(tool, "fn", getattr(tool, "handler", None))), "__code__", None)
    if code is None:
        place = Place(target.files[0].shown)
    else:
        path = shown_path(Path(code.co_filename))
        place = lines.get((path, code.co_firstlineno), Place(path, code.co_firstlineno))
    return ToolReport(tool.name, place, tokens_of(tool.definition), tuple(verdicts_on(tool.definition, names)))


def _judge(report: ToolReport, settings: CheckSettings) -> Iterator[Finding]:
    def say(code: str, message: str) -> Finding:
        return finding(code, report.place, message, tool=report.name, owner=report.place.line)

    if settings.tool_budget is not None and report.tokens > settings.tool_budget:
        message = f"{report.name!r} takes about {report.tokens:,} tokens; {settings.tool_budget:,} are the most"
        yield say("TM402", message)
    for verdict in report.verdicts:
        if verdict.status == "rejected":
            yield say("TM204", f"{verdict.provider} rejects {report.name!r}: {'; '.join(verdict.reasons)}")
        elif verdict.status == "lossy":
            yield say("TM205", f"{verdict.provider} loses a part of {report.name!r}: {'; '.join(verdict.reasons)}")
    loose = [verdict for verdict in report.verdicts if verdict.not_strict]
    if loose:
        why = "; ".join(f"{verdict.provider}: {verdict.not_strict}" for verdict in loose)
        found = say("TM206", f"{report.name!r} cannot be sent in strict mode ({why})")
        wanted = any(verdict.provider in settings.require_strict for verdict in loose)
        yield replace(found, severity="error") if wanted else found
