"""Files as they come: encodings, line ends, broken, binary and huge ones. None of them is imported."""

import os
import sys

import pytest

from toolmason.build.check.static import source_file
from toolmason.build.check.static.imports import read_imports
from toolmason.build.check.static.source_file import Source, parse

TOOL = b"from toolmason import tool\n@tool\ndef act(x): 'Do.'\n"


def places(folder, data: bytes) -> list[str]:
    (folder.path / "app.py").write_bytes(data)
    return [f"{found.location.line}:{found.location.column} {found.code}" for found in folder.check("app.py").findings]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(TOOL, id="lf"),
        pytest.param(TOOL.replace(b"\n", b"\r\n"), id="crlf"),
        pytest.param(TOOL.replace(b"\n", b"\r"), id="cr"),
        pytest.param(b"\xef\xbb\xbf" + TOOL, id="byte order mark"),
    ],
)
def test_line_ends_and_marks_do_not_move_a_place(folder, data):
    assert places(folder, data) == ["3:9 TM103"]


def test_characters_that_only_some_count_as_line_ends_do_not_move_a_place(folder):
    assert places(folder, "x = '\x0c \u2028 \x1c'\n".encode() + TOOL) == ["4:9 TM103"]


def test_a_file_that_names_its_encoding_is_read_in_it(folder):
    assert places(folder, "# coding: latin-1\nx = 'ä'; y = 1\n".encode("latin-1") + TOOL) == ["5:9 TM103"]


@pytest.mark.parametrize(
    ("data", "place", "words"),
    [
        pytest.param(b"x = 1\ndef f(:\n", "2:7", "syntax error", id="syntax"),
        pytest.param(b"def f():\n", "1:9", "syntax error", id="no body"),
        pytest.param(b"x = (\n", "1:5", "syntax error", id="never closed"),
        pytest.param(b"if x:\n\ty\n        z\n", "3:1", "syntax error", id="tabs"),
        pytest.param(b"x = 1\ny = '\xe4'\n", "2:6", "cannot be decoded", id="latin-1 that does not say so"),
        pytest.param(b"# coding: no-such\n", "1:1", "cannot be decoded", id="unknown encoding"),
        pytest.param(b"x = 1\0\n", "1:1", "null bytes", id="null byte"),
        pytest.param(b"\x7fELF\x02\x01\xff\xfe", "1:7", "cannot be decoded", id="binary"),
        pytest.param(b"print 'hello'\n", "1:1", "syntax error", id="python 2"),
    ],
)
def test_a_file_that_is_not_python_is_a_finding_of_its_own_with_the_place(folder, data, place, words):
    (folder.path / "app.py").write_bytes(data)

    [found] = folder.check("app.py").findings

    assert (found.code, f"{found.location.line}:{found.location.column}") == ("TM100", place)
    assert words in found.message


def test_an_empty_file_is_fine(folder):
    assert places(folder, b"") == []


def test_a_file_that_is_nested_too_deeply_is_a_finding(folder):
    [found] = places(folder, b"x = " + b"(" * 5000 + b")" * 5000)

    assert found.endswith("TM100")


def test_a_long_chain_of_operators_is_read_or_told(folder):
    found = places(folder, b"x = " + b"+".join([b"1"] * 20_000) + b"\n")

    assert all(place.endswith("TM100") for place in found)


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(f"def act(x: {' | '.join(['int'] * 5_000)}): 'Do.'\n", id="union"),
        pytest.param(f"def act(x: int = {'+'.join(['1'] * 5_000)}): 'Do.'\n", id="sum"),
        pytest.param(f"def act(x{'.y' * 10}): 'Do.'\n".replace("x.y", "x: a.y"), id="dots"),
        pytest.param("def act(): 'Do.'\nif x: ...\n" + "elif x: ...\n" * 3_000, id="branches"),
        pytest.param(f"def act(x: {'list[' * 90}int{']' * 90}): 'Do.'\n", id="lists"),
    ],
)
def test_deep_source_is_read_or_told_and_nothing_breaks(folder, source):
    codes = folder.codes(f"from toolmason import tool\n@tool\n{source}")

    assert set(codes) <= {"TM100", "TM101"}


