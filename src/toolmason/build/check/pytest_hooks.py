"""The pytest plugin of Toolmason, as pytest sees it at every start: two options and one hook.

Lives here: what must cost nothing where it is not used, so it imports nothing of ours until an option asks for it.
Not here: the tests that it adds (`pytest_plugin`).
"""

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
        help="Check the tools of a file, folder, package or `module:name`; one test for each tool.",
    )
    group.addoption("--toolmason-strict", action="store_true", help="Fail on warnings of the check too.")


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add a test for each tool that is checked."""
    if targets := config.getoption("toolmason_check"):
        from toolmason.build.check.pytest_plugin import make_check_items  # noqa: PLC0415 - the cost of an import, only when asked

        items.extend(make_check_items(session, targets, strict=bool(config.getoption("toolmason_strict"))))
