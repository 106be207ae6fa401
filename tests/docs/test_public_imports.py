"""Docs and examples import public packages only: what they show is what users may rely on."""

import re

import pytest

from house.source import ROOT

PUBLIC = {
    "toolmason",
    *(
        f"toolmason.{name}"
        for name in (
            "adapters",
            "chat",
            "errors",
            "extend",
            "mcp",
            "models",
            "observe",
            "openapi",
            "providers",
            "scale",
            "testing",
        )
    ),
}
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").glob("*.*"),
    *(ROOT / "packages").rglob("*.md"),
]
IMPORT = re.compile(r"^\s*(?:>>> )?(?:from (toolmason[\w.]*) import|import (toolmason[\w.]*))", re.MULTILINE)


def imported(text):
    return {first or second for first, second in IMPORT.findall(text)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_imports_public_packages_only(page):
    assert imported(page.read_text("utf-8")) - PUBLIC == set()


def test_the_example_of_a_model_plugin_imports_public_packages_only():
    source = (ROOT / "packages" / "toolmason-echo" / "src" / "toolmason_echo.py").read_text("utf-8")

    assert imported(source) == {"toolmason", "toolmason.models"}


def test_an_import_of_something_else_is_seen():
    assert imported("```python\nfrom toolmason._core.call import x\n>>> import toolmason.build\n```") == {
        "toolmason._core.call",
        "toolmason.build",
    }
