"""Hooks of the pytest plugin; they import Toolmason only if an option asks for a check."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("toolmason")
    group.addoption(
        "--toolmason-check",
        action="append",
        default=[],
        metavar="TARGET",
        help="Check the tools of a file, folder, package or `module:name`, with one test per tool.",
    )
    group.addoption("--toolmason-strict", action="store_true", help="Also fail on warnings of the check.")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each checked tool."""
    if targets := config.getoption("toolmason_check"):
        from toolmason.build.check.pytest_plugin import make_check_items  # noqa: PLC0415 - import only if the option is used

        items.extend(make_check_items(session, targets, strict=bool(config.getoption("toolmason_strict"))))
