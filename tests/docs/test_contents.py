"""The contents of the docs list every page of the navigation; `python website/contents.py` writes them."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_contents_are_those_of_the_navigation(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "website"))
    import contents

    assert contents.PAGE.read_text("utf-8") == contents.make_contents()
    sys.modules.pop("contents")


def test_the_contents_have_every_page():
    text = (ROOT / "docs/README.md").read_text("utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}

    missing = {page for page in pages if f"({page})" not in text and "reference/rules/" not in page}

    assert missing == {"README.md"}
