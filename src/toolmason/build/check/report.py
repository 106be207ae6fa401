"""A report → text and JSON.

Lives here: what a person reads and what a program reads, line by line the same in every run. Not here: SARIF
(`sarif`), colours (the command).
"""

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

from toolmason.build.check.dynamic import ToolReport
from toolmason.build.check.rules import RULES, Finding, Rule
from toolmason.build.check.run_checks import Report


def as_json(report: Report) -> str:
    """Return a report as JSON; the fields are stable."""
    entry = {
        "findings": [_entry(found) for found in report.findings],
        "tools": [_tool_entry(tool) for tool in report.tools],
        "summary": {
            "files": report.files,
            "tools": len(report.declared),
            "errors": report.count("error"),
            "warnings": report.count("warning"),
            "notes": report.count("note"),
            "tokens": sum(tool.tokens for tool in report.tools),
        },
    }
    return json.dumps(entry, indent=2)


def _entry(found: Finding) -> dict[str, object]:
    return {
        "code": found.code,
        "name": RULES[found.code].name,
        "severity": found.severity,
        "message": found.message,
        "path": found.place.path,
        "line": found.place.line,
        "column": found.place.column,
        "tool": found.tool or None,
        "hint": found.hint,
        "page": RULES[found.code].page,
    }


def _tool_entry(tool: ToolReport) -> dict[str, object]:
    return {
        "name": tool.name,
        "path": tool.place.path,
        "line": tool.place.line,
        "tokens": tool.tokens,
        "providers": {verdict.provider: _without_provider(asdict(verdict)) for verdict in tool.verdicts},
    }


def _without_provider(entry: dict[str, object]) -> dict[str, object]:
    return {
        "status": entry["status"],
        "reasons": list(entry["reasons"]) if isinstance(entry["reasons"], tuple) else [],
        "strict": entry["strict"],
        "not_strict": entry["not_strict"] or None,
        "alias": entry["alias"],
        "keys": list(entry["keys"]) if isinstance(entry["keys"], tuple) else [],
    }


def table_of(report: Report) -> Iterator[tuple[str, ...]]:
    """Yield a row for each tool and provider: tool, tokens, provider, status, strict, and what else there is to say."""
    for tool in report.tools:
        for number, verdict in enumerate(tool.verdicts):
            name, tokens = (tool.name, f"~{tool.tokens} tokens") if number == 0 else ("", "")
            strict = "strict" if verdict.strict else "not strict"
            notes = [*verdict.reasons, *([verdict.not_strict] if verdict.not_strict else [])]
            alias = [f"sent as {verdict.alias}"] if verdict.alias else []
            yield name, tokens, verdict.provider, verdict.status, strict, "; ".join([*alias, *verdict.keys, *notes])


def table_lines(report: Report) -> list[str]:
    """Return the table of tools and providers as aligned lines."""
    rows = list(table_of(report))
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(5)]
    return [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[5]]).rstrip()
        for row in rows
    ]


def summary_of(report: Report) -> str:
    """Return the last line: how many findings of each kind, or that there are none."""
    seen = f"{_counted(len(report.declared), 'tool')} in {_counted(report.files, 'file')}"
    counts = [(report.count(kind), kind) for kind in ("error", "warning", "note")]
    if not report.findings:
        return f"All good: {seen}."
    return f"Found {', '.join(_counted(count, kind) for count, kind in counts if count)}: {seen}."


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def explanation_of(rule: Rule) -> str:
    """Return what a rule is about, for a terminal."""
    return f"{rule.code} {rule.name} ({rule.severity})\n\n{rule.what}\n{rule.why}\n\nFix: {rule.fix}\nPage: {rule.page}"


SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def as_sarif(report: Report) -> str:
    """Return a report as SARIF 2.1.0."""
    codes = sorted({found.code for found in report.findings})
    seen: Counter[str] = Counter()
    results = [_result(found, codes.index(found.code), seen) for found in report.findings]
    driver = {
        "name": "toolmason",
        "semanticVersion": version("toolmason"),
        "rules": [_rule(RULES[code]) for code in codes],
    }
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.what},
        "fullDescription": {"text": f"{rule.what} {rule.why}"},
        "help": {"text": rule.fix},
        "defaultConfiguration": {"level": rule.severity},
        "properties": {"page": rule.page},
    }


def _result(found: Finding, index: int, seen: Counter[str]) -> dict[str, Any]:
    # The line is left out of the fingerprint: a finding that moved is the same finding.
    key = f"{found.code}:{found.place.path}:{found.tool}:{found.message}"
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    seen[digest] += 1
    return {
        "ruleId": found.code,
        "ruleIndex": index,
        "level": found.severity,
        "message": {"text": f"{found.message}. {found.hint}"},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(found.place.path)},
                    "region": {"startLine": found.place.line, "startColumn": found.place.column},
                }
            }
        ],
        "partialFingerprints": {"toolmason/v1": f"{digest}:{seen[digest]}"},
    }


def _uri(path: str) -> str:
    prefix = "file://" if PurePosixPath(path).is_absolute() else ""
    return prefix + quote(path.encode("utf-8", "surrogateescape"))
