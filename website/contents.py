"""Write `docs/README.md`, the contents for readers of the repository, from the navigation of the site.

Usage: python website/contents.py
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/README.md"
ENTRY = re.compile(r"^(?P<indent> *)- (?:(?P<title>[^:\n]+):)? ?(?P<page>\S+\.md)?$", re.MULTILINE)
TOP = 2
"""Indentation of the sections."""
INTRODUCTION = """# Documentation

Begin with the [README](../README.md) and the [first steps](first-steps.md). `make site` builds these pages as a site
with search, and adds a reference of every public name, from its signature and docstring.
"""


def make_contents() -> str:
    """Return the text of the page."""
    navigation = (ROOT / "website/mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
    single, sections = [], []
    for entry in ENTRY.finditer(navigation):
        title, path, depth = entry["title"], entry["page"], len(entry["indent"])
        if path is None:
            sections.append(f"\n{'#' if depth == TOP else '##'}# {title}\n")
        elif path != "index.md":
            (single if depth == TOP else sections).append(f"- [{title or _read_title(path)}]({path})")
    return re.sub(r"\n{3,}", "\n\n", "\n".join([INTRODUCTION, *single, *sections])) + "\n"


def _read_title(path: str) -> str:
    return (ROOT / "docs" / path).read_text("utf-8").partition("\n")[0].removeprefix("# ")


if __name__ == "__main__":
    PAGE.write_text(make_contents(), "utf-8")
