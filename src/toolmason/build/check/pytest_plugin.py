"""Turn a check into pytest items: one per tool, and one per file with findings outside its tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolmason._core.config.config import Config
from toolmason.build.check.find_files import find_target
from toolmason.build.check.rules import Finding
from toolmason.build.check.run_checks import check
from toolmason.build.check.settings import read_settings
from toolmason.errors import ConfigError


def make_check_items(session: pytest.Session, targets: Iterable[str], *, strict: bool) -> Iterator[pytest.Item]:
    """Yield the pytest items of a check.

    Raises:
        pytest.UsageError: a target does not exist, or the configuration is invalid.
    """
    try:
        settings = read_settings(Config.find())
        resolved_targets = [find_target(text, settings.exclude) for text in targets]
        report = check(resolved_targets, settings, strict=strict)
    except ConfigError as error:
        raise pytest.UsageError(f"--toolmason-check: {error}") from error
    findings_by_tool: dict[tuple[str, str], list[Finding]] = {
        (location.path, name): [] for location, name, _ in report.declared
    }
    for item in report.findings:
        key = (item.location.path, item.tool)
        findings_by_tool.setdefault(key if key in findings_by_tool else (item.location.path, ""), []).append(item)
    parent = CheckCollector.from_parent(session, name="toolmason", nodeid="toolmason")
    for (path, name), findings in sorted(findings_by_tool.items()):
        failing = [item for item in findings if item.severity == "error" or (strict and item.severity == "warning")]
        yield CheckItem.from_parent(parent, name=f"{path}::{name}" if name else path, findings=failing)


class CheckCollector(pytest.Collector):
    """Parent node of the check items."""

    def collect(self) -> list[pytest.Item]:
        """Return an empty list: one check of all targets creates the items."""
        return []


class CheckItem(pytest.Item):
    """Pytest item for one tool, or for the findings of a file outside its tools."""

    def __init__(self, *, findings: list[Finding], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.findings = findings

    def runtest(self) -> None:
        """Fail if there are findings."""
        if self.findings:
            pytest.fail(
                "\n".join(f"{found.location}: {found.code} {found.message}" for found in self.findings), pytrace=False
            )

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the path, the line of the first finding and the title."""
        line = self.findings[0].location.line - 1 if self.findings else None
        return Path(self.name.partition("::")[0]), line, f"toolmason check {self.name}"
