"""The files of tests/typing are checked, never run; `make check` checks them and the source with both checkers."""

import tomllib

from house.source import ROOT

TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]


def test_both_checkers_check_the_files_of_types():
    assert "tests/typing" in TOOLS["mypy"]["files"]
    assert "tests/typing" in TOOLS["pyright"]["include"]
    assert list((ROOT / "tests" / "typing").glob("*.py"))


def test_both_checkers_report_an_ignore_that_hides_nothing():
    assert TOOLS["mypy"]["strict"]
    assert TOOLS["pyright"]["reportUnnecessaryTypeIgnoreComment"]
