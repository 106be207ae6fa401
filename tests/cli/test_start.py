"""What `toolmason --help` costs: a Python start, and no package that only a call needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from house.source import ROOT
from toolmason.chat.durable.journal import SqliteRuntime

RAW = Path(__file__).parents[1] / "adversaries" / "raw_stdio.py"
SHOP = f"{ROOT / 'examples' / 'shop.py'}:box"

PROGRAM = """
import json, sys
sys.argv = ["toolmason", "--help"]
from toolmason.cli.main import main
try:
    main()
finally:
    print("\\n" + json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


@pytest.fixture(scope="module")
def loaded():
    done = subprocess.run([sys.executable, "-I", "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert "Use tools" in done.stdout
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "package", ["pydantic", "pydantic_core", "rich", "asyncio", "jsonschema", "importlib.metadata"]
)
def test_the_help_does_not_load(loaded, package):
    assert "click" in loaded
    assert package not in loaded


def test_the_root_loads_nothing_until_a_name_is_used():
    program = (
        "import sys, toolmason\nbefore = 'pydantic_core' in sys.modules\nfrom toolmason import tool\n"
        "print(before, 'toolmason._core.toolbox.toolbox' in sys.modules)"
    )

    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]


MODULES = ["chat", "converters", "errors", "extend", "mcp", "models", "providers", "testing"]


def test_a_public_module_is_there_without_an_import_of_its_own():
    # One fork for each name, because each name needs an interpreter that has imported none of the others.
    program = (
        "import os\nimport toolmason\n"
        f"for name in {MODULES}:\n"
        "    if os.fork() == 0:\n"
        "        print(getattr(toolmason, name).__name__)\n"
        "        break\n"
        "    os.wait()\n"
    )

    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == [f"toolmason.{name}" for name in MODULES]


@pytest.mark.parametrize(
    "words",
    [
        ["build", "package"],
        ["lock", "office:box", "--file", "new.lock"],
        ["new", "project"],
        ["run", SHOP, "What is the price of 3 TEA-01?", "--model", "offline", "--durable", "new.db"],
        ["runs", "list", "made.db"],
        ["mcp", "list", "--stdio", f"{sys.executable} {RAW} plain"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_imports_what_it_needs(run_new, office, tmp_path, words):
    """The other tests run commands in a process that has loaded everything."""
    (tmp_path / "office.py").symlink_to(office / "office.py")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    journal = SqliteRuntime(tmp_path / "made.db")
    journal.add_facts("r", {"command": {"target": SHOP, "model": "offline", "prompt": "Price of 3 TEA-01?"}})
    journal.close()

    done = run_new(*words, cwd=tmp_path)

    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def test_a_name_that_the_root_does_not_have_is_an_attribute_error():
    import toolmason

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        toolmason.nothing  # noqa: B018 - reading it is the act
    assert set(toolmason.__all__) <= set(dir(toolmason))
