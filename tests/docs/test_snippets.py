"""Every Python and console block of the README and of docs/ runs, in page order.

A block that must not run is marked `text`.
"""

import logging
import sys
from types import ModuleType

import pytest
from opentelemetry import trace
from opentelemetry.metrics import _internal as metrics
from opentelemetry.util._once import Once

from docs.snippets import Block, blocks_of, commands_of, missing_lines, run_page
from house.source import ROOT

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.fixture
def folder(tmp_path, monkeypatch, forks):
    """An empty working directory that imports look into first."""
    # A server that a page starts with its interpreter would load the SDK each time.
    monkeypatch.setattr(sys, "executable", forks.python)
    # A reader stands in the root of the repository, where the examples are.
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    # A source that is changed within a second would be taken for the one that was compiled before.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    # A page may set providers, each of which can be set once in a process.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    monkeypatch.setattr(metrics, "_METER_PROVIDER", None)
    monkeypatch.setattr(metrics, "_METER_PROVIDER_SET_ONCE", Once())
    yield tmp_path
    # A page may set the levels and handlers of loggers, as its reader would; the next test must not notice.
    for name in [name for name in logging.Logger.manager.loggerDict if name.partition(".")[0] == "toolmason"]:
        logging.getLogger(name).setLevel(logging.NOTSET)
        logging.getLogger(name).handlers.clear()


@pytest.fixture
def run_text(folder, forks):
    def run(text):
        page = folder / "page.md"
        page.write_text(text, "utf-8")
        run_page(page, folder, forks)

    return run


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_page_runs(page, folder, forks):
    assert page.is_file(), f"{page.name} is missing: a repository without it has no page to run"

    run_page(page, folder, forks)


def test_the_readme_shows_code_and_a_command():
    languages = {block.language for block in blocks_of(README.read_text("utf-8"))}

    assert languages == {"python", "console"}


def test_blocks_share_one_namespace_and_may_await(run_text):
    run_text(
        "```python\nimport asyncio\nx = await asyncio.sleep(0, 20)\n```\ntext\n```python\nassert x + 1 == 21\n```\n",
    )


def test_a_block_with_a_file_name_can_be_imported(run_text, folder):
    run_text("```python\n# weather.py\ncity = 'Prague'\n```\n```python\nimport weather\nweather.city\n```\n")

    assert (folder / "weather.py").read_text("utf-8").endswith("city = 'Prague'\n")


def test_a_block_imports_the_file_of_its_page_and_not_one_of_another_page(run_text, monkeypatch):
    monkeypatch.setitem(sys.modules, "app", ModuleType("app"))

    run_text("```python\n# app.py\nvalue = 3\n```\n\n```python\nfrom app import value\n\nassert value == 3\n```\n")


def test_a_failing_block_fails_at_its_line_of_the_page(run_text):
    with pytest.raises(ZeroDivisionError) as caught:
        run_text("# Title\n\n```python\nx = 1\nx / 0\n```\n")

    assert caught.traceback[-1].lineno + 1 == 5
    assert caught.traceback[-1].path.name == "page.md"


def test_an_indented_block_and_a_block_of_another_language():
    page = "1. First:\n\n   ```python\n   x = 1\n   ```\n\n```text\nnot run\n```\n"

    assert blocks_of(page) == [Block("python", "x = 1\n", 4)]


def test_a_console_block_is_split_into_commands_and_what_they_show():
    block = Block("console", "$ toolmason list \\\n  a:b\none\n\n  two\n$ toolmason --help\n", 1)

    first, second = commands_of(block)

    assert first.text.split() == ["toolmason", "list", "a:b"]
    assert first.shown == ("one", "two")
    assert (second.text, second.shown) == ("toolmason --help", ())


@pytest.mark.parametrize(
    ("shown", "missing"),
    [
        pytest.param(["a", "c"], [], id="in order"),
        pytest.param(["a", "...", "c"], [], id="anything between"),
        pytest.param(["a", "x"], ["x"], id="not there"),
        pytest.param(["c", "a"], ["a"], id="other order"),
    ],
)
def test_shown_lines_are_looked_up_in_order(shown, missing):
    assert missing_lines(shown, "a 1\nb 2\nc 3\n") == missing


def test_a_command_that_fails_is_seen(run_text):
    with pytest.raises(AssertionError, match="exit code 2"):
        run_text("```console\n$ toolmason no-such-command\n```\n")


def test_a_command_may_fail_where_the_page_shows_its_exit_code(run_text):
    run_text("```console\n$ toolmason no-such-command\n...\n$ echo $?\n2\n```\n")


def test_the_tests_of_a_page_run(run_text):
    test = "```python\n# test_page.py\ndef test_it():\n    assert {}\n```\n```console\n$ pytest -q\n1 passed\n```\n"

    run_text(test.format(True))
    with pytest.raises(AssertionError, match="1 failed"):
        run_text(test.format(False))


def test_output_that_the_page_invents_is_seen(run_text):
    with pytest.raises(AssertionError, match="not in the output"):
        run_text("```console\n$ toolmason --help\nno such line at all\n```\n")
