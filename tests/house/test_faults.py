"""The catalogue of faults is complete, and each of its rows has a test that exists."""

from house.source import ROOT
from judges.faults import read_catalogue

ROWS = read_catalogue()


def test_the_catalogue_is_complete():
    expected = [f"F{n:02}" for n in range(1, 62)] + [f"T{n}" for n in range(1, 25)] + [f"P{n}" for n in range(1, 17)]

    assert [name for name in expected if name not in ROWS] == []


def test_each_row_has_a_test_that_exists():
    for row in ROWS.values():
        assert row.tests or row.command, row.name
        for test in row.tests:
            file, _, function = test.partition("::")
            assert f"def {function}(" in (ROOT / "tests" / file).read_text("utf-8") if function else "def test_", test
