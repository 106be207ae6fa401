"""Check the words of the pages: spelling (codespell) and style (proselint), without the code in them.

`make site` runs it. The words of this project have a list of their own: `tests/house/prose.py`, part of `make house`.
"""

import re
import subprocess
import sys
from pathlib import Path

from proselint.checks import __register__
from proselint.config import DEFAULT
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).parent.parent
FOLDERS = ("docs", "benchmarks", "training", "packages", "examples")
CODE = re.compile(r"^ *(`{3,}).*?^ *\1 *$|`[^`\n]+`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)
LEFT_OUT = ("typography", "lexical_illusions", "spelling.diacritical_marks")
"""Straight quotes are the quotes of a program; tables repeat words; `resume` is a verb here."""
MISSPELT = "serch,devide"
"""Misspelt on purpose: the pages show what Toolmason answers to them."""


def main() -> int:
    """Print what is wrong; return the exit code."""
    CheckRegistry().register_many(__register__)
    pages = [*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))]
    found = 0
    for page in sorted(pages):
        text = CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), page.read_text("utf-8"))
        file = LintFile(page, text)
        for result in file.lint(DEFAULT):
            check = result.check_result
            if not check.check_path.startswith(LEFT_OUT):
                print(f"{page.relative_to(ROOT)}:{result.pos[0]}: {check.check_path}: {check.message}")
                found += 1
    spelling = [sys.executable, "-m", "codespell_lib", "-L", MISSPELT, *map(str, pages)]
    return bool(found) or subprocess.run(spelling, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
