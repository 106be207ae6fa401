"""What the tests of the core share: tasks that a test left behind, and a process of its own."""

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from core.shop import ORDERS, STOCK, forget
from toolmason.build.manifest.package_manifest import build, write_file


@pytest.fixture
def run_script(tmp_path: Path):
    """Run a program in a process of its own; a program that hangs fails the test after 60 seconds."""

    def run(text: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(text), "utf-8")
        return subprocess.run(
            [sys.executable, str(path)], capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path
        )

    return run


@pytest.fixture
def tasks_left():
    """Return a function that lists the tasks that are not done, less those of the test runner."""

    def left() -> list[asyncio.Task]:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        return [task for task in others if "TestRunner" not in task.get_coro().__qualname__]

    return left


@pytest.fixture
def shop(make_package):
    """A package with two modules of tools and a manifest; nothing of it is loaded."""
    folder = make_package(orders=ORDERS, stock=STOCK)
    built = build("shop")
    write_file(built.path, built.data)
    forget("shop")
    return folder
