"""Format a report as text, JSON or SARIF; the output is deterministic."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from toolmason._text import DOCUMENTATION, pluralize
from toolmason.build.check.dynamic import ToolReport
from toolmason.build.check.portability import ProviderVerdict
from toolmason.build.check.rules import RULES, Finding, Rule
from toolmason.build.check.run_checks import Report
from toolmason.build.check.static.declared import Kind


def format_json(report: Report) -> str:
    """Return a report as JSON; the fields are stable."""
    entry = {
        "findings": [_make_finding_entry(found) for found in report.findings],
        "tools": [_make_tool_entry(tool) for tool in report.tools],
        "summary": {
            "files": report.files,
            "tools": report.count_declared("tool"),
            "prompts": report.count_declared("prompt"),
            "resources": report.count_declared("resource"),
            "errors": report.count("error"),
            "warnings": report.count("warning"),
            "notes": report.count("note"),
            "tokens": sum(tool.tokens for tool in report.tools),
        },
    }
    return json.dumps(entry, indent=2)


def _make_finding_entry(finding: Finding) -> dict[str, object]:
    return {
        "code": finding.code,
        "name": RULES[finding.code].name,
        "severity": finding.severity,
        "message": finding.message,
        "path": finding.location.path,
        "line": finding.location.line,
        "column": finding.location.column,
        "tool": finding.tool or None,
        "hint": finding.hint,
        "page": RULES[finding.code].page,
    }


def _make_tool_entry(tool: ToolReport) -> dict[str, object]:
    return {
        "name": tool.name,
        "path": tool.location.path,
        "line": tool.location.line,
        "tokens": tool.tokens,
        "providers": {verdict.provider: _make_verdict_entry(verdict) for verdict in tool.verdicts},
    }


def _make_verdict_entry(verdict: ProviderVerdict) -> dict[str, object]:
    entry: dict[str, object] = {**asdict(verdict), "not_strict": verdict.not_strict or None}
    del entry["provider"]
    return entry


def make_rows(report: Report) -> Iterator[tuple[str, ...]]:
    """Yield a row per tool and provider: tool, tokens, provider, status, strict mode, remarks."""
    for tool in report.tools:
        for number, verdict in enumerate(tool.verdicts):
            name, tokens = (tool.name, f"~{tool.tokens} tokens") if number == 0 else ("", "")
            strict = "strict" if verdict.strict else "not strict"
            notes = [*verdict.reasons, *([verdict.not_strict] if verdict.not_strict else [])]
            alias = [f"sent as {verdict.alias}"] if verdict.alias else []
            yield name, tokens, verdict.provider, verdict.status, strict, "; ".join([*alias, *verdict.keys, *notes])


def format_table(report: Report) -> list[str]:
    """Return the table of tools and providers as aligned lines."""
    rows = list(make_rows(report))
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(5)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]]).rstrip()
        for row in rows
    ]


def format_summary(report: Report) -> str:
    """Return the last line: the number of findings by severity, or "All good"."""
    kinds: tuple[Kind, ...] = ("tool", "prompt", "resource")
    subjects = [(report.count_declared(kind), kind) for kind in kinds]
    shown = [pluralize(count, kind) for count, kind in subjects if count or kind == "tool"]
    scope = f"{', '.join(shown)} in {pluralize(report.files, 'file')}"
    counts = [(report.count(kind), kind) for kind in ("error", "warning", "note")]
    if not report.findings:
        if not any(count for count, _ in subjects):
            return f"No tools found in {pluralize(report.files, 'file')}. Decorate a function with `@tool`."
        return f"All good: {scope}."
    return f"Found {', '.join(pluralize(count, kind) for count, kind in counts if count)}: {scope}."


def format_rule(rule: Rule) -> str:
    """Return the explanation of a rule for a terminal."""
    return f"{rule.code} {rule.name} ({rule.severity})\n\n{rule.what}\n{rule.why}\n\nFix: {rule.fix}\nPage: {rule.page}"


SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def format_sarif(report: Report) -> str:
    """Return a report as SARIF 2.1.0."""
    codes = sorted({finding.code for finding in report.findings})
    digest_counts: Counter[str] = Counter()
    results = [_make_result(found, codes.index(found.code), digest_counts) for found in report.findings]
    driver = {
        "name": "toolmason",
        "version": version("toolmason"),
        "informationUri": DOCUMENTATION,
        "rules": [_make_rule(RULES[code]) for code in codes],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _make_rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": f"{rule.what} {rule.why}"},
        "help": {"text": f"{rule.fix} For details, run `toolmason check --explain {rule.code}`."},
        "defaultConfiguration": {"level": rule.severity},
        "helpUri": rule.page,
    }


def _make_result(finding: Finding, index: int, digest_counts: Counter[str]) -> dict[str, Any]:
    # The fingerprint omits the line, so that a moved finding stays the same finding.
    key = f"{finding.code}:{finding.location.path}:{finding.tool}:{finding.message}"
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    digest_counts[digest] += 1
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": f"{finding.message}. {finding.hint}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _make_uri(finding.location.path)},
                    "region": {"startLine": finding.location.line, "startColumn": finding.location.column},
                }
            }
        ],
        "partialFingerprints": {"toolmason/v1": f"{digest}:{digest_counts[digest]}"},
    }


def _make_uri(path: str) -> str:
    prefix = "file://" if PurePosixPath(path).is_absolute() else ""
    return prefix + quote(path.encode("utf-8", "surrogateescape"))
