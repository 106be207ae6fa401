"""The page of limits has every limit of the source, with its number, and no other."""

import dataclasses
import importlib
import re

from house.source import PACKAGE, ROOT
from toolmason._core.values.policy import EngineSettings, Limits

PAGE = ROOT / "docs" / "reference" / "limits.md"
FOLDERS = ("_core", "chat", "models", "mcp_client", "mcp_server")
NAME = re.compile(r"^((?:MAX|PAGE)_[A-Z_]+|[A-Z][A-Z_]*_SECONDS)(?::[^=]*)? = ", re.MULTILINE)
NOT_LIMITS = {
    "DEFAULT_START_SECONDS",
    "DEFAULT_POLL_SECONDS",
    "MIN_POLL_SECONDS",
    "EXTRA_SECONDS",
    "LOOP_CHECK_SECONDS",
}
"""Defaults, lower bounds and intervals."""


def fixed_limits():
    """Return the number of each limit by its name, of the modules that meet data from outside."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            names = set(NAME.findall(path.read_text("utf-8"))) - NOT_LIMITS
            module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
            values = vars(importlib.import_module(f"toolmason.{module}")) if names else {}
            found |= {f"{module}.{name}": values[name] for name in sorted(names)}
    return found


def rows():
    cells = [line.strip("| ").split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert all(len(row) == 4 and all(row) for row in cells)
    return {name.strip("`"): number for name, number, _, _ in cells}


def test_the_page_has_every_limit_with_its_number():
    settings = {
        f"{kind.__name__}.{field.name}": repr(field.default)
        for kind in (EngineSettings, Limits)
        for field in dataclasses.fields(kind)
    }

    assert rows() == settings | {name: f"{value:,}" for name, value in fixed_limits().items()}
