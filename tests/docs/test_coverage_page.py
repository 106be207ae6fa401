"""Each row of the five systems is shown by a test or decided otherwise; run as a program, this file writes the page.

A test names the rows that it shows with `@pytest.mark.row("MA-6")`. A decision is a line of a table in `docs/why`.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
if str(ROOT / "tests") not in sys.path:  # run as a program
    sys.path.insert(0, str(ROOT / "tests"))

from house.source import parse_tree  # noqa: E402 - after the path is set
from seeds.rows import ROWS, SYSTEMS  # noqa: E402 - after the path is set

PAGE = ROOT / "docs" / "reference" / "coverage.md"
DECISIONS = ROOT / "docs" / "why" / "decided-otherwise.md"
MOST_SHOWN = 2
"""Maximum number of tests that a line of the page names."""


def iter_marked(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each row that a test of a file shows, with the name of the test."""
    text = path.read_text("utf-8")
    for node in parse_tree(text).body if ".mark.row(" in text else ():
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
            continue
        marks = [ast.unparse(mark) for mark in node.decorator_list]
        if any(mark.startswith(("pytest.mark.skip", "pytest.mark.xfail")) for mark in marks):
            continue
        for mark in node.decorator_list:
            if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.row":
                yield from ((ast.literal_eval(row), node.name) for row in mark.args)


@cache
def find_shown() -> dict[str, list[str]]:
    """Return the tests that show each row, as `file::test`; do not change it, it is read once."""
    shown = defaultdict(list)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for row, name in iter_marked(path):
            shown[row].append(f"{path.relative_to(ROOT / 'tests').as_posix()}::{name}")
    return dict(shown)


def find_decided() -> set[str]:
    """Return the rows that are decided otherwise: the first cells of the table."""
    return set(re.findall(r"^\| (\w+-\d+) \|", DECISIONS.read_text("utf-8"), re.MULTILINE))


def make_lines() -> Iterator[str]:
    """Yield the lines of the page."""
    shown, decided = find_shown(), find_decided()
    yield "# Coverage of the five systems"
    yield ""
    yield "The ideas come from five systems. Each of their features is a row: a test shows it, or"
    yield "[a decision](../why/decided-otherwise.md) says what Toolmason does instead, and a test shows that. A row"
    yield "with neither fails the build. `python tests/docs/test_coverage_page.py` writes this page."
    for system, title in SYSTEMS.items():
        yield from ("", f"## {title}", "", "| Row | Feature | Shown by |", "|---|---|---|")
        for row, feature in ROWS.items():
            if re.fullmatch(rf"{system}-?\d+", row):
                names = [f"`{name}`" for name in shown.get(row, [])[:MOST_SHOWN]]
                mark = ["decided otherwise"] if row in decided else []
                yield f"| {row} | {feature} | {'<br>'.join(mark + names)} |"


def test_every_row_is_shown_or_decided():
    shown, decided = find_shown(), find_decided()

    assert [row for row in ROWS if row not in shown and row not in decided] == []


def test_every_mark_and_every_decision_names_a_row():
    assert [row for row in [*find_shown(), *find_decided()] if row not in ROWS] == []


def test_the_page_is_up_to_date():
    assert PAGE.read_text("utf-8").splitlines() == list(make_lines())


def test_there_are_170_rows_and_25_promises():
    promises = [row for row in ROWS if row.startswith("P")]

    assert (len(ROWS) - len(promises), len(promises)) == (170, 25)


if __name__ == "__main__":
    PAGE.write_text("\n".join(make_lines()) + "\n", "utf-8")
