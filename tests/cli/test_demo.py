"""`make demo`: what it shows with and without a terminal, Ctrl-C at its waits, its installation, and its picture."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from cli.sample_tools import environment
from house.source import ROOT

DEMO = ROOT / "examples" / "demo"
STORY = str(DEMO / "story.py")
PICTURE = ROOT / "docs" / "images" / "demo.svg"
SCENES = [
    ("list", "quote_price"),
    ("check", "All good: 3 tools in 1 file."),
    ("call", "13.5"),
    ("error", "No article 'TEA-99'"),
    ("two calls", '→ quote_price {"sku": "CUP-01", "quantity": 4}'),
    ("follow-up", '→ quote_price {"sku": "TEA-02", "quantity": 5}'),
    ("approval", "Allow this call? [y/n/edit/always] y"),
    ("allowed", "✓ Success"),
    ("MCP", "tools: cancel_order, find_products, quote_price"),
    ("result", "quote_price: {'result': 24.0}"),
    ("next", "toolmason chat examples/shop.py:box --model local"),
]
"""What the demo shows, in this order."""


def load(name):
    spec = importlib.util.spec_from_file_location(f"demo_{name}", DEMO / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assert_told(text):
    at = 0
    for scene, shown in SCENES:
        assert shown in text[at:], f"{scene} is missing after:\n{text[:at][-500:]}"
        at = text.index(shown, at) + len(shown)


def test_the_demo_tells_its_story_in_a_terminal(terminal):
    shell = terminal(cwd=ROOT, program=(sys.executable, STORY))

    assert shell.end(120) == 0
    assert_told(shell.text)
    assert "\x1b[" in shell.shown
    assert shell.text.count("> /quit") == 1


def test_the_demo_needs_no_terminal(forks):
    done = forks.run([sys.executable, STORY], cwd=ROOT, env=environment(), stdin="")

    assert done.returncode == 0, done.stderr
    assert_told(done.stdout)
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    "shown", ["$ toolmason list", "> What is the price of 2", "$ python examples/demo/mcp_client.py"]
)
def test_ctrl_c_ends_the_demo(terminal, shown):
    shell = terminal(cwd=ROOT, program=(sys.executable, STORY))
    shell.expect(shown, 60)

    assert shell.interrupt() == 130
    assert "Traceback" not in shell.text


def test_an_installation_that_fails_shows_the_output_of_pip(capsys):
    with pytest.raises(SystemExit, match="No matching distribution found for toolmason-no-such-package"):
        load("install").run_pip(Path(sys.executable), ["--no-index", "toolmason-no-such-package"])


def test_the_demo_installs_no_test_tools():
    words = " ".join([*load("install").BUILD, *load("install").PACKAGES, *load("install").MODEL])

    assert not re.search(r"\b(dev|all|pytest|mypy|pyright|ruff)\b", words)


# --- the picture -------------------------------------------------------------------------------------


def test_the_picture_is_one_of_the_demo_as_it_is():
    shown = PICTURE.read_text("utf-8").replace("&gt;", ">")
    commands = re.findall(r'show\("([^"]+)"', Path(STORY).read_text("utf-8"))

    assert len(commands) == 6
    assert [command for command in commands if f"$ {command}<" not in shown] == []
    assert_told(re.sub(r"<[^>]*>", "", shown))


def test_the_picture_is_small_and_loads_nothing():
    shown = PICTURE.read_text("utf-8")

    assert len(shown) < 30_000
    assert re.findall(r"https?://[^\"]+", shown) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"<script|@import|@font-face|url\(", shown)
    # The only slashes of paths are those of relative ones and of closing tags.
    assert not re.search(r"(?<![\w.</])/(?!tools|reset|save|load|quit)\w+/", shown)
    _title, _badges, picture, *_ = (ROOT / "README.md").read_text("utf-8").split("\n\n")
    assert picture.endswith("](docs/images/demo.svg)")


def test_the_recorder_reads_colours_returns_and_long_lines():
    screen = load("record").Screen()

    screen.feed("\x1b[1mbold\x1b[0m plain\r\nwrong\rright\r\n" + "x" * 85, 1.5)

    assert ["".join(character for character, _ in row) for row in screen.rows] == [
        "bold plain",
        "right",
        "x" * 80,
        "x" * 5,
    ]
    assert screen.rows[0][0] == ("b", 'class="bold"')
    assert screen.rows[0][-1] == ("n", "")


def test_the_recorder_stops_if_the_demo_fails():
    with pytest.raises(SystemExit, match="ended with the exit code 3"):
        load("record").record([sys.executable, "-c", "raise SystemExit(3)"])