def test_a_message_stays_short_whatever_it_quotes(folder):
    folder.write({"app.py": f"from toolmason import tool\n@tool\ndef act(x: int = {'a' * 100_000!r}): 'Do.'\n"})

    assert all(len(found.message) < 500 for found in folder.check("app.py").findings)


def test_a_class_with_very_many_paths_to_its_ancestors_is_read(folder):
    layers = "".join(
        f"class A{n}(A{n - 1}, B{n - 1}): ...\nclass B{n}(A{n - 1}, B{n - 1}): ...\n" for n in range(1, 60)
    )

    assert folder.codes(f"from toolmason import tool\nclass A0: ...\nclass B0: ...\n{layers}") == []


def test_a_file_name_that_is_not_utf_8_is_printed_all_the_same(folder):
    name = b"caf\xe9.py"
    (folder.path / "pkg").mkdir()
    with open(os.path.join(os.fsencode(folder.path / "pkg"), name), "wb") as file:  # noqa: PTH118, PTH123 - bytes
        file.write(TOOL)

    [found] = folder.check("pkg").findings

    assert str(found.location) == "pkg/caf\\xe9.py:3:9"


def test_a_file_that_is_too_large_is_told_and_not_read(folder, monkeypatch):
    monkeypatch.setattr(source_file, "MAX_FILE_BYTES", 10)
    (folder.path / "app.py").write_text("x = 12345678", "utf-8")

    [found] = folder.check("app.py").findings

    assert found.code == "TM100"
    assert "file too large: 12 bytes" in found.message


def test_a_large_file_is_read(folder):
    text = TOOL.decode() + "\n".join(f"VALUE_{number} = {{'key': [{number}, 'text']}}" for number in range(20_000))

    assert places(folder, text.encode()) == ["3:9 TM103"]


def test_a_broken_link_is_a_finding(folder):
    (folder.path / "pkg").mkdir()
    (folder.path / "pkg" / "gone.py").symlink_to("nowhere.py")

    [found] = folder.check("pkg").findings

    assert (found.code, found.location.path) == ("TM100", "pkg/gone.py")


def test_nothing_is_imported(folder):
    folder.write({"pkg/__init__.py": "raise SystemExit('imported')", "pkg/bomb.py": "raise SystemExit('imported')"})
    (folder.path / "pkg" / "app.py").write_bytes(b"import no_such_package\n" + TOOL)

    [found] = folder.check("pkg").findings

    assert str(found.location) == "pkg/app.py:4:9"
    assert not {name for name in sys.modules if name.partition(".")[0] in ("pkg", "no_such_package")}


def test_odd_escapes_in_a_user_file_are_not_warned_about(folder):
    assert places(folder, b"x = '\\d'\n" + TOOL) == ["4:9 TM103"]


@pytest.mark.parametrize(
    ("module", "is_package", "line", "meaning"),
    [
        ("a.b.c", False, "from . import x", {"x": "a.b.x"}),
        ("a.b.c", False, "from ..d import x as y", {"y": "a.d.x"}),
        ("a.b", True, "from .c import x", {"x": "a.b.c.x"}),
        ("", False, "from .c import x", {"x": "c.x"}),
        ("a", False, "from ....c import x", {"x": "c.x"}),
        ("a", False, "import b.c", {"b": "b"}),
        ("a", False, "import b.c as d", {"d": "b.c"}),
        ("a", False, "from elsewhere import *", {}),
    ],
)
def test_imports_are_followed_from_where_they_stand(module, is_package, line, meaning):
    read = parse(line, "app.py", module, is_package=is_package)

    assert isinstance(read, Source)
    assert read_imports(read).paths == meaning
