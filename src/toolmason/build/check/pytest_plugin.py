"""A check → tests: one for each tool, and one for each file that has findings beside its tools.

Lives here: what `pytest --toolmason-check TARGET` runs. Not here: the hooks that pytest loads at every
start (`pytest_hooks`).
"""

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
    """Yield the tests of a check.

    Raises:
        pytest.UsageError: a target does not exist, or the configuration is wrong.
    """
    try:
        settings = read_settings(Config.find())
        resolved_targets = [find_target(text, settings.exclude) for text in targets]
        report = check(resolved_targets, settings, strict=strict)
    except ConfigError as error:
        raise pytest.UsageError(f"--toolmason-check: {error}") from error
    findings_by_tool: dict[tuple[str, str], list[Finding]] = {(place.path, name): [] for place, name in report.declared}
    for item in report.findings:
        key = (item.location.path, item.tool)
        findings_by_tool.setdefault(key if key in findings_by_tool else (item.location.path, ""), []).append(item)
    parent = CheckCollector.from_parent(session, name="toolmason", nodeid="toolmason")
    for (path, name), findings in sorted(findings_by_tool.items()):
        failing = [item for item in findings if item.severity == "error" or (strict and item.severity == "warning")]
        yield CheckItem.from_parent(parent, name=f"{path}::{name}" if name else path, findings=failing)


class CheckCollector(pytest.Collector):
    """What the tests of a check hang under."""

    def collect(self) -> list[pytest.Item]:
        """Return nothing: the tests are made in one check of all targets."""
        return []


class CheckItem(pytest.Item):
    """One tool, or what is wrong with a file beside its tools."""

    def __init__(self, *, findings: list[Finding], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.findings = findings

    def runtest(self) -> None:
        """Fail where there are findings."""
        if self.findings:
            pytest.fail(
                "\n".join(f"{found.location}: {found.code} {found.message}" for found in self.findings), pytrace=False
            )

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Say what is tested, and where its first finding is."""
        line = self.findings[0].location.line - 1 if self.findings else None
        return Path(self.name.partition("::")[0]), line, f"toolmason check {self.name}"
