"""The Python of the pages that a newcomer reads first passes a type checker."""

import subprocess
import sys
import textwrap

import pytest

from docs.snippets import FENCE
from house.source import ROOT

MYPY = [sys.executable, "-m", "mypy", "--config-file=", "--ignore-missing-imports", "--no-error-summary"]
# A page defines a name again where a file of a project would not.
ALLOWED = ["--disable-error-code=no-redef", "--disable-error-code=import-not-found"]


@pytest.mark.parametrize("page", ["README.md", "docs/first-steps.md"])
def test_the_blocks_of_a_page_have_no_type_errors(page, tmp_path):
    """Review, newcomer 35: `result.error.code` is an error, because `error` may be None."""
    found = FENCE.finditer((ROOT / page).read_text("utf-8"))
    blocks = [match["body"] for match in found if match["language"] == "python"]
    # In a function, because the blocks await at top level.
    code = "async def page() -> None:\n" + textwrap.indent("\n".join(blocks), "    ")
    (tmp_path / "page.py").write_text(code, "utf-8")

    done = subprocess.run([*MYPY, *ALLOWED, "page.py"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.stdout == ""
    assert blocks
