"""`toolmason new NAME`: write a starter project with tools, tests and an entry point."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from typing import Final

import click

from toolmason.cli.main import USAGE
from toolmason.cli.output import echo, print_json

MAX_NAME_LENGTH: Final = 64

_PYPROJECT: Final = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "0.1.0"
description = "Tools for language models."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["toolmason"]

[project.optional-dependencies]
dev = ["pytest", "toolmason[cli]"]

# After installation, `toolmason list` and `toolmason.discover()` find these tools.
[project.entry-points."toolmason.tools"]
{module} = "{module}.tools"

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]

[tool.pytest.ini_options]
pythonpath = ["src"]
testpaths = ["tests"]
"""

_INIT: Final = '''\
"""Tools for language models."""
'''

_TOOLS: Final = '''\
"""The tools of this project: every function with `@tool`."""

from typing import Annotated, Literal

from toolmason import Toolbox, ToolError, tool

STOCK = {{"tea": 12, "coffee": 3}}


@tool(read_only=True)
def count_stock(article: Annotated[str, "Article to count, such as tea"]) -> int:
    """Count the units of an article in stock."""
    if article not in STOCK:
        raise ToolError(f"Unknown article {{article!r}}. In stock: {{', '.join(STOCK)}}.")
    return STOCK[article]


@tool(read_only=True)
def greet(name: str, language: Literal["en", "cs"] = "en") -> str:
    """Greet a person.

    Args:
        name: Name of the person.
        language: Language of the greeting.
    """
    return f"Hello {{name}}!" if language == "en" else f"Ahoj {{name}}!"


box = Toolbox(count_stock, greet)
'''

_TESTS: Final = '''\
"""Tests of the tools; most call them as a model does, by name and with JSON."""

from {module}.tools import box, greet


def test_a_tool_is_still_a_function():
    assert greet("Ada") == "Hello Ada!"


def test_a_call_returns_a_result():
    result = box.call_sync("count_stock", '{{"article": "tea"}}')

    assert result.value == 12


def test_an_unknown_article_is_an_error_that_lists_the_stock():
    result = box.call_sync("count_stock", {{"article": "milk"}})

    assert not result.ok
    assert "coffee" in result.text
'''

_README: Final = """\
# {name}

Tools for language models, built with Toolmason.

```sh
pip install -e '.[dev]'
pytest
toolmason list {module}.tools
toolmason call {module}.tools count_stock article=tea
```

The tools are in `src/{module}/tools.py`. The entry point in `pyproject.toml` makes them available to every application
that calls `toolmason.discover()`.
"""


@click.command("new")
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the files as JSON.")
def command(name: str, *, as_json: bool) -> None:
    """Write a starter project into the new folder NAME."""
    module = make_module_name(name)
    files = {
        "pyproject.toml": _PYPROJECT,
        "README.md": _README,
        f"src/{module}/__init__.py": _INIT,
        f"src/{module}/tools.py": _TOOLS,
        "tests/test_tools.py": _TESTS,
    }
    folder = Path(name)
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise click.UsageError(
            f"{name!r} already exists; nothing was overwritten. Choose another name, or move it away."
        )
    try:
        for relative_path, text in files.items():
            path = folder / relative_path
            path.parent.mkdir(parents=True, exist_ok=True)
            # Mode "x": do not overwrite a file created in the meantime.
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text.format(name=name, module=module))
    except OSError as error:
        echo(f"Error: cannot write the project: {error}. Check the folder.", err=True)
        raise click.exceptions.Exit(USAGE) from None
    written = [str(folder / relative_path) for relative_path in files]
    if as_json:
        print_json({"name": name, "module": module, "files": written})
    else:
        echo("\n".join(written))


def make_module_name(name: str) -> str:
    """Return the package name of a project; raise a usage error if it cannot be installed or imported."""
    module = re.sub(r"[-.]+", "_", name).lower()
    is_valid = re.fullmatch(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?", name) is not None and len(name) <= MAX_NAME_LENGTH
    if not is_valid or keyword.iskeyword(module):
        raise click.UsageError(f"{name!r} is not a valid project name. Use letters, digits and dashes: my-tools.")
    if module in sys.stdlib_module_names or module in ("toolmason", "tests"):
        raise click.UsageError(f"{name!r} is the name of an existing module. Choose another name.")
    return module
