"""`toolmason new NAME`: write a starter project with tools, tests and an entry point."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from pkgutil import get_data
from typing import Final

import click

from toolmason.cli.main import USAGE, examples
from toolmason.cli.output import echo, print_json

MAX_NAME_LENGTH: Final = 64


@click.command("new", epilog=examples("new my-tools"))
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print the files as JSON.")
def command(name: str, *, as_json: bool) -> None:
    """Write a starter project into the new folder NAME."""
    module = make_module_name(name)
    files = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"src/{module}/__init__.py": "init.py",
        f"src/{module}/tools.py": "tools.py",
        "tests/test_tools.py": "test_tools.py",
    }
    folder = Path(name)
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise click.UsageError(
            f"{name!r} already exists; nothing was overwritten. Choose another name, or move it away."
        )
    try:
        for relative_path, template_name in files.items():
            template = (get_data("toolmason.cli", f"starter/{template_name}.txt") or b"").decode()
            path = folder / relative_path
            path.parent.mkdir(parents=True, exist_ok=True)
            # Mode "x": do not overwrite a file created in the meantime.
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(template.format(name=name, module=module))
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
