"""A report → SARIF 2.1.0, the form that code hosts read findings in.

Lives here: the one mapping from findings to that format. Not here: other outputs (`report`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote

from toolmason.build.check import Report
from toolmason.build.findings import Finding
from toolmason.build.rules import RULES, Rule

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
