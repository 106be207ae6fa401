"""What `toolmason --help` costs: a Python start, and no package that only a call needs."""

import json
import subprocess
import sys

import pytest

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
    assert "Commands" in done.stdout
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


@pytest.mark.parametrize("name", ["chat", "converters", "errors", "extend", "mcp", "models", "providers", "testing"])
def test_a_public_module_is_there_without_an_import_of_its_own(name):
    program = f"import toolmason\nprint(toolmason.{name}.__name__)"

    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == f"toolmason.{name}"


def test_a_name_that_the_root_does_not_have_is_an_attribute_error():
    import toolmason

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        toolmason.nothing  # noqa: B018 - reading it is the act
    assert set(toolmason.__all__) <= set(dir(toolmason))
