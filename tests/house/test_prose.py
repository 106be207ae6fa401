"""Docstrings, comments, messages and pages are plain technical English."""

import pytest

from house.prose import BANNED, ROOT, findings, tracked

NOT_YET: set[str] = set()
"""Files that are not rewritten yet; the list may only shrink."""


def test_source_and_pages_are_plain():
    paths = [path for path in tracked() if str(path.relative_to(ROOT)) not in NOT_YET]

    assert paths
    assert list(findings(paths)) == []


@pytest.mark.parametrize(
    "source",
    [
        pytest.param('"""Tell whether it is there."""\n', id="docstring"),
        pytest.param("x = 1  # nobody reads it\n", id="comment"),
        pytest.param('raise ValueError("the run was called off by the user")\n', id="message"),
        pytest.param('"""What a tool returned."""\n', id="relative clause"),
        pytest.param('"""A text → a value."""\n', id="arrow"),
    ],
)
def test_a_phrase_is_found(tmp_path, monkeypatch, source):
    monkeypatch.setattr("house.prose.ROOT", tmp_path)
    file = tmp_path / "sample.py"
    file.write_text(source, "utf-8")

    assert list(findings([file]))


def test_code_blocks_of_pages_are_not_prose(tmp_path, monkeypatch):
    monkeypatch.setattr("house.prose.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("Plain.\n\n```\nwhoever\n```\n\nwhoever\n", "utf-8")

    assert [place.partition(" ")[0] for place in findings([page])] == ["page.md:7:"]


def test_the_tables_of_the_package_are_prose(tmp_path, monkeypatch):
    assert ROOT / "src/toolmason/build/check/rules.json" in tracked()
    monkeypatch.setattr("house.prose.ROOT", tmp_path)
    table = tmp_path / "table.json"
    table.write_text('{\n  "plain": "It fails.",\n  "other": "It is called off."\n}\n', "utf-8")

    assert [place.partition(" ")[0] for place in findings([table])] == ["table.json:3:"]


def test_every_pattern_has_advice():
    assert all(advice for advice in BANNED.values())
