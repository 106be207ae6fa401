"""Sizes are limits (module 500 lines, function 60, test file 600), without a list of exceptions."""

import pytest

from house.source import PACKAGE, ROOT, function_lengths, parse, read_package

MODULE_LINES = 500
FUNCTION_LINES = 60
TEST_FILE_LINES = 600


@pytest.fixture(scope="module")
def modules():
    found = read_package(PACKAGE)
    assert found, f"no Python files under {PACKAGE}"
    return found.values()


def test_no_module_is_longer_than_500_lines(modules):
    assert [f"{m.name}: {m.lines} lines" for m in modules if m.lines > MODULE_LINES] == []


def test_no_function_is_longer_than_60_lines(modules):
    lengths = [pair for m in modules for pair in function_lengths(m)]

    assert [f"{place}: {length} lines" for place, length in lengths if length > FUNCTION_LINES] == []


def test_no_test_file_is_longer_than_600_lines():
    lengths = {p.relative_to(ROOT): len(p.read_text("utf-8").splitlines()) for p in (ROOT / "tests").rglob("*.py")}

    assert [f"{path}: {length} lines" for path, length in lengths.items() if length > TEST_FILE_LINES] == []


def test_the_docstring_does_not_count_as_length():
    plain = parse("plain", "def f():\n    a = 1\n    return a\n")
    documented = parse("documented", 'def f():\n    """One.\n\n    Two.\n    """\n    a = 1\n    return a\n')

    assert dict(function_lengths(plain)) == {"plain:1 f": 3}
    assert dict(function_lengths(documented)) == {"documented:1 f": 3}


def test_a_nested_function_counts_by_itself_and_in_its_parent():
    module = parse("m", "async def outer():\n    def inner():\n        pass\n    inner()\n")

    assert dict(function_lengths(module)) == {"m:1 outer": 4, "m:2 inner": 2}
