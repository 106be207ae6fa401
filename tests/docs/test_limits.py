"""The page of limits has every limit of the source, with its number, and no other."""

import dataclasses
import importlib
import re

from house.source import PACKAGE, ROOT
from toolmason._core.values.policy import EngineSettings, Limits

PAGE = ROOT / "docs" / "reference" / "limits.md"
NAME = re.compile(
    r"^(_?MAX_[A-Z_]+|PAGE_[A-Z_]+|_?[A-Z][A-Z_]*_SECONDS|_?[A-Z]+_STEPS)(?:: (?:Final|float|int))? = ", re.MULTILINE
)
NOT_LIMITS = {
    "DEFAULT_START_SECONDS",
    "DEFAULT_POLL_SECONDS",
    "MIN_POLL_SECONDS",
    "EXTRA_SECONDS",
    "LOOP_CHECK_SECONDS",
    # Lengths of what a message shows:
    "MAX_DESCRIPTION_CHARS",
    "MAX_MESSAGE_CHARS",
    "MAX_NAMES_SHOWN",
    "MAX_PROBLEMS_SHOWN",
    "_MAX_CHARS",
    "_MAX_DESCRIPTION_CHARS",
    "_MAX_CHANGES",
    "_MAX_ITEMS",
    "_MAX_MATCHES",
    "_MAX_MESSAGE_CHARS",
    "_MAX_PATH_LENGTH",
    "_MAX_READ_CHARS",
    "_MAX_VALUE_LENGTH",
}
"""Defaults, lower bounds and intervals, and lengths of what is shown."""


def fixed_limits():
    """Return the number of each limit by its name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
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
