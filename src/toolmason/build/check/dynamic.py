"""Load a target and report token costs and provider support of its tools."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from toolmason._core.catalog.discovery import has_members, load_target
from toolmason._core.define.signature import unwrap_function
from toolmason._core.define.tool import Tool
from toolmason._core.toolbox.toolbox import Toolbox
from toolmason._text import pluralize
from toolmason.build.check.find_files import PythonFile, Target, format_path
from toolmason.build.check.portability import NO_STRICT_FORM, ProviderVerdict, check_providers
from toolmason.build.check.provider_limits import estimate_tokens
from toolmason.build.check.rules import NOT_LOADED, Finding, SourceLocation, make_finding
from toolmason.build.check.settings import CheckSettings
from toolmason.errors import ConfigError

LocationsByLine = Mapping[tuple[str, int], SourceLocation]
"""Location of a function's name, by file and first line."""


@dataclass(frozen=True, slots=True)
class ToolReport:
    """Token cost and provider support of one tool."""

    name: str
    location: SourceLocation
    tokens: int
    verdicts: tuple[ProviderVerdict, ...]


def check_loaded(
    target: Target, settings: CheckSettings, locations: LocationsByLine
) -> tuple[list[ToolReport], list[Finding]]:
    """Load a target and check its tools.

    Raises:
        ConfigError: the name after the colon does not exist.
    """
    try:
        # Output of the loaded module must not end up inside JSON.
        with redirect_stdout(sys.stderr):
            found, missing = _load(target)
            tools = [] if missing else list(_find_tools(target, found))
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # noqa: BLE001 - loading runs the user's code, which may raise anything
        text = str(error) or type(error).__name__
        names_target = text.startswith((repr(target.text), repr(_get_module_part(target))))
        message = text if names_target else f"{target.text!r}: {text}"
        return [], [make_finding(NOT_LOADED, SourceLocation(target.files[0].display_path), message)]
    if missing:
        raise ConfigError(
            f"{target.text!r}: {_get_module_part(target)!r} has no {missing!r}. Check the name after the colon."
        )
    reports, findings = check_tools(tools, settings, lambda tool: _locate(tool, target, locations))
    total = sum(report.tokens for report in reports)
    if settings.budget is not None and total > settings.budget:
        verb = "takes" if len(reports) == 1 else "take"
        needed = f"{pluralize(len(reports), 'tool')} of {target.text!r} {verb} about {pluralize(total, 'token')}"
        message = f"{needed}; the budget is {settings.budget:,}"
        findings.append(make_finding("TM401", SourceLocation(target.files[0].display_path), message))
    return reports, findings


def check_tools(
    tools: Sequence[Tool], settings: CheckSettings, locate: Callable[[Tool], SourceLocation]
) -> tuple[list[ToolReport], list[Finding]]:
    """Report the token costs of tools, and find what providers refuse in them."""
    names = [tool.name for tool in tools]
    reports = [
        ToolReport(
            tool.name, locate(tool), estimate_tokens(tool.definition), tuple(check_providers(tool.definition, names))
        )
        for tool in tools
    ]
    return reports, [item for report in reports for item in _check_report(report, settings)]


def _get_module_part(target: Target) -> str:
    return target.text.removesuffix(f":{target.name}") if target.name else target.text


def _load(target: Target) -> tuple[Any, str]:
    """Return the object that a target names, and the first part of the name that does not exist."""
    if not target.name:
        return None, ""
    found = load_target(_get_module_part(target))
    for part in target.name.split("."):
        if not hasattr(found, part):
            return None, part
        found = getattr(found, part)
    return found, ""


def _find_tools(target: Target, found: Any) -> Iterator[Tool]:
    if target.name:
        yield from (found if isinstance(found, Toolbox) else Toolbox(found)).tools
        return
    seen: set[int] = set()
    for file in target.files:
        module = _import_file(file)
        if not has_members(module, "tool"):
            continue
        for tool in Toolbox(module).tools:
            function = getattr(tool, "fn", tool)
            if id(function) not in seen:
                seen.add(id(function))
                yield tool


def _import_file(file: PythonFile) -> ModuleType:
    if "." not in file.module and file.path.name != "__init__.py":
        found: ModuleType = load_target(str(file.path))
        return found
    root = file.path.resolve().parents[len(file.module.split(".")) - (file.path.name != "__init__.py")]
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return importlib.import_module(file.module)


def _locate(tool: Tool, target: Target, locations: LocationsByLine) -> SourceLocation:
    code = getattr(unwrap_function(getattr(tool, "fn", getattr(tool, "handler", None))), "__code__", None)
    if code is None:
        return SourceLocation(target.files[0].display_path)
    path = format_path(Path(code.co_filename))
    return locations.get((path, code.co_firstlineno), SourceLocation(path, code.co_firstlineno))


def _check_report(report: ToolReport, settings: CheckSettings) -> Iterator[Finding]:
    def make_tool_finding(code: str, message: str, hint: str = "") -> Finding:
        return make_finding(code, report.location, message, tool=report.name, def_line=report.location.line, hint=hint)

    if settings.tool_budget is not None and report.tokens > settings.tool_budget:
        message = f"{report.name!r} takes about {report.tokens:,} tokens; the budget is {settings.tool_budget:,}"
        yield make_tool_finding("TM402", message)
    for verdict in report.verdicts:
        if verdict.status == "rejected":
            yield make_tool_finding(
                "TM204", f"{verdict.provider} rejects {report.name!r}: {'; '.join(verdict.reasons)}"
            )
        elif verdict.status == "lossy":
            yield make_tool_finding(
                "TM205", f"{verdict.provider} does not fully enforce {report.name!r}: {'; '.join(verdict.reasons)}"
            )
    not_strict = [verdict for verdict in report.verdicts if verdict.not_strict]
    if not_strict:
        why = "; ".join(f"{verdict.provider}: {verdict.not_strict}" for verdict in not_strict)
        is_closed = all(verdict.not_strict.endswith(NO_STRICT_FORM) for verdict in not_strict)
        hint = "State the constraint in the description instead of the type." if is_closed else ""
        strict_finding = make_tool_finding("TM206", f"{report.name!r} cannot be sent in strict mode ({why})", hint)
        is_required = any(verdict.provider in settings.require_strict for verdict in not_strict)
        yield replace(strict_finding, severity="error") if is_required else strict_finding
